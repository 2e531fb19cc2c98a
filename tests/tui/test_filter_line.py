"""The line in which a filter is typed: what is in force meanwhile, what it says, and in the smallest terminal."""

from __future__ import annotations

from dataclasses import replace

import pytest
from textual.widgets import Input

from ddpmon.tui.filter.filter_fields import STATES
from ddpmon.tui.lines import cells_of
from ddpmon.tui.screens.rank_screen import RankScreen
from ddpmon.tui.screens.run_screen import RunScreen
from ddpmon.tui.theme import Look
from ddpmon.tui.widgets import filter_bar
from tests.tui.made_runs import Made, snapshot
from tests.tui.test_habits import KEYS, type_filter
from tests.tui.test_views import LATE, SHOWN
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


@pytest.mark.parametrize("width", [80, 81, 82, 83, 90])
def test_what_there_is_is_listed_in_whole_words(width: int) -> None:
    async def act(watched: Watched) -> None:
        await type_filter(watched, "nowhere")
        await watched.until_shown("no host, state or finding is called 'nowhere'")
        line = next(line for line in watched.text().split("\n") if "'nowhere'" in line)
        listed, _, rest = line.partition(": there are ")[2].partition(" …")
        assert not rest.strip()
        assert {*listed.split(", ")} <= {*STATES, "node0", "node1"}

    watch(Fixed(STRAGGLER), act, (width, 24))


@pytest.mark.parametrize(("size", "said"), [((120, 34), 3), ((80, 24), 2), ((200, 60), 4)])
def test_every_panel_about_ranks_says_that_none_matches(size: tuple[int, int], said: int) -> None:
    async def act(watched: Watched) -> None:
        await type_filter(watched, "late>999")
        await watched.press("enter")
        await watched.until(lambda: watched.text().count("no rank matches; / esc") == said)
        assert "lateness of rank" not in watched.text()
        for view in ("2", "3", "4", "5"):
            await watched.press(view)
            await watched.until_shown("matches; / esc drops the filter")
        await watched.press("1", "escape")
        assert len(watched.rows()) == 8

    watch(Fixed(STRAGGLER), act, size)


def test_the_only_host_says_that_the_filter_fits_none_of_its_ranks() -> None:
    async def act(watched: Watched) -> None:
        await type_filter(watched, "late>999")
        await watched.press("enter", "3")
        await watched.until_shown("no rank matches; / esc drops the filter")
        await watched.press("enter")
        await watched.until(lambda: isinstance(watched.app.screen, RankScreen))
        assert "rank 0 " in watched.text(), "the cursor was on its line"

    watch(Fixed(snapshot(Made(ranks=4, straggler=3))), act)


def test_tab_completes_what_is_common_and_then_goes_through_the_candidates() -> None:
    async def act(watched: Watched) -> None:
        await type_filter(watched, "host=n")
        for key, typed, hint in (
            ("tab", "host=node", " tab: node0  node1 "),
            ("tab", "host=node0", " tab:▸node0  node1 "),
            ("tab", "host=node1", " tab: node0 ▸node1 "),
            ("tab", "host=node0", " tab:▸node0  node1 "),
            ("shift+tab", "host=node1", " tab: node0 ▸node1 "),
        ):
            await watched.press(key)
            await watched.until_shown(hint)
            assert watched.text().split("\n")[-2].strip() == typed, "nothing is offered behind a whole word"
        assert watched.rows() == [5, 4, 6, 7]
        await watched.press("backspace", "shift+tab")
        assert watched.text().split("\n")[-2].strip() == "host=node1", "back begins at the last one"

    watch(Fixed(STRAGGLER), act)


@pytest.mark.parametrize("typed", ["ho", "host"])
def test_tab_completes_the_field_of_a_word_with_its_sign_and_offers_its_words_next(typed: str) -> None:
    async def act(watched: Watched) -> None:
        await type_filter(watched, typed)
        for value, hint in (("host=", ": node0 "), ("host=node", ": node0 "), ("host=node0", ":▸node0 ")):
            await watched.press("tab")
            await watched.until_shown(f" tab{hint} node1 ")
            assert watched.app.screen.query_one("#filter", Input).value == value
        assert watched.rows() == [0, 1, 2, 3]

    watch(Fixed(STRAGGLER), act)


def test_the_candidate_that_is_taken_is_in_sight_however_many_there_are() -> None:
    hosts = tuple(f"node{number:04}" for number in range(64))

    async def act(watched: Watched) -> None:
        await type_filter(watched, "host=node00")
        await watched.press("shift+tab")
        await watched.until_shown("node0062 ▸node0063")
        await watched.until_shown("tab: … ")
        await watched.press("tab")
        await watched.until_shown("▸node0000  node0001")

    watch(Fixed(snapshot(Made(ranks=64, per_node=1, hosts=hosts))), act, (80, 24))


def test_of_many_candidates_only_those_in_sight_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = tuple(f"node{number:04}" for number in range(512))
    measured, cleaned = list[str](), list[str]()
    clean = Look.clean

    def noted(look: Look, text: str) -> str:
        cleaned.append(text)
        return clean(look, text)

    def measure(text: str) -> int:
        measured.append(text)
        return cells_of(text)

    async def act(watched: Watched) -> None:
        await type_filter(watched, "host=node0")
        monkeypatch.setattr(filter_bar, "cells_of", measure)
        monkeypatch.setattr(Look, "clean", noted)
        await watched.press("shift+tab")
        await watched.until_shown("node0510 ▸node0511")
        assert 8 <= len(measured) <= 100
        assert "node0511" in cleaned
        assert "node0200" not in cleaned

    watch(Fixed(snapshot(Made(ranks=512, per_node=1, hosts=hosts))), act, (80, 24))


@pytest.mark.parametrize("view", ["1", "2", "3", "4", "5"])
def test_enter_is_offered_only_for_what_is_understood(view: str) -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press(view, "slash", *"node0")
        assert watched.text().split("\n")[-1].startswith(" enter keep the filter   tab complete   esc drop it")
        await watched.press("equals_sign", *"x")
        assert watched.text().split("\n")[-1].startswith(" tab complete   esc drop it")
        await watched.press("backspace", "backspace")
        assert watched.text().split("\n")[-1].startswith(" enter keep the filter")

    watch(Fixed(STRAGGLER), act)


@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
def test_no_toast_covers_what_is_typed(size: tuple[int, int]) -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("y")
        await watched.until_shown("copied: rank 5")
        await type_filter(watched, "late>1 lost")
        *_, above, typed, keys = watched.text().split("\n")
        assert "copied: rank 5" in watched.text()
        assert above.startswith(" late>10   late>5%")
        assert typed.startswith(" late>1 lost")
        assert keys.startswith(" enter keep the filter")

    watch(Fixed(STRAGGLER), act, size)


@pytest.mark.parametrize("view", ["1", "2", "3", "4", "5"])
def test_a_filter_can_be_typed_in_the_smallest_terminal(view: str) -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press(view, "slash", *"node0")
        lines = watched.text().split("\n")
        assert "needs 40x12" not in watched.text()
        assert len(lines) == 12
        assert "node0" in lines[-2]
        assert "enter keep the filter" in lines[-1]
        assert any(line.startswith("─ ") for line in lines), "a panel"

    watch(Fixed(STRAGGLER), act, (40, 12))


def test_the_hours_lost_by_cause_follow_the_filter_and_the_view_says_that_all_else_does_not() -> None:
    shown = replace(SHOWN, findings=(*SHOWN.findings, LATE))

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("4")
        await watched.until_shown("lost: rank 3")
        assert "lost together" in watched.text()
        assert "of the whole run" not in watched.text()
        await watched.press("slash", *"node1", "enter")
        await watched.until_shown("filter node1: 2 of 3 ─")
        assert "All else in this view is of the whole run." in watched.text()
        assert "lost: rank 11" in watched.text()
        assert "lost: rank 3" not in watched.text()
        assert isinstance(watched.app.screen, RunScreen)
        assert watched.app.screen.csv().count("lost: ") == 2

    watch(Fixed(shown), act, (160, 50))


@pytest.mark.parametrize(("width", "named"), [(60, "late, rank"), (80, "gpu, work, wait"), (160, "loss, step")])
def test_an_unknown_field_is_answered_with_as_many_fields_as_the_line_has_room_for(width: int, named: str) -> None:
    async def act(watched: Watched) -> None:
        await type_filter(watched, "xyz>5")
        await watched.until_shown("there is no field 'xyz'")
        line = next(line for line in watched.text().split("\n") if "'xyz'" in line)
        assert named in line
        assert len(line.rstrip()) > width - 12

    watch(Fixed(STRAGGLER), act, (width, 24))


def test_the_keys_of_a_long_run_view_are_back_once_the_filter_is_kept() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("4", "slash", *"node1", "enter")
        keys = " esc back  / esc drop filter  j k scroll  1-5 views"
        await watched.until(lambda: watched.text().split("\n")[-1].startswith(keys))

    watch(Fixed(SHOWN), act, (80, 24))


@pytest.mark.parametrize("width", [80, 160])
@pytest.mark.parametrize(
    ("to", "keys"),
    [
        ([], "esc"),
        (["tab"], "/ esc"),
        (["f"], "/ esc"),
        (["2"], "/ esc"),
        (["3"], "/ esc"),
        (["4"], "/ esc"),
        (["5"], "/ esc"),
        (["3", "enter"], "1 / esc"),
        (["enter"], "1 / esc"),
        (["f", "enter"], "1 / esc"),
        (["m", "j", "m", "c"], "1 / esc"),
    ],
)
def test_the_key_line_of_every_view_says_how_to_drop_the_filter(to: list[str], keys: str, width: int) -> None:
    async def act(watched: Watched) -> None:
        await type_filter(watched, "node1")
        await watched.press("enter", *to)
        await watched.until_shown(f"{keys} drop filter")
        assert watched.app.picture.wanted == "node1"
        await watched.press(*(KEYS.get(key, {"esc": "escape"}.get(key, key)) for key in keys.split()))
        await watched.until(lambda: not watched.app.picture.wanted)
        await watched.until(lambda: "drop filter" not in watched.text())

    watch(Fixed(STRAGGLER), act, (width, 40))
