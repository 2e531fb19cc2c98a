"""Rows on findings: each kind has a name, and what began before the watcher came is said to be older."""

from __future__ import annotations

from dataclasses import replace

from ddpmon.diagnose.kinds import KINDS
from ddpmon.report.finding_rows import NAMES, rows, since
from ddpmon.report.headline import facts
from tests.tui.made_runs import Made, snapshot

MADE = snapshot(Made(straggler=5, gpu=True))
TIMED = replace(MADE, run=replace(MADE.run, step_age_s=0.2)) if MADE.run is not None else MADE
KNOWN = TIMED.findings[0]
OLDER = replace(KNOWN, since_is_bound=True)


def test_every_kind_of_finding_has_a_name_in_lists() -> None:
    assert set(NAMES) == set(KINDS)


def test_what_began_before_it_could_be_seen_has_lasted_longer_than_it_was_seen() -> None:
    assert since(OLDER, TIMED) == f">{since(KNOWN, TIMED)}"
    assert dict(rows(OLDER, TIMED))["Since"].startswith("before step 812, ")
    assert ", more than " in dict(rows(OLDER, TIMED))["Since"]
    assert "more than" not in dict(rows(KNOWN, TIMED))["Since"]
    long, *_, short, _, _ = facts(OLDER, TIMED, "|")
    assert any("more than" in part for part in long)
    assert short[-1].startswith("since before 812 (>")


def test_a_standstill_has_lasted_as_long_as_it_says() -> None:
    hang = replace(KNOWN, kind="hang", since_step=1205, evidence={"seconds": 14.0, "waiting": 7})
    assert since(hang, TIMED) == "14 s"
    assert dict(rows(hang, TIMED))["Since"].endswith(", 14 s ago")


def test_the_cost_has_hours_so_far_and_a_day() -> None:
    words = dict(rows(KNOWN, TIMED))["Costs"]
    assert words.startswith("24 % of the run's time, ")
    assert words.endswith("GPU-h lost so far, 46 GPU-h a day")
    assert dict(rows(replace(KNOWN, cleared_at_step=900), TIMED))["Costs"] == "24 % of the run's time"
