"""The palette: our commands, each with its key, and none of Textual's."""

from __future__ import annotations

import pytest
from textual.app import SystemCommand

from ddpmon.tui.preferences import UserCommand
from ddpmon.tui.screens.findings_screen import FindingsScreen
from tests.tui.made_runs import Made, snapshot
from tests.tui.watched import STRAGGLER, Fixed, Watched, watch


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("power", ("Heat-map: GPU power", "Sort by power")),
        ("export", ("Export the view",)),
        ("mono", ("greys; shades tell",)),
    ],
)
def test_the_palette_finds_metrics_orders_and_the_export(words: str, shown: tuple[str, ...]) -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("ctrl+p", *words)
        for title in shown:
            await watched.until_shown(title)

    watch(Fixed(snapshot(Made(ranks=8, straggler=5, gpu=True))), act)


def test_the_palette_has_each_key_once_in_the_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TMUX", raising=False)

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        assert with_key(watched, "w") == [], "there is no past to report on"
        await watched.press("5")
        await watched.until(lambda: isinstance(watched.app.screen, FindingsScreen))
        assert [each.title for each in with_key(watched, "w")] == ["Write the finding"]
        await watched.press("y")
        await watched.until_shown("OSC 52: w writes")

    watch(Fixed(STRAGGLER), act, (160, 50))


def with_key(watched: Watched, key: str) -> list[SystemCommand]:
    commands = watched.app.get_system_commands(watched.app.screen)
    return [command for command in commands if command.help.startswith(f"{key}   ")]


def test_the_palette_has_our_commands_and_none_of_textuals() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        names = {command.title for command in watched.app.get_system_commands(watched.app.screen)}
        assert {"Filter", "Copy the finding as text", "Theme: light", "Hosts", "Quit", "stack"} <= names
        assert names.isdisjoint({"Keys", "Theme", "Screenshot", "Maximize"})
        await watched.press("ctrl+p", *"hosts")
        await watched.pilot.pause(0.3)
        await watched.press("enter")
        await watched.until_shown("─ hosts ─")

    stack = UserCommand("f5", "stack", ("true",))
    watch(Fixed(STRAGGLER), act, commands=(stack,))


def test_the_palette_opens_in_our_order_and_says_of_each_column_what_it_shows() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("ctrl+p")
        await watched.until_shown("Findings")
        shown = watched.text()
        first = ["Overview", "Timeline", "Hosts", "The run", "Findings"]
        assert [shown.index(title) for title in first] == sorted(shown.index(title) for title in first)
        assert "Copy the finding" in shown
        await watched.press("escape")
        commands = {each.title: each.help for each in watched.app.get_system_commands(watched.app.screen)}
        titles = [*commands]
        marks = ["Overview", "Copy the finding as text", "Filter", "Sort by late", "Write a report", "Zoom in", "Quit"]
        places = [titles.index(title) for title in marks if title in titles]
        assert places == sorted(places)
        assert commands["Sort by late"] == "L   lateness, ms of a step"
        assert commands["Sort by rss (GiB)"] == "M   resident memory, GiB"
        await watched.press("3")
        commands = {each.title: each.help for each in watched.app.get_system_commands(watched.app.screen)}
        sorts = {title: words for title, words in commands.items() if title.startswith("Sort by ")}
        assert sorts["Sort by net/s"] == "T   received and sent, bytes a second"
        assert all(len(words) > 4 for words in sorts.values())

    watch(Fixed(snapshot(Made(ranks=16, per_node=8, straggler=5, gpu=True))), act, (100, 40))
