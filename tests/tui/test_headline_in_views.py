"""The headline in the views: every view that does not tell it itself has it in its second line."""

from __future__ import annotations

import pytest

from ddpmon.tui.draw.verdict_lines import headline_line
from ddpmon.tui.screens.findings_screen import FindingsScreen
from ddpmon.tui.theme import make_look
from ddpmon.tui.view_state import ViewState
from tests.tui.made_runs import HANG, NOTES, Made, snapshot
from tests.tui.test_views import SHOWN, text_of, timed
from tests.tui.watched import Fixed, Watched, watch

PARTS = (" CRIT ", "rank 11", "node1", "late +41 ms", "input", "812")
ELSEWHERE = [
    ("2",),
    ("4",),
    ("j", "enter"),
    ("3", "j", "enter"),
    ("j", "m", "j", "m", "c"),
    ("slash", *"rank=1", "enter", "5"),
]
TOLD = [("3",), ("3", "enter"), ("5",), ("enter",), ("m", "j", "m", "c")]


@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
@pytest.mark.parametrize("keys", ELSEWHERE)
def test_the_second_line_has_the_headline_of_another_rank(keys: tuple[str, ...], size: tuple[int, int]) -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press(*keys)
        await watched.until(lambda: all(part in watched.text().split("\n")[1] for part in PARTS))

    watch(Fixed(timed(SHOWN)), act, size)


@pytest.mark.parametrize("keys", TOLD)
def test_a_view_that_tells_it_itself_does_not_say_it_twice(keys: tuple[str, ...]) -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press(*keys)
        await watched.until(lambda: len(watched.app.screen_stack) > 1)
        await watched.until_shown("rank 11")
        assert " CRIT " not in watched.text().split("\n")[1]

    watch(Fixed(timed(SHOWN)), act, (80, 24))


def test_a_click_on_the_headline_opens_it() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("2")
        await watched.until(lambda: "rank 11" in watched.text().split("\n")[1])
        await watched.pilot.click(offset=(30, 1))
        await watched.until(lambda: isinstance(watched.app.screen, FindingsScreen))

    watch(Fixed(timed(SHOWN)), act, (80, 24))


@pytest.mark.parametrize("width", [40, 80, 160])
def test_a_sentence_stands_in_one_line_and_is_cut_behind_a_word(width: int) -> None:
    made = snapshot(Made(ranks=16, findings=(HANG, *NOTES)))
    line = text_of([headline_line(ViewState(made, make_look()), HANG, width)])[0]
    said = line[len("  HANG   ") :].rstrip()
    assert line.startswith("  HANG  ")
    assert len(line) == width
    assert said == HANG.summary or HANG.summary.startswith(said.removesuffix(" …"))


def test_without_a_headline_there_is_no_line() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("2")
        await watched.until_shown("─ timeline")
        assert watched.text().split("\n")[1].startswith("─ timeline")

    watch(Fixed(timed(snapshot(Made(ranks=16)))), act, (80, 24))
