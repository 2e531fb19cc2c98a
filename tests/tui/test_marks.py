"""The marks on axes: a plot or a heat-map of some ranks has those of findings about them and about the whole job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from ddpmon.snapshot import Finding
from ddpmon.tui.draw.heat import heat_lines, ranks_lines
from ddpmon.tui.draw.run_plots import lateness_plot, marked_plots, plots_below
from ddpmon.tui.view_state import ViewState
from tests.tui.made_runs import Made, snapshot
from tests.tui.test_drawing import LOOKS, text_of

ASCII = LOOKS["ascii"]
SLOWER = Finding("job_slower", "warning", "the run is slower", since_step=900)
THROTTLED = Finding("memory_pressure", "warning", "node1 runs out of memory", (), ("node1",), since_step=1000)
SHOWN = ViewState(snapshot(Made(straggler=5, onset=812, findings=(SLOWER, THROTTLED))), ASCII)


def marks(lines: Sequence[str]) -> set[int]:
    """The steps that are marked on the last line, the axis."""
    words = lines[-1].replace(",", "").split()
    return {int(after) for sign, after in pairwise(words) if sign == "!"}


@pytest.mark.parametrize(("rank", "expected"), [(0, {900}), (4, {900, 1000}), (5, {812, 900, 1000})])
def test_a_plot_and_a_map_of_a_rank_have_the_marks_of_what_is_about_it(rank: int, expected: set[int]) -> None:
    """Under the plots of healthy ranks stood the onset of another rank's lateness."""
    assert marks(text_of(lateness_plot(SHOWN, rank, 120, 12))) == expected
    assert marks(text_of(marked_plots(SHOWN, [rank], 120, 12))) == expected
    assert marks(text_of(ranks_lines(SHOWN, [rank], 120, 12))) == expected


def test_what_is_about_the_run_has_all_marks() -> None:
    assert marks(text_of(plots_below(SHOWN, 160, 12))) == {812, 900, 1000}
    assert marks(text_of(heat_lines(SHOWN, 120, 10))) == {812, 900, 1000}
    assert marks(text_of(heat_lines(SHOWN, 120, 6, wanted="0-3"))) == {900}


def test_of_several_compared_ranks_each_plot_has_its_own_marks() -> None:
    calm = replace(SHOWN, snapshot=replace(SHOWN.snapshot, findings=SHOWN.snapshot.findings[:1]))
    axis = text_of(marked_plots(calm, [0, 5], 161, 12))[-1]
    assert "812" not in axis[:80]
    assert "! 812" in axis[80:]
