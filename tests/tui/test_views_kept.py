"""What views share and keep: the chosen rank, their sort, cursor, metric and the panel that is alone."""

from __future__ import annotations

import gc
import re
from dataclasses import replace

import pytest

from ddpmon.snapshot import Finding, ReplayView, Snapshot
from ddpmon.tui.screens.findings_screen import FindingsScreen
from ddpmon.tui.screens.host_screens import HostScreen, HostsScreen
from ddpmon.tui.screens.overview import Overview
from ddpmon.tui.screens.rank_screen import RankScreen
from ddpmon.tui.screens.timeline_screen import TimelineScreen
from ddpmon.tui.theme import LIGHT
from ddpmon.tui.widgets.virtual_table import RankTable
from tests.tui.made_runs import Made, snapshot
from tests.tui.test_app import _backgrounds
from tests.tui.test_overview import hanging
from tests.tui.test_views import LATE, SHOWN, timed
from tests.tui.watched import Fixed, Watched, watch


def under_cursor(watched: Watched) -> int | None:
    screen = watched.app.screen
    assert isinstance(screen, Overview | TimelineScreen)
    return screen.table.rank


def test_a_rank_that_is_chosen_in_one_view_is_chosen_in_all() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("2", "j", "j")
        chosen = under_cursor(watched)
        assert chosen not in (None, watched.rows()[0])
        await watched.press("1")
        assert under_cursor(watched) == chosen, "from the timeline to the overview"
        await watched.press("j")
        chosen = under_cursor(watched)
        await watched.press("2")
        assert under_cursor(watched) == chosen, "and back"
        await watched.press("5")
        findings = watched.app.screen
        assert isinstance(findings, FindingsScreen)
        assert findings.finding is not None
        assert chosen in findings.finding.ranks, "the finding of the rank"
        await watched.press("home", "enter")
        assert isinstance(watched.app.screen, RankScreen)
        assert watched.app.screen.rank == 11
        await watched.press("2")
        assert under_cursor(watched) == 11, "a finding's rank"
        await watched.press("3")
        assert isinstance(watched.app.screen, HostsScreen)
        assert watched.app.screen.table.chosen == 1, "its host"
        await watched.press("enter", "k", "enter")
        assert isinstance(watched.app.screen, RankScreen)
        assert watched.app.screen.rank == 10, "the cursor of the host was on rank 11"
        await watched.press("j", "escape")
        assert isinstance(watched.app.screen, HostScreen)
        await watched.press("1")
        assert under_cursor(watched) == watched.app.links.chosen
        await watched.press("home", "2")
        assert under_cursor(watched) == watched.rows()[0], "the first row again, whoever that is"

    watch(Fixed(timed(SHOWN)), act, (160, 50))


@pytest.mark.parametrize(
    "keys", [(), ("G", "P"), ("P", "g"), ("P",), ("r",), ("slash", "2", "0", "enter"), ("G", "r", "0", "W")]
)
def test_hosts_open_at_the_rank_under_the_cursor_and_the_timeline_at_the_chosen_one(keys: tuple[str, ...]) -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press(*keys)
        rank = under_cursor(watched)
        assert rank is not None
        await watched.press("3")
        assert isinstance(watched.app.screen, HostsScreen)
        assert watched.app.screen.table.chosen == rank // 8
        chosen = watched.app.links.chosen
        await watched.press("2")
        worst = watched.app.screen.query_one(RankTable).view.order[0]
        assert under_cursor(watched) == (worst if chosen is None else rank)
        await watched.press("1")
        assert under_cursor(watched) == rank
        assert watched.app.links.chosen == chosen, "to open a view chooses no rank"

    watch(Fixed(snapshot(Made(ranks=64, straggler=42, per_node=8, gpu=True))), act, (160, 50))


@pytest.mark.parametrize("keys", [("k",), ("g",), ("home",), ("enter", "escape"), ()])
def test_a_move_to_the_row_where_the_cursor_is_chooses_the_rank_there(keys: tuple[str, ...]) -> None:
    source = Fixed(snapshot(Made(ranks=8, straggler=5)))

    async def act(watched: Watched) -> None:
        await watched.until_shown("+41 ms")
        await watched.press(*keys)
        if not keys:
            await watched.pilot.click(watched.app.screen.query_one(RankTable), offset=(4, 2))
        source.shown = snapshot(Made(ranks=8, straggler=5, lost=(7,)))
        await watched.until(lambda: watched.rows()[0] == 7)
        assert under_cursor(watched) == 5
        await watched.press("0")
        assert under_cursor(watched) == 7, "the worst again"

    watch(source, act)


def test_the_cursor_does_not_leave_a_chosen_rank_while_the_order_changes() -> None:
    source = Fixed(snapshot(Made(ranks=8, straggler=5, gpu=True)))

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("O", "g")
        rank, first = under_cursor(watched), watched.rows()[0]
        assert rank == first
        ranks = source.shown.ranks
        assert ranks is not None
        loss = ranks.loss.copy()
        loss[[first, 2]] = 0.0, 100.0
        source.shown = replace(source.shown, ranks=replace(ranks, loss=loss))
        await watched.until(lambda: watched.rows()[0] == 2)
        assert under_cursor(watched) == rank

    watch(source, act)


def test_a_host_that_is_chosen_is_that_of_the_rank_in_all_views() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("3", "G")
        hosts = watched.app.screen
        assert isinstance(hosts, HostsScreen)
        host = hosts.table.chosen
        assert host == 7
        await watched.press("1")
        assert (under_cursor(watched) or 0) // 8 == host
        await watched.press("3")
        assert hosts.table.chosen == host
        await watched.press("enter", "j", "2")
        assert under_cursor(watched) == 8 * host + 1, "the second rank of the host"
        await watched.press("3", "g", "1")
        assert under_cursor(watched) == 42

    watch(Fixed(snapshot(Made(ranks=64, straggler=42, per_node=8))), act, (160, 50))


def test_the_chosen_rank_survives_a_filter() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("j", "j", "j")
        chosen = under_cursor(watched)
        await watched.press("slash", "0", "minus", "1", "5", "enter")
        assert under_cursor(watched) == chosen
        await watched.press("slash", *(["backspace"] * 4), "1", "1", "enter")
        assert under_cursor(watched) == 11
        await watched.press("escape")
        assert under_cursor(watched) == chosen, "it is under the cursor again once it is shown"

    watch(Fixed(timed(SHOWN)), act, (120, 34))


def test_a_chosen_rank_of_a_run_that_stands_still_is_in_its_group() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("where the ranks are")
        assert under_cursor(watched) == 2, "the culprit"
        watched.app.links.open_rank(40)
        await watched.until_shown("rank 40 of 64")
        await watched.press("escape")
        assert under_cursor(watched) == 0, "the first rank of its group"
        assert watched.app.links.chosen == 40

    watch(Fixed(hanging()), act)


def test_each_view_is_as_it_was_left() -> None:
    shown = timed(replace(SHOWN, findings=(*SHOWN.findings, LATE)))

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("3", "v", "C", "end", "5", "j")
        findings = watched.app.screen
        assert isinstance(findings, FindingsScreen)
        place = findings.listing.view.cursor
        assert place > 0
        await watched.press("2", "f")
        await watched.until(lambda: "─ ranks" not in watched.text())
        await watched.press("3")
        hosts = watched.app.screen
        assert isinstance(hosts, HostsScreen)
        assert (hosts.table.metric, hosts.table.view.sort) == ("power", "cpu%")
        assert hosts.table.view.cursor == len(hosts.table.view.order) - 1
        await watched.press("5")
        assert findings.listing.view.cursor == place
        await watched.press("2")
        await watched.until_shown("─ timeline")
        assert "─ ranks" not in watched.text(), "its first panel is still alone"
        await watched.press("1", "enter", "v", "escape", "j", "enter")
        await watched.until_shown("─ lateness, ms")
        await watched.pilot.resize_terminal(100, 30)
        await watched.press("5")
        await watched.until(lambda: {len(line) for line in watched.text().split("\n")} == {100})
        watched.app.theme = "ddpmon-light"
        await watched.press("3")
        await watched.until(lambda: _backgrounds(watched) >= {LIGHT.background})
        await watched.press("2")
        await watched.until(lambda: _backgrounds(watched) == {LIGHT.background, *_raised(watched)})

    watch(Fixed(shown), act, (80, 30))


def _raised(watched: Watched) -> set[str]:
    return {LIGHT.raised} & _backgrounds(watched)


def test_the_panels_follow_the_cursor_without_another_picture() -> None:
    source = Fixed(snapshot(Made(ranks=8, straggler=5)))

    async def act(watched: Watched) -> None:
        await watched.until_shown("rank 5 against the others")
        source.answering.clear()
        await watched.press("j")
        rank = under_cursor(watched)
        await watched.pilot.pause()
        assert f"rank {rank} against the others" in watched.text()
        assert f"lateness of rank {rank}" in watched.text()
        source.answering.set()

    watch(source, act, (160, 50), interval=10)


@pytest.mark.parametrize("size", [(80, 24), (160, 50), (40, 12)])
def test_the_cursor_of_the_findings_stays_in_sight(size: tuple[int, int]) -> None:
    lasting = [replace(LATE, ranks=(rank,), id=rank + 1) for rank in range(14)]
    over = [replace(each, id=each.id + 100, cleared_at_step=1_100) for each in lasting]

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("5")
        for key in ("end", "k", "pageup", "pagedown", "j", "home"):
            await watched.press(key)
            assert sum(line.startswith("▸") for line in watched.text().split("\n")) == 1, key

    for findings in ([*lasting, *over], over):
        watch(Fixed(replace(SHOWN, findings=tuple[Finding, ...](findings))), act, size, interval=10)


def test_the_key_lines_name_copying_marking_and_the_way_back_to_the_live_run() -> None:
    rewound = ReplayView(10.0, 60.0, 1_790_000_000.0, False, 1.0, True, True, ())

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.until(lambda: "m c compare" in watched.text())
        await watched.press("5")
        await watched.until_shown("y Y copy")
        await watched.pilot.resize_terminal(80, 24)
        await watched.until(lambda: "y Y copy" in watched.text().split("\n")[-1])

    async def behind(watched: Watched) -> None:
        await watched.until(lambda: "end live" in watched.text().split("\n")[-1])
        assert "? help" in watched.text()

    watch(Fixed(SHOWN), act, (170, 50))
    watch(Fixed(replace(SHOWN, replay=rewound)), behind, (80, 24))


def test_esc_leaves_the_heat_map_and_then_drops_the_filter() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("rank x step")
        await watched.press("slash", *"node1", "enter", "tab")
        await watched.until_shown("esc table")
        await watched.press("escape")
        assert isinstance(watched.app.screen.focused, RankTable)
        assert watched.app.picture.wanted == "node1"
        await watched.press("escape")
        assert watched.app.picture.wanted == ""

    watch(Fixed(SHOWN), act, (120, 34))


@pytest.mark.parametrize("key", ["P", "L", "full_stop", "comma", "r"])
def test_the_cursor_follows_the_rank_in_every_sort(key: str) -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.until(lambda: len(watched.rows()) > 0)
        first = watched.rows()[0]
        await watched.press(key)
        assert under_cursor(watched) == watched.rows()[0], "nobody is chosen: the first row, whoever that is"
        await watched.press("0", "g", "j", "j", "j")
        chosen = under_cursor(watched)
        assert chosen != first
        await watched.press(key)
        assert under_cursor(watched) == chosen == watched.app.links.chosen
        assert f"rank {chosen}" in watched.text()

    watch(Fixed(timed(SHOWN)), act, (160, 50))


@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
def test_f_shows_one_panel_of_the_overview_after_the_other_alone(size: tuple[int, int]) -> None:
    parts = ("─ ranks", "arrows cell", "─ step time, ms")

    async def act(watched: Watched) -> None:
        await watched.until_shown("─ lateness, ")
        for alone in parts:
            await watched.press("f")
            await watched.until(lambda here=alone: [part for part in parts if part in watched.text()] == [here])  # type: ignore[misc]
            assert "rank 11" in watched.text(), "the verdict stays"
            assert len(watched.text().split("\n")) == size[1]
        await watched.press("f")
        await watched.until_shown("─ lateness, ")
        await watched.press("f", "f")
        await watched.until_shown("arrows cell")
        await watched.press("right", "escape")
        await watched.until_shown("─ ranks")
        focused = watched.app.screen.focused
        assert focused is not None
        assert focused.display

    watch(Fixed(SHOWN), act, size)


def test_a_filter_that_is_set_in_a_view_holds_for_the_ranks_that_j_and_k_go_through() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("2", "slash", *"rank=8-11", "enter", "enter")
        screen = watched.app.screen
        assert isinstance(screen, RankScreen)
        gone_through = [screen.rank]
        for key in "jjjjj":
            await watched.press(key)
            gone_through.append(screen.rank)
        assert gone_through == [11, 8, 9, 10, 10, 10]
        await watched.press("1")
        assert under_cursor(watched) == 10

    watch(Fixed(timed(SHOWN)), act, (160, 50))


def test_no_view_that_is_hidden_holds_the_picture_that_it_showed_last() -> None:
    shown = replace(SHOWN, findings=(LATE,))

    def pictures() -> int:
        """Different pictures of the run that are alive; each holds all that the ranks and hosts told then."""
        gc.collect()
        alive = [each for each in gc.get_objects() if isinstance(each, Snapshot) and each.run is shown.run]
        return len({each.taken_monotonic for each in alive})

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        before = pictures()
        for view in ("2", "3", "5", "1", "enter", "4"):
            read = source.ticks
            await watched.press(view)
            await watched.until(lambda read=read: source.ticks > read + 1)  # type: ignore[misc]
            await watched.pilot.pause()
        assert pictures() <= before + 1, "one more may be on its way"

    source = Fixed(shown)
    watch(source, act, (160, 50))


def test_the_timeline_opens_with_its_first_rows_and_the_chosen_rank_last() -> None:
    shown = timed(snapshot(Made(ranks=16, per_node=8, straggler=5)))

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("G")
        chosen = under_cursor(watched)
        await watched.press("2")
        await watched.until_shown(" of 16; worst first")
        rows = ranks_in_sight(watched)
        assert rows[0] == "5", "the worst one"
        assert rows[-1] == f"▸{chosen}"
        table = watched.app.screen.query_one(RankTable)
        await watched.pilot.click(table, offset=(4, table.size.height - 1))
        assert under_cursor(watched) == chosen
        await watched.press("k")
        assert ranks_in_sight(watched)[-2] == f"▸{table.view.order[-2]}", "it scrolls once the cursor is moved"
        assert "5" not in ranks_in_sight(watched)

    watch(Fixed(shown), act, (80, 24))


def ranks_in_sight(watched: Watched) -> list[str]:
    """The numbers of the ranks in the table's rows, with the sign of the cursor."""
    table = watched.app.screen.query_one(RankTable)
    lines = watched.text().split("\n")[table.region.y + 2 : table.region.bottom]
    return [re.sub(r"[ ▲]", "", line[:9]) for line in lines]
