"""Runs of many ranks as a reader meets them: the worst first, nodes instead of ranks, and filters to narrow it down."""

from __future__ import annotations

import pytest

from ddpmon.tui.screens.overview import Overview
from tests.tui.made_runs import Made, snapshot
from tests.tui.watched import Fixed, Watched, watch

NAMES = {" ": "space", "-": "minus", "[": "left_square_bracket", "*": "asterisk", "(": "left_parenthesis"}
THOUSAND = snapshot(Made(ranks=1024, per_node=8, straggler=777, lost=(5,)))


def test_the_table_opens_on_the_worst_ranks() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("▸")
        assert watched.rows()[:2] == [5, 777]
        top = next(line for line in watched.text().split("\n") if line.startswith("▸"))
        assert top.split()[1:3] == ["5", "node0"]

    watch(Fixed(THOUSAND), act, (80, 24))


def test_the_worst_ranks_stay_in_sight_where_the_chosen_one_comes_up_beside_them() -> None:
    """The table scrolled no further back than to the cursor, and hid the worst rank above it."""
    source = Fixed(THOUSAND)

    async def act(watched: Watched) -> None:
        await watched.until_shown("▸")
        for _ in range(3):
            await watched.press("pagedown")
        await watched.until(lambda: "lost, silent" not in watched.text())
        overview = watched.app.screen_stack[0]
        assert isinstance(overview, Overview)
        chosen = overview.table.rank
        assert chosen is not None
        source.shown = snapshot(Made(ranks=1024, per_node=8, straggler=chosen, lost=(5,)))
        await watched.until(lambda: watched.rows()[:2] == [5, chosen])
        await watched.until(lambda: "lost, silent" in watched.text())

    watch(source, act, (80, 24))


@pytest.mark.parametrize(
    ("size", "said"),
    [((80, 24), "lateness, worst of 8 hosts x 9 steps"), ((160, 50), "the worst of 4 hosts and 5 steps a cell")],
)
def test_where_rows_run_out_one_is_a_node_or_several(size: tuple[int, int], said: str) -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown(said)
        marked = [line for line in watched.text().partition(said)[2].split("\n") if "▲" in line or "!" in line]
        assert any(line.split()[0].strip("▲!") == "n97" for line in marked), "the host of the straggler"

    watch(Fixed(THOUSAND), act, size)


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("16-23", list(range(16, 24))),
        ("node12 ", [*range(96, 104), *range(960, 1024)]),
        ("lost", [5]),
        ("stragg", [777]),
        ("3 1020-", [3, 1020, 1021, 1022, 1023]),
    ],
)
def test_ranks_hosts_states_and_findings_can_be_asked_for(typed: str, expected: list[int]) -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("slash", *(NAMES.get(letter, letter) for letter in typed), "enter")
        assert sorted(watched.rows()) == expected
        await watched.until_shown(f"{len(expected)} of 1,024")
        await watched.press("escape")
        assert len(watched.rows()) == 1024

    watch(Fixed(THOUSAND), act, (120, 34))


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("99999", "no rank matches; / esc drops the filter"),
        ("7-3", "7-3 ends before it begins"),
        ("nowhere", "no host, state or finding is called 'nowhere'"),
        ("[*(", "the filter ends where a word or a comparison is expected"),
    ],
)
def test_a_filter_that_matches_nobody_or_makes_no_sense_says_so(typed: str, said: str) -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.pilot.press("slash")
        await watched.press(*(NAMES.get(letter, letter) for letter in typed))
        await watched.until_shown(said)
        await watched.press("escape")
        assert len(watched.rows()) == 1024

    watch(Fixed(THOUSAND), act, (80, 24))
