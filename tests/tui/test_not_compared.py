"""What stands below a host whose ranks have no step in common with the others: no map without cells, and no band."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ddpmon.snapshot import Snapshot
from ddpmon.tui.draw.heat import ranks_lines
from ddpmon.tui.draw.host_courses import host_courses
from ddpmon.tui.view_state import ViewState
from tests.tui.made_runs import Made, snapshot
from tests.tui.test_drawing import LOOKS, text_of

COLOUR = LOOKS["colour"]
MADE = snapshot(Made(ranks=24, per_node=8, gpu=True, focus=8))


def away(made: Snapshot, *ranks: int) -> Snapshot:
    """The run with ranks, that in detail included, which restarted alone: they are not compared with the others."""
    assert made.heat is not None
    assert made.detail is not None
    values = made.heat.values.copy()
    values[list(ranks)] = np.nan
    courses = {key: replace(each, others=each.others * np.nan) for key, each in made.detail.courses.items()}
    courses["lateness"] = replace(courses["lateness"], own=courses["lateness"].own * np.nan)
    return replace(made, heat=replace(made.heat, values=values), detail=replace(made.detail, courses=courses))


@pytest.mark.parametrize("width", [120, 160, 240])
def test_a_host_of_which_nothing_is_known_has_one_line_for_it_and_no_word_on_a_band(width: int) -> None:
    """Eight lines said that nothing is known, with a legend and an axis; the plots said that the others are shaded."""
    lines = text_of(host_courses(ViewState(away(MADE, *range(8, 16)), COLOUR), 1, width, 30))
    assert lines[0].startswith("─ lateness by rank and step ─")
    assert lines[1].strip() == "ranks 8-15: not known in these steps"
    assert lines[2].startswith("─ rank 8 and its machine ─")
    assert "shaded" not in "".join(lines)
    assert any("GPU power, W" in line for line in lines), "which has the room"


def test_a_host_of_which_something_is_known_has_its_map_and_its_band() -> None:
    lines = text_of(host_courses(ViewState(MADE, COLOUR), 1, 160, 30))
    assert "shaded: nine in ten of the others" in "".join(lines)
    assert "<5" in lines[0]
    some = text_of(ranks_lines(ViewState(away(MADE, *range(9, 16)), COLOUR), range(8, 16), 160, 12))
    assert sum("not known in these steps" in line for line in some) == 7
