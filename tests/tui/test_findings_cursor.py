"""The cursor of the findings: which finding it opens at, and the rank that it shares with the other views."""

from __future__ import annotations

from dataclasses import replace

from ddpmon.snapshot import Finding
from ddpmon.tui.screens.findings_screen import FindingsScreen
from ddpmon.tui.screens.overview import Overview
from ddpmon.tui.screens.rank_screen import RankScreen
from tests.tui.test_views import LATE, SHOWN
from tests.tui.watched import Fixed, Watched, watch


def test_the_findings_and_the_other_views_share_the_chosen_rank() -> None:
    """A rank that was chosen in one of them was not the one under the cursor of the other."""

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("5")
        await watched.until_shown("─ rank 11: late +41 ms")
        await watched.press("down")
        await watched.until_shown("─ rank 3: late +80 ms")
        await watched.press("1")
        await watched.until(lambda: isinstance(watched.app.screen, Overview) and watched.app.screen.table.rank == 3)
        await watched.press("up")
        await watched.until(lambda: isinstance(watched.app.screen, Overview) and watched.app.screen.table.rank == 11)
        await watched.press("5")
        await watched.until_shown("─ rank 11: late +41 ms")
        await watched.press("end")
        await watched.until_shown("▲ rank 3 shares its GPU")
        await watched.press("enter", "escape")
        await watched.until(lambda: isinstance(watched.app.screen, FindingsScreen))
        await watched.until_shown("▲ rank 3 shares its GPU")

    shared = Finding("gpu_shared", "warning", "rank 3 shares its GPU", (3,), ("node0",))
    found = SHOWN.findings[0], replace(LATE, cost_pct=1.0), shared
    watch(Fixed(replace(SHOWN, findings=found)), act, (160, 50))


def test_the_findings_open_at_the_one_reached_in_time_and_follow_a_rank_once_a_finding_names_it() -> None:
    late = replace(LATE, cost_pct=1.0)
    over = replace(LATE, id=70, summary="rank 3 was late", cleared_at_step=1_100)
    shown = replace(SHOWN, findings=(SHOWN.findings[0], late, over))
    source = Fixed(replace(SHOWN, findings=()))

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        watched.app.links.choose(3)
        await watched.press("5", "1")
        source.shown = shown
        await watched.until(lambda: len(watched.app.picture.found) == 3)
        assert named(await findings_of(watched)) == (3, None), "no finding named it before"
        await watched.press("end")
        assert named(await findings_of(watched)) == (3, 1_100), "as it was left"
        await watched.press("1")
        watched.app.links.choose(11)
        source.shown = replace(shown, reached=late)
        await watched.until(lambda: watched.app.picture.snapshot.reached is not None)
        assert named(await findings_of(watched)) == (3, None), "the one that was reached in time"

    async def findings_of(watched: Watched) -> FindingsScreen:
        await watched.press("1", "5")
        assert isinstance(watched.app.screen, FindingsScreen)
        return watched.app.screen

    def named(screen: FindingsScreen) -> tuple[int, int | None]:
        assert screen.finding is not None
        return screen.finding.ranks[0], screen.finding.cleared_at_step

    watch(source, act, (160, 50))


def test_a_finding_that_names_the_chosen_rank_keeps_it_and_opens_it() -> None:
    """`enter` went to the first rank of eight, and that was the chosen one then."""
    slow = replace(LATE, kind="slow_node", summary="node1 is late", ranks=tuple(range(8, 16)), nodes=("node1",))

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        watched.app.links.choose(13)
        await watched.press("5", "j", "enter")
        assert isinstance(watched.app.screen, RankScreen)
        assert (watched.app.screen.rank, watched.app.links.chosen) == (13, 13)
        await watched.press("escape", "1")
        assert watched.app.links.chosen == 13

    watch(Fixed(replace(SHOWN, findings=(slow,))), act, (160, 50))
