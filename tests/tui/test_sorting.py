"""Tables are sorted by letters, by steps through the columns, and by clicks on headings."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from ddpmon.snapshot import Snapshot
from ddpmon.tui.screens.overview import Overview
from ddpmon.tui.widgets.virtual_table import VirtualTable
from tests.tui.made_runs import Made, snapshot
from tests.tui.watched import STRAGGLER, Fixed, Watched, watch


@pytest.mark.parametrize(("letter", "heading"), [("L", "late"), ("B", "barrier"), ("H", "host")])
def test_a_letter_sorts_by_a_column_which_is_then_shown(letter: str, heading: str) -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press(letter)
        await watched.until_shown(f"by {heading} ")
        assert heading in next(line for line in watched.text().split("\n") if " rank " in line and "work" in line)
        first = watched.rows()
        await watched.press(letter)
        assert watched.rows() == first[::-1]
        await watched.press("0")
        assert watched.rows()[0] == 5

    watch(Fixed(STRAGGLER), act, (100, 30))


def test_every_column_by_which_one_can_sort_is_shown_and_named_by_its_heading() -> None:
    source = Fixed(snapshot(Made(ranks=8, straggler=5, gpu=True)))

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        overview = watched.app.screen
        assert isinstance(overview, Overview)
        seen = set()
        while overview.table.view.sort not in seen:
            seen.add(overview.table.view.sort)
            await watched.press("full_stop")
            lines = watched.text().split("\n")
            at = next(place for place, line in enumerate(lines) if "─ ranks ─" in line)
            title, headings = lines[at : at + 2]
            label = title.rpartition(" by ")[2].split(" ─")[0].strip()
            assert overview.table.view.sort == "worst" or f" {label} " in f"{headings} ", label
        assert len(seen) == 16
        await watched.press("comma")
        assert overview.table.view.sort == "age"

    watch(source, act, (80, 24))


def test_a_click_on_a_heading_sorts() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        overview = watched.app.screen
        assert isinstance(overview, Overview)

        def headings() -> str:
            return watched.text().split("\n")[overview.table.region.y + 1]

        await watched.until(lambda: " rank " in headings())  # a notice moves the table before it is drawn there
        column = headings().index("rank") + 1
        await watched.pilot.click(overview.table, offset=(column, 1))
        assert watched.rows() == list(range(8))
        await watched.pilot.click(overview.table, offset=(column, 1))
        assert watched.rows() == list(range(7, -1, -1))
        await watched.pilot.click(overview.table, offset=(1, 1))
        assert watched.rows()[0] == 5

    watch(Fixed(STRAGGLER), act)


def test_hosts_are_sorted_by_their_headings_too() -> None:
    source = Fixed(snapshot(Made(ranks=64, per_node=4, straggler=22)))

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("3", "C")
        await watched.until_shown("by cpu%")
        await watched.press("H", "H")
        await watched.until_shown("by host, reversed")
        await watched.press("0")
        await watched.until_shown("findings first")

    watch(source, act)


@pytest.mark.parametrize(("view", "key"), [("1", "E"), ("1", "r"), ("1", "full_stop"), ("3", "C"), ("3", "r")])
def test_the_first_rows_of_a_new_order_are_in_sight(view: str, key: str) -> None:
    source = Fixed(snapshot(Made(ranks=256, per_node=4)))

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press(view, "G")
        table = watched.app.screen.query_one(VirtualTable)
        await watched.until(lambda: table.view.top > 0)
        await watched.press(key)
        assert table.view.top == table.view.cursor == 0

    watch(source, act, (120, 34))


def test_a_chosen_rank_stays_chosen_where_a_new_order_has_it_among_the_first_rows() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        table = watched.app.screen.query_one(VirtualTable)
        await watched.press("down", "down")
        chosen = table.chosen
        await watched.press("R", "R")
        assert table.chosen == chosen
        assert table.view.cursor > 2

    watch(Fixed(STRAGGLER), act)


def test_a_rank_that_no_reader_has_chosen_does_not_take_the_first_rows_away_when_it_restarts() -> None:
    made = snapshot(Made(ranks=64))
    assert made.ranks is not None
    source = Fixed(made)

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("E")
        await watched.until_shown("by age ")
        assert made.ranks is not None
        first, age_s = watched.rows()[0], made.ranks.age_s.copy()
        age_s[first] = 0.0
        source.shown = replace(made, ranks=replace(made.ranks, age_s=age_s))
        await watched.until(lambda: watched.rows()[0] != first)
        overview = watched.app.screen
        assert isinstance(overview, Overview)
        assert (overview.table.view.top, overview.table.view.cursor) == (0, 0)
        assert watched.rows()[-1] == first

    watch(source, act, (80, 24))


@pytest.mark.parametrize(("view", "key", "back"), [("1", "O", 42), ("3", "C", 10)])
def test_a_cursor_that_nobody_chose_stays_in_the_first_row_while_the_order_changes(
    view: str, key: str, back: int
) -> None:
    source = Fixed(snapshot(Made(ranks=64, straggler=42)))

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press(view, key)
        table = watched.app.screen.query_one(VirtualTable)
        first = table.chosen
        assert first is not None
        source.shown = with_least(source.shown, first)
        await watched.until(lambda: table.view.order[-1] == first)
        assert table.view.top == table.view.cursor == 0
        await watched.press("0")
        assert table.chosen == back

    watch(source, act, (120, 24))


def with_least(shown: Snapshot, number: int) -> Snapshot:
    """The picture with the least loss for the rank of this number, and the least CPU for the host."""
    ranks = shown.ranks
    assert ranks is not None
    loss = ranks.loss.copy()
    loss[number] = 0.0
    nodes = [
        replace(node, figures=msgspec.structs.replace(node.figures, cpu_pct=0.0)) if node.node == number else node
        for node in shown.nodes
    ]
    return replace(shown, ranks=replace(ranks, loss=loss), nodes=tuple(nodes))
