"""The cursor of the heat-map: it stays on its step, and every key acts on the rank that the title names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from ddpmon.run.medians import row_medians
from ddpmon.snapshot import Metric, Snapshot
from ddpmon.tui.draw import grid
from ddpmon.tui.draw.bands import GUTTER
from ddpmon.tui.draw.grid import METRICS, levels_of
from ddpmon.tui.draw.heat import heat_lines
from ddpmon.tui.draw.heat_layout import Cell, Cursor, Layout, lay_out
from ddpmon.tui.screens.overview import Overview
from ddpmon.tui.view_state import ViewState
from tests.tui.made_runs import NOTES, Made, snapshot
from tests.tui.test_drawing import LOOKS, text_of
from tests.tui.test_heat import heat_of
from tests.tui.watched import Fixed, Watched, watch

COLOUR, ASCII = LOOKS["colour"], LOOKS["ascii"]
HOSTS = ("node0",) * 8 + ("node1",) * 8
WIDE = (160, 50)


def laid_out(shown: ViewState, width: int, height: int) -> Layout:
    layout = lay_out(shown, width, height)
    assert layout is not None
    return layout


def two_hosts(work: np.ndarray) -> Snapshot:
    """16 ranks on two hosts, whose map has two rows, with this work [16, steps]."""
    return replace(snapshot(Made(ranks=16, per_node=8)), heat=heat_of(work))


def cell(shown: Snapshot, cursor: Cursor, width: int = 100) -> Cell:
    return laid_out(ViewState(shown, ASCII), width + GUTTER + 1, 4).cell(cursor)


def from_step(made: Snapshot, first: int, steps: int) -> Snapshot:
    """The same run with the heat of so many steps from one on."""
    assert made.heat is not None
    part = slice(first, first + steps)
    values, base_ms = made.heat.values[:, part], made.heat.base_ms[part]
    return replace(made, heat=replace(made.heat, step=made.heat.step[part], values=values, base_ms=base_ms))


def test_the_cursor_names_rank_step_time_and_value() -> None:
    made = snapshot(Made(straggler=5, onset=812, step=1004))
    assert made.run is not None
    timed = ViewState(replace(made, run=replace(made.run, step_age_s=0.0)), ASCII)
    title = text_of(heat_lines(timed, 160, 10, cursor=Cursor(5)))[0]
    found = re.search(r"rank 5 . step (1,00\d) . \d\d:\d\d:\d\d . lateness \+4\d ms, 3\d % of base step", title)
    assert found, title
    earlier = laid_out(timed, 160, 10).beside(Cursor(5), 0, -140)
    lines = text_of(heat_lines(timed, 160, 10, cursor=earlier.cursor))
    assert re.search(r"rank 5 . step \d+, the worst of \d . \d\d:\d\d:\d\d . lateness ", lines[0])
    assert lines[6].count(ASCII.glyphs.here) == 1
    assert lines[6][GUTTER + earlier.column] == ASCII.glyphs.here


def test_the_cursor_on_a_host_names_its_worst_rank_and_step() -> None:
    work = np.full((16, 20), 100.0)
    work[11, 7] = 180.0
    found = cell(two_hosts(work), Cursor(8, 7))
    assert (found.rank, found.step, found.value, found.percent) == pytest.approx((11, 7, 80.0, 80.0))


def test_on_a_host_the_chosen_rank_stays_where_its_cell_is_as_bright() -> None:
    """Of the healthy ranks of a host another one is the worst in each step, by chance."""
    work = np.full((16, 20), 100.0)
    work[8:, :] += np.arange(8)[:, None] / 4
    assert cell(two_hosts(work), Cursor(10, 7)).rank == 10
    work[8:, 5:] += 30.0
    assert cell(two_hosts(work), Cursor(10, 7)).rank == 10, "its whole host is late"
    work[12, 7] += 30.0
    assert cell(two_hosts(work), Cursor(10, 7)).rank == 12


@pytest.mark.parametrize(("wide", "steps"), [(100, 30), (100, 100), (100, 150), (100, 250), (100, 500), (40, 500)])
def test_the_cursor_stays_on_its_step_while_steps_come(wide: int, steps: int) -> None:
    """It stood in a column, so that another step was under it with each one that came."""
    work = np.full((16, 700), 100.0)
    work[3, 330] = 200.0
    made = two_hosts(work)
    for first in range(330 - steps + 1, 330):
        found = cell(from_step(made, max(first, 0), steps), Cursor(3, 330), wide)
        assert (found.rank, found.step, found.value) == (3, 330, 100.0), first
    found = cell(from_step(made, 331, steps), Cursor(3, 330), wide)
    assert (found.column, found.is_newest) == (0, False), "its step is no longer shown"
    found = cell(from_step(made, 0, 300), Cursor(3, 330), wide)
    assert found.is_newest, "in the past before it"


@pytest.mark.parametrize("steps", [1, 30, 100, 150, 500])
def test_a_key_moves_by_a_step_or_the_steps_of_a_cell_and_the_newest_one_is_followed(steps: int) -> None:
    made = two_hosts(np.full((16, steps), 100.0))
    layout = laid_out(ViewState(made, ASCII), 100 + GUTTER + 1, 4)
    cells, cursor = [layout.cell(Cursor(3))], Cursor(3)
    for _ in range(min(steps, 100)):
        cells.append(layout.beside(cursor, 0, -1))
        cursor = cells[-1].cursor
    assert [each.column for each in cells] == sorted((each.column for each in cells), reverse=True)
    assert {each.column for each in cells} == {layout.grid.column_of(int(step)) for step in layout.grid.steps}
    assert layout.beside(cursor, 0, 1000).cursor == Cursor(3), "back at the right end it follows the newest step"


class Growing(Fixed):
    """A run of 64 ranks in which steps come when the test says so."""

    def __init__(self, made: Made) -> None:
        super().__init__(snapshot(made))
        self.made = made

    def go_on(self, steps: int) -> None:
        self.made = replace(self.made, step=self.made.step + steps)
        self.shown = snapshot(self.made)


def test_on_the_screen_the_cursor_stays_on_the_step_and_at_the_end_on_the_newest() -> None:
    source = Growing(Made(ranks=8, straggler=5, step=120, onset=40))

    async def act(watched: Watched) -> None:
        await watched.until_shown("rank x step")
        await watched.press("tab", *["left"] * 20)
        await watched.until_shown("rank 5 · step 100 ")
        source.go_on(7)
        await watched.until_shown(" 127 ")
        await watched.until_shown("rank 5 · step 100 ")
        await watched.press("right")
        await watched.until_shown("rank 5 · step 101 ")
        await watched.press("shift+right", "shift+right", "shift+right")
        await watched.until_shown("rank 5 · step 127 ")
        source.go_on(4)
        await watched.until_shown("rank 5 · step 131 ")

    watch(source, act, WIDE)


def copied(watched: Watched) -> str:
    """What the last toast says was copied."""
    return list(watched.app._notifications)[-1].message.replace("\n", " ")


@pytest.mark.parametrize("alone", [(), ("f", "f")], ids=["", "alone"])
def test_keys_act_on_the_rank_under_the_cursor_of_the_heat_map(alone: Sequence[str]) -> None:
    """`m`, `y`, `c` and `3` took the rank of the table, or none where the heat-map was shown alone."""

    async def act(watched: Watched) -> None:
        await watched.until_shown("rank x step")
        await watched.press(*(alone or ["tab"]), *["up"] * 3)
        await watched.until_shown("rank 2 · step 1,2")
        await watched.press("y")
        await watched.until(lambda: bool(watched.app._notifications))
        assert copied(watched).startswith("copied: rank 2, data ended early"), copied(watched)
        await watched.press("m")
        assert watched.app.links.marked == (2,)
        await watched.press("down", "c")
        await watched.until_shown("rank 3 - rank 2")
        await watched.press("escape", "down", "3")
        await watched.until_shown("node1")
        assert watched.app.links.host_of(watched.app.links.current) == 1
        assert watched.app.links.current == 4

    watch(Fixed(snapshot(Made(ranks=8, straggler=5, findings=NOTES))), act, WIDE)


def test_a_host_row_chooses_the_rank_that_the_title_names() -> None:
    made = Made(ranks=64, per_node=8, straggler=43, onset=1100)

    async def act(watched: Watched) -> None:
        await watched.until_shown("host x step")
        await watched.press("tab", "up", "down")
        await watched.until_shown("rank 43 · step 1,2")
        await watched.press("m")
        assert watched.app.links.marked == (43,)
        await watched.press("down")
        await watched.until_shown("rank 48 · step 1,2")
        assert watched.app.links.current == 48
        await watched.press("tab")
        await watched.until_shown("host x step")
        assert watched.app.links.chosen == 48, "also back in the table"

    watch(Fixed(snapshot(made)), act)


def test_the_keys_say_what_enter_opens() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("step")
        await watched.press("tab")
        await watched.until_shown("3 host  m mark  y copy")

    watch(Fixed(snapshot(Made(ranks=8, straggler=5))), act, (80, 24))


@pytest.mark.parametrize("metric", ["lateness", "work", "loss", "gpu"])
@pytest.mark.parametrize("zoom", [0, 400])
def test_a_cell_has_the_percent_that_it_has_among_all_steps(metric: Metric, zoom: int) -> None:
    work = np.random.default_rng(7).normal(100.0, 30.0, (16, 600))
    heat = replace(heat_of(work), values=work.astype(np.float32), metric=metric)
    whole = METRICS[metric].percent(heat, heat.values)
    layout = laid_out(ViewState(replace(two_hosts(work), heat=heat), ASCII, zoom=zoom), 100 + GUTTER + 1, 4)
    for rank, step in ((3, 599), (11, 330), (8, 201)):
        found = layout.cell(Cursor(rank, step))
        assert found.percent == whole[found.rank, found.step]
        assert levels_of(whole[[found.rank], found.step])[0] == layout.grid.levels[found.band, found.column]


def test_a_picture_is_laid_out_once_for_choosing_and_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 4,096 ranks a picture took 94 ms instead of 26 while the cursor was in the map of a loss."""
    made = snapshot(Made(ranks=16, per_node=8))
    assert made.heat is not None
    medians: list[int] = []  # of how many steps each was worked out

    def counted(values: np.ndarray) -> np.ndarray:
        medians.append(len(values))
        return row_medians(values)

    async def act(watched: Watched) -> None:
        await watched.until_shown("─ loss, rank x step")
        await watched.press("tab")
        await watched.until_shown("arrows cell")
        with monkeypatch.context() as patched:
            patched.setattr(grid, "row_medians", counted)
            assert isinstance(watched.app.screen, Overview)
            watched.app.screen.show()
        assert [steps for steps in medians if steps > 10] == [600], medians

    losses = replace(made.heat, values=made.heat.values + np.float32(200), metric="loss")
    watch(Fixed(replace(made, chosen_heat=losses)), act, (120, 24), interval=10.0)
