"""A click on a key, in the key line or in brackets, does what the key does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpmon.tui.screens.base import BaseScreen
from ddpmon.tui.screens.overview import Overview
from tests.tui.test_views import LATE, SHOWN
from tests.tui.watched import Fixed, Watched, watch


def view_of(watched: Watched) -> str:
    screen = watched.app.screen
    assert isinstance(screen, BaseScreen)
    return screen.view


async def click_on(watched: Watched, words: str, line: int | None = None, into: int = 0) -> None:
    """Click on a cell of these words, in a line of the screen or in the first that has them."""
    lines = watched.text().split("\n")
    at = next(place for place, text in enumerate(lines) if words in text) if line is None else line % len(lines)
    await watched.pilot.click(offset=(lines[at].index(words) + into, at))
    await watched.pilot.pause()


@pytest.mark.parametrize(
    ("words", "into", "view"), [("3 hosts", 0, "hosts"), ("3 hosts", 4, "hosts"), ("? help", 0, "help")]
)
def test_a_click_on_the_key_line_presses_the_key(words: str, into: int, view: str) -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await click_on(watched, words, line=-1, into=into)
        await watched.until(lambda: view_of(watched) == view)
        await click_on(watched, "esc", line=-1)
        await watched.until(lambda: isinstance(watched.app.screen, Overview))

    watch(Fixed(SHOWN), act, (160, 50))


def test_of_two_keys_beside_each_other_the_one_that_is_clicked_is_pressed() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        overview = watched.app.screen
        assert isinstance(overview, Overview)
        await click_on(watched, ", . sort", line=-1, into=2)
        await watched.until(lambda: overview.table.view.sort != "worst")
        await click_on(watched, ", . sort", line=-1)
        await watched.until(lambda: overview.table.view.sort == "worst")

    watch(Fixed(SHOWN), act, (160, 50))


def test_a_click_on_a_key_in_brackets_opens_what_it_names_and_foreign_brackets_do_nothing() -> None:
    findings = tuple(replace(LATE, ranks=(rank,), id=rank + 1, cause="list[q]") for rank in range(9))

    async def act(watched: Watched) -> None:
        await watched.until_shown("[5]")
        await click_on(watched, "[q]")
        await click_on(watched, "[5]", into=1)
        await watched.until(lambda: view_of(watched) == "findings")

    watch(Fixed(replace(SHOWN, findings=findings)), act, (160, 50))
