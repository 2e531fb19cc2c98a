"""Findings that belong together name each other: contention, and the run that became slower as it began."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpmon.report.see_also import see_also, see_also_words
from ddpmon.snapshot import Finding
from ddpmon.tui.draw.finding_view import evidence_lines
from ddpmon.tui.draw.findings import all_findings
from ddpmon.tui.draw.verdict_lines import verdict_lines
from ddpmon.tui.screens.findings_screen import FindingsScreen
from ddpmon.tui.view_state import ViewState
from tests.tui.made_runs import Made, snapshot
from tests.tui.test_drawing import LOOKS, text_of
from tests.tui.watched import Fixed, Watched, watch

SLOWER = Finding("job_slower", "warning", "The run takes 120 ms a step longer.", since_step=412, cost_pct=22.0)
BUSY = Finding("cpu_contention", "info", "foreign processes", (1, 2), ("node3",), since_step=410)
MADE = snapshot(Made(findings=(SLOWER, BUSY)))


def test_a_slower_run_and_the_contention_that_began_with_it_name_each_other() -> None:
    assert see_also_words(SLOWER, MADE) == "CPU contention on node3 since step 410"
    assert see_also_words(BUSY, MADE) == "the run: slower than before since step 412"


@pytest.mark.parametrize(
    "other",
    [
        replace(BUSY, since_step=200),
        replace(BUSY, since_step=700),
        replace(BUSY, since_is_bound=True),
        replace(BUSY, cleared_at_step=500),
        replace(BUSY, kind="disk_low"),
        replace(BUSY, kind="straggler"),
    ],
)
def test_what_did_not_begin_with_it_or_slows_nothing_is_not_named(other: Finding) -> None:
    made = replace(MADE, findings=(SLOWER, other))
    assert not see_also(SLOWER, made)
    assert not see_also(other, made)


def test_a_slowdown_whose_cause_is_known_names_nothing_else() -> None:
    known = replace(SLOWER, cause="CPU contention: 128 of 128 cores (likely)")
    assert not see_also(known, replace(MADE, findings=(known, BUSY)))


def test_every_place_that_tells_the_slowdown_says_what_to_see_also() -> None:
    picture, said = ViewState(MADE, LOOKS["colour"]), "CPU contention on node3 since step 410"
    assert any("See also" in line and said in line for line in text_of(evidence_lines(picture, SLOWER, 100, 40)))
    assert any(f"see also: {said}" in line for line in text_of(all_findings(picture, 100)))
    assert f"see also: {said}" in "".join(text_of(verdict_lines(picture, 100)))


def test_enter_leads_from_the_slower_run_to_the_contention() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("5")
        await watched.until_shown("enter see also")
        await watched.press("enter")
        screen = watched.app.screen
        assert isinstance(screen, FindingsScreen)
        await watched.until(lambda: screen.finding is not None and screen.finding.kind == "cpu_contention")
        await watched.until_shown("enter rank")

    watch(Fixed(MADE), act, (120, 34))
