"""The names and signs of rows of the heat-map that several ranks share."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import pytest

from ddpmon.snapshot import Finding
from ddpmon.tui.draw.bands import bands_of
from ddpmon.tui.draw.heat import heat_lines
from ddpmon.tui.draw.heat_layout import Cursor
from ddpmon.tui.theme import Look
from ddpmon.tui.view_state import ViewState
from tests.tui.made_runs import Made, snapshot
from tests.tui.test_drawing import LOOKS, text_of

COLOUR, ASCII = LOOKS["colour"], LOOKS["ascii"]
KILLED = Finding("rank_lost", "critical", "the run was killed", (0,), ("node0",), since_step=1204, tells_moment=True)


@pytest.mark.parametrize("look", [COLOUR, ASCII])
@pytest.mark.parametrize("late", [9, 17])
def test_a_row_of_several_hosts_is_called_after_the_one_whose_lateness_it_shows(look: Look, late: int) -> None:
    """A row with the stripe of node42 was called `n0` and had the sign of rank 0, which had been killed."""
    made = snapshot(Made(ranks=1024, per_node=8, straggler=late, findings=(KILLED,)))
    lines = text_of(heat_lines(ViewState(made, look), 120, 14))
    first = lines[1].split()[0]
    assert first == f"n{late // 8}{look.glyphs.mark}"


@pytest.mark.parametrize(("ranks", "per_node", "size"), [(1024, 8, (120, 14)), (64, 2, (80, 12)), (64, 8, (80, 8))])
@pytest.mark.parametrize("look", [COLOUR, ASCII])
def test_a_row_of_several_hosts_says_from_which_to_which(
    ranks: int, per_node: int, size: tuple[int, int], look: Look
) -> None:
    """A row of twelve hosts was called `n12`, as if it were that one alone."""
    lines = text_of(heat_lines(ViewState(snapshot(Made(ranks=ranks, per_node=per_node)), look), *size))
    spans = [re.fullmatch(r"n(\d+)-n(\d+)", line.split()[0]) for line in lines[1:] if line.strip().startswith("n")]
    ends = [tuple(map(int, span.groups())) for span in spans if span is not None]
    assert len(ends) == len(spans) > 2
    assert ends[0][0] == 0
    assert all(last + 1 == following for (_, last), (following, _) in itertools.pairwise(ends))
    assert ends[-1][1] == ranks // per_node - 1


def test_of_two_late_hosts_a_row_is_called_after_the_later_one_whose_cells_it_shows() -> None:
    """A row with the cells of node5 was called `n4`, whose rank was half as late."""
    made = snapshot(Made(ranks=1024, per_node=8, straggler=17))
    other = replace(made.findings[0], ranks=(9,), nodes=("node1",))
    lines = text_of(heat_lines(ViewState(replace(made, findings=(other, *made.findings)), COLOUR), 120, 14))
    assert lines[1].split()[0] == f"n2{COLOUR.glyphs.mark}"


def test_a_row_without_a_late_host_is_called_after_the_broken_one() -> None:
    made = snapshot(Made(ranks=1024, per_node=8, straggler=1020, findings=(KILLED,)))
    labels = [line.split()[0] for line in text_of(heat_lines(ViewState(made, COLOUR), 120, 14))[1:-2]]
    assert labels[0] == f"n0{COLOUR.glyphs.lost}"
    assert f"n127{COLOUR.glyphs.mark}" in labels


def test_under_the_cursor_a_row_is_called_after_its_own_half_of_the_line() -> None:
    shown = ViewState(snapshot(Made(ranks=1024, per_node=8, straggler=1020)), COLOUR)
    bands = bands_of(shown, 14)
    assert bands is not None
    assert bands.halves
    late = len(bands.starts) - 1
    calm = late - 1 if late % 2 else late + 1
    line = 1 + late // 2
    assert calm // 2 == late // 2 < late, "both share a line"
    ranks = (1020, int(bands.ranks(calm)[0]))
    labels = [text_of(heat_lines(shown, 120, 14, cursor=Cursor(rank)))[line][: bands.gutter].strip() for rank in ranks]
    assert labels == [f"n127{COLOUR.glyphs.mark}{COLOUR.glyphs.cursor}", f"{bands.labels[calm]} {COLOUR.glyphs.cursor}"]
