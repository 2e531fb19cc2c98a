"""Where a dashboard begins: where it is asked to, else where the last one on the same run was left."""

from __future__ import annotations

from dataclasses import replace

from ddpmon.tui.preferences import Session
from tests.tui.made_runs import Made, snapshot
from tests.tui.test_habits import type_filter
from tests.tui.watched import STRAGGLER, Fixed, Watched, watch


def test_it_begins_where_it_is_asked_to() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("─ hosts ─")
        await watched.press("escape")
        await watched.until_shown("by barrier")
        await watched.until_shown("filter node1: 4 of 8")

    watch(Fixed(STRAGGLER), act, view="hosts", sort="barrier", filter="node1")


def test_it_begins_where_the_last_one_was_left() -> None:
    async def leave(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("R", "R")
        await type_filter(watched, "node0")
        await watched.press("enter", "5")
        await watched.press("q")
        await watched.until(lambda: not watched.app.is_running)

    left = watch(Fixed(STRAGGLER), leave).session
    assert left == Session("findings", "rank", True, "node0")

    async def come_back(watched: Watched) -> None:
        await watched.until_shown("filter node0: ")
        await watched.press("escape")
        assert watched.rows() == [3, 2, 1, 0]

    watch(Fixed(STRAGGLER), come_back, remembered={"r1": left}.get)


def test_metrics_the_order_of_the_hosts_and_the_theme_come_back() -> None:
    async def leave(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("v")
        await watched.press("3")
        await watched.press("v", "H", "r")
        watched.app.action_choose_theme("light")
        await watched.press("q")
        await watched.until(lambda: not watched.app.is_running)

    gpus = snapshot(Made(ranks=8, gpu=True))
    left = watch(Fixed(gpus), leave).session
    kept = Session(hosts_metric="power", hosts_sort="host", hosts_reverse=True)
    assert left == replace(kept, view="hosts", heat="work", theme="light")

    async def come_back(watched: Watched) -> None:
        await watched.until_shown("cells: GPU power")
        await watched.until_shown("by host, reversed")
        assert watched.app.theme == "ddpmon-light"
        assert watched.app.heat_metric == "work"
        await watched.press("q")
        await watched.until(lambda: not watched.app.is_running)

    assert watch(Fixed(gpus), come_back, remembered={"r1": left}.get).session == left

    async def prefer(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        assert watched.app.theme == "ddpmon-colour-blind"
        await watched.press("q")
        await watched.until(lambda: not watched.app.is_running)

    preferred = watch(Fixed(gpus), prefer, remembered={"r1": left}.get, theme="colour-blind", view="overview")
    assert preferred.session == left, "the overview was a preference"


def test_what_only_a_preference_has_chosen_is_not_where_one_left_off() -> None:
    left = Session("hosts", "rank", True, "node0")
    keys: tuple[str, ...] = ()

    async def act(watched: Watched) -> None:
        await watched.until_shown("filter node1: ")
        await watched.press(*keys, "q")
        await watched.until(lambda: not watched.app.is_running)

    def session(remembered: dict[str, Session]) -> Session | None:
        chosen = {"view": "overview", "sort": "barrier", "filter": "node1"}
        return watch(Fixed(STRAGGLER), act, remembered=remembered.get, **chosen).session  # type: ignore[arg-type]

    assert session({"r1": left}) == left
    assert session({}) == Session()
    keys = ("r", "escape", "5")
    assert session({"r1": left}) == Session("findings", "barrier", True, "")
