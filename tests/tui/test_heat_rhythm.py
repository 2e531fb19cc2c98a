"""A lateness in every fifth step looks as regular in the heat-map as it is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ddpmon.tui.draw.bands import GUTTER, share_out
from ddpmon.tui.draw.grid import quantise
from ddpmon.tui.draw.heat import heat_lines
from ddpmon.tui.draw.heat_layout import Cursor, lay_out
from ddpmon.tui.view_state import ViewState
from tests.tui.made_runs import Made, snapshot
from tests.tui.test_drawing import LOOKS, text_of
from tests.tui.test_heat import heat_of

ASCII = LOOKS["ascii"]


@pytest.mark.parametrize(("steps", "columns"), [(189, 152), (171, 112), (130, 112), (209, 150), (161, 72), (113, 112)])
def test_a_late_step_has_one_cell_and_the_gaps_between_late_ones_are_alike(steps: int, columns: int) -> None:
    """Some had one cell and others two, with uneven gaps, and the title said that each cell was of two steps."""
    work = np.full((4, steps), 100.0)
    work[0, ::5] = 180.0
    made = replace(snapshot(Made(ranks=4)), heat=heat_of(work))
    title, row, *_ = text_of(heat_lines(ViewState(made, ASCII), columns + GUTTER + 1, 6))
    few = steps // columns
    said = f"the worst of {few} or {few + 1} steps a cell" if columns > 100 else "worst of 3 steps"
    assert said in title
    late = np.flatnonzero([sign == "#" for sign in row[GUTTER : GUTTER + columns]])
    assert len(late) == len(range(0, steps, 5)), "each of them has one cell"
    assert np.ptp(np.diff(late)) <= 1
    assert len(row[GUTTER:].rstrip()) == columns, "the map fills its width"


def test_under_the_cursor_a_cell_says_how_many_steps_it_shows() -> None:
    work = np.full((2, 150), 100.0)
    work[1, 149] = 150.0
    heat = heat_of(work)
    made = ViewState(replace(snapshot(Made(ranks=2)), heat=heat), ASCII)
    grid = quantise(heat, 100, share_out(np.arange(2), (), 2, halves=False))
    shown = [len(heat.step[grid.steps_in(column)]) for column in range(100)]
    assert set(shown) == {1, 2}
    assert sum(shown) == 150, "none is hidden and none shown twice"
    layout = lay_out(made, 100 + GUTTER + 1, 4)
    assert layout is not None
    found = layout.cell(Cursor(1))
    assert (found.rank, found.step) == (1, 149)
    assert (found.value, found.percent) == pytest.approx((50.0, 100 * 50.0 / heat.base_ms[149]), rel=0.02)
    for back in range(4):
        cell = layout.beside(Cursor(0), 0, -back)
        told = text_of(heat_lines(made, 100 + GUTTER + 1, 4, cursor=cell.cursor))[0]
        assert ("the worst of 2" in told) is (shown[99 - back] == 2)


@pytest.mark.parametrize("height", [6, 14])
def test_a_cell_of_which_few_steps_are_late_has_no_hole(height: int) -> None:
    """Its upper part was black, which elsewhere says that nothing is known."""
    work = np.full((4, 600), 100.0)
    work[0, ::7] = 180.0
    made = replace(snapshot(Made(ranks=4)), heat=heat_of(work))
    look = LOOKS["colour"]
    rows = heat_lines(ViewState(made, look), 60 + GUTTER + 1, height)[1:-1]
    cells = [
        segment for row in rows for segment in row if segment.text[:1] in (look.glyphs.rare, look.glyphs.block, "█")
    ]
    foot = [segment for segment in cells if segment.text[0] == look.glyphs.rare]
    assert foot, "so many steps share a cell"
    assert all(segment.style is not None and segment.style.bgcolor is not None for segment in foot)
    assert not any(" " in row for row in (text[GUTTER : GUTTER + 60] for text in text_of(rows)) if row.strip())


@pytest.mark.parametrize(
    ("hosts", "called"), [(("node1", "node9", "node10"), "n1-n10"), (("node9", "node10", "node1"), "n9 +2")]
)
def test_a_row_of_several_hosts_is_a_range_only_if_it_is_one(hosts: tuple[str, ...], called: str) -> None:
    """`n54-n2` was no range: the hosts stood in the order of their troubles."""
    names = [host for host in hosts for _ in range(2)] + ["node20", "node21", "node22"] * 2
    bands = share_out(np.arange(12), names, 2, halves=False)
    assert bands.label_of(0, 1, np.zeros(12, np.int64))[0] == called
