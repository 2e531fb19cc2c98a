"""The line in which a filter is typed: what is in force meanwhile, what it says, and in the smallest terminal."""

from __future__ import annotations

import pytest

from tests.tui.test_habits import KEYS, type_filter
from tests.tui.watched import STRAGGLER, Fixed, Watched, watch


@pytest.mark.parametrize("before", ["", "node1"])
@pytest.mark.parametrize("wrong", ["host=node0 and (late>5", "late>10msx", "lost los"])
def test_no_part_of_a_filter_that_is_not_understood_is_in_force(before: str, wrong: str) -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        shown = watched.rows()
        if before:
            await type_filter(watched, before)
            await watched.press("enter")
            shown = watched.rows()
            await watched.press("slash", *(["backspace"] * len(before)))
            assert len(watched.rows()) == 8, "an empty filter is understood"
            await watched.press(*(KEYS.get(letter, letter) for letter in wrong))
        else:
            await type_filter(watched, wrong)
        assert watched.app.picture.wanted == before
        assert watched.rows() == shown
        if not wrong.endswith("los"):  # which is the beginning of a state, and so a filter, once it is finished
            await watched.press("enter")
            assert watched.app.picture.wanted == before
            assert "msx" in watched.text() or "a bracket is not closed" in watched.text()

    watch(Fixed(STRAGGLER), act)


def test_enter_says_what_is_wrong_even_while_a_word_is_offered() -> None:
    async def act(watched: Watched) -> None:
        await type_filter(watched, "lat")
        await watched.until_shown("tab: late")
        await watched.press("enter")
        await watched.until_shown("no host, state or finding is called 'lat'")

    watch(Fixed(STRAGGLER), act)


@pytest.mark.parametrize("view", ["1", "2", "3", "5"])
def test_a_filter_can_be_typed_in_the_smallest_terminal(view: str) -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press(view, "slash", *"node0")
        lines = watched.text().split("\n")
        assert "too small" not in watched.text()
        assert len(lines) == 12
        assert "node0" in lines[-2]
        assert "enter keep the filter" in lines[-1]
        assert any(line.startswith("─ ") for line in lines), "a panel"

    watch(Fixed(STRAGGLER), act, (40, 12))
