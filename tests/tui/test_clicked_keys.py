"""A click on a key does what the key does; one on a finding or on a plot opens what is drawn there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpmon.snapshot import Finding
from ddpmon.tui.draw.findings import finding_at, finding_lines
from ddpmon.tui.screens.base import BaseScreen
from ddpmon.tui.screens.findings_screen import FindingsScreen
from ddpmon.tui.screens.overview import Overview
from ddpmon.tui.screens.rank_screen import RankScreen
from ddpmon.tui.theme import make_look
from ddpmon.tui.view_state import ViewState
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


def test_a_click_on_a_key_in_brackets_opens_what_it_names_and_foreign_brackets_press_nothing() -> None:
    findings = tuple(replace(LATE, ranks=(rank,), id=rank + 1, cause="list[q]") for rank in range(9))

    async def act(watched: Watched) -> None:
        await watched.until_shown("[5]")
        await click_on(watched, "[q]")  # of a finding, which is opened
        await watched.until(lambda: view_of(watched) == "findings")
        await watched.press("escape")
        await click_on(watched, "[5]", into=1)
        await watched.until(lambda: view_of(watched) == "findings")

    watch(Fixed(replace(SHOWN, findings=findings)), act, (160, 50))


def found(watched: Watched) -> Finding | None:
    screen = watched.app.screen
    return screen.finding_here if isinstance(screen, FindingsScreen) else None


def test_a_click_on_a_finding_opens_it_in_the_list() -> None:
    findings = tuple(replace(LATE, ranks=(rank,), id=rank + 1) for rank in range(4))

    async def act(watched: Watched) -> None:
        await watched.until_shown("rank 1: late")
        for words, rank in ((" rank 0 ", 0), ("rank 3: late", 3), ("a shared GPU; pid 4242", 0), ("rank 1: late", 1)):
            await click_on(watched, words)
            await watched.until(lambda: view_of(watched) == "findings")
            await watched.until(lambda: getattr(found(watched), "ranks", None) == (rank,))  # noqa: B023
            await watched.press("escape")
            await watched.until(lambda: view_of(watched) == "overview")

    watch(Fixed(replace(SHOWN, findings=findings)), act, (160, 50))


def test_every_line_of_findings_in_full_is_known_for_the_finding_that_it_is_about() -> None:
    findings = (LATE, replace(LATE, ranks=(3,), id=9, summary="3 is it"))
    picture = ViewState(replace(SHOWN, findings=findings), make_look())
    lines = finding_lines(picture, 100, 60)
    owners = [finding_at(picture, 100, 60, y) for y in range(-1, 61)]
    assert [finding for finding in owners if finding is not None] == sorted(filter(None, owners), key=findings.index)
    for finding in findings:
        said = [y for y, line in enumerate(lines) if finding.summary in "".join(part.text for part in line)]
        assert [finding_at(picture, 100, 60, y) for y in said] == [finding]


def test_a_click_on_the_verdict_whose_finding_the_filter_hides_says_so() -> None:
    """The verdict is the run's; the list below it has only what the filter fits."""
    other = replace(LATE, ranks=(3,), id=9)

    async def act(watched: Watched) -> None:
        await watched.until_shown("rank 3: late")
        watched.app.filter_by("rank=4")
        await watched.until(lambda: "rank 3: late" not in watched.text())
        await click_on(watched, "a shared GPU; pid 4242")
        await watched.until_shown("the filter hides this finding")
        assert view_of(watched) == "overview"

    watch(Fixed(replace(SHOWN, findings=(LATE, other, replace(other, id=10, ranks=(4,))))), act, (160, 50))


def test_a_double_click_on_a_plot_of_a_rank_opens_the_rank() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        overview = watched.app.screen
        assert isinstance(overview, Overview)
        await watched.pilot.click(overview.query_one("#side"), offset=(12, 5), times=2)
        await watched.until(lambda: isinstance(watched.app.screen, RankScreen))
        screen = watched.app.screen
        assert isinstance(screen, RankScreen)
        assert screen.rank == overview.rank

    watch(Fixed(SHOWN), act, (160, 50))
