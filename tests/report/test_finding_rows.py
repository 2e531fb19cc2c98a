"""Rows on findings: each kind has a name, and what began before the watcher came is said to be older."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from ddpmon.diagnose.kinds import KINDS, KindName
from ddpmon.format import age, time_of_day
from ddpmon.report.finding_rows import NAMES, kind_words, rows, since, what, who
from ddpmon.report.headline import facts
from ddpmon.report.step_clock import wall_of
from ddpmon.snapshot import Finding
from tests.tui.made_runs import Made, snapshot

MADE = snapshot(Made(straggler=5, gpu=True))
TIMED = replace(MADE, run=replace(MADE.run, step_age_s=0.2)) if MADE.run is not None else MADE
KNOWN = TIMED.findings[0]
OLDER = replace(KNOWN, since_is_bound=True)


def test_every_kind_of_finding_has_a_name_in_lists() -> None:
    assert set(NAMES) == set(KINDS)


def test_what_began_before_it_could_be_seen_has_lasted_longer_than_it_was_seen() -> None:
    onset = dict(rows(KNOWN, TIMED))["Since"].split(", ")[1]
    assert since(OLDER, TIMED) == f">{since(KNOWN, TIMED)}"
    assert dict(rows(OLDER, TIMED))["Since"].startswith("before step 812, ")
    assert since(KNOWN, TIMED, ago=" ago", at_clock=True) == f"{onset[:5]}, {since(KNOWN, TIMED)} ago"
    days = replace(KNOWN, kind="hang", evidence={"seconds": 3 * 86_400.0})
    assert since(days, TIMED, at_clock=True) == "3 d", "a time of day does not tell of which day"
    assert since(OLDER, TIMED, at_clock=True) == since(OLDER, TIMED), "its time of day is not known"
    assert ", more than " in dict(rows(OLDER, TIMED))["Since"]
    assert "more than" not in dict(rows(KNOWN, TIMED))["Since"]
    long, *_, short, _, _ = facts(OLDER, TIMED, "|")
    assert any("more than" in part for part in long)
    assert short[-1].startswith("before step 812 (>")


def test_rows_say_in_a_few_words_what_it_is() -> None:
    said = {
        "stuck in input": Finding("hang", "critical", "", (2,), phase="input"),
        "stuck in the all-reduce": Finding("hang", "critical", "", (2,), phase="exposed"),
        "stuck between phases": Finding("hang", "critical", "", (2,), phase="other"),
        "load batches in the background": Finding("advice", "info", "", advice="load batches in the background: more"),
        "2 ranks silent, 1 rank never reported": Finding(
            "monitor_degraded", "info", "", (1, 2), evidence={"not_reporting": 2, "never_heard_of": 1}
        ),
        "silent": Finding("monitor_degraded", "info", "", (2, 3), evidence={"not_reporting": 2, "dropped_steps": 3}),
        "restarted alone": Finding("monitor_degraded", "info", "", (8, 9), evidence={"restarted_alone": 2}),
        "incomplete picture": Finding("monitor_degraded", "info", "", evidence={"dropped_steps": 3}),
        "late +41 ms in one step of 5, input": replace(KNOWN, evidence={"excess_ms": 41.0, "one_step_in": 5.0}),
    }
    assert {words: what(finding) for words, finding in said.items()} == {words: words for words in said}
    assert who(said["2 ranks silent, 1 rank never reported"]) == "the run"
    assert who(said["silent"]) == "ranks 2-3"
    assert who(said["restarted alone"]) == "ranks 8-9"
    kinds: tuple[KindName, ...] = ("slow_node", "monitor_degraded", "gpu_memory_growth", "intermittent_straggler")
    words = ["slow host", "incomplete picture", "GPU memory growth", "intermittent straggler"]
    assert [kind_words(replace(KNOWN, kind=kind)) for kind in kinds] == words


def test_ranks_that_restarted_alone_have_the_step_of_it_and_no_measure_that_repeats_the_title() -> None:
    alone = Finding("monitor_degraded", "info", "", (8, 9), since_step=812, evidence={"restarted_alone": 2})
    said = dict(rows(alone, TIMED))
    assert said["Since"].startswith("step 812, ")
    assert "Measured" not in said


def test_ranks_are_named_where_ranges_have_room_for_them() -> None:
    lost = Finding("rank_lost", "critical", "", ())
    for ranks, said in (
        ((7,), "rank 7"),
        ((31, *range(8, 31)), "ranks 8-31"),
        ((*range(8, 16), *range(24, 32)), "ranks 8-15, 24-31"),
        ((*range(8, 16), *range(24, 32), 40), "17 ranks"),
    ):
        assert who(replace(lost, ranks=ranks)) == said


def test_what_is_over_has_one_time_of_day_where_it_began_and_ended_in_one_minute() -> None:
    over = replace(KNOWN, since_step=1000)
    for end in range(1001, 1204, 40):
        times = [time_of_day(wall_of(TIMED, step))[:5] for step in (1000, end)]
        said = since(replace(over, cleared_at_step=end), TIMED)
        assert said == (times[0] if times[0] == times[1] else f"{times[0]}-{times[1]}")
    assert len(since(replace(over, cleared_at_step=1000), TIMED)) == len("14:01")


def test_a_standstill_has_lasted_as_long_as_it_says() -> None:
    hang = replace(KNOWN, kind="hang", since_step=1205, evidence={"seconds": 14.0, "waiting": 7})
    assert since(hang, TIMED) == "14 s"
    assert dict(rows(hang, TIMED))["Since"].endswith(", 14 s ago")


def test_a_lost_rank_whose_step_is_none_of_the_runs_is_away_since_it_was_heard() -> None:
    """The row of a rank that was lost after a restart of its own had no time."""
    assert TIMED.ranks is not None
    age_s = TIMED.ranks.age_s.copy()
    age_s[[2, 3]] = 31.0, 14.0
    lost = Finding("rank_lost", "critical", "", (2, 3), evidence={"silent_s": 31.0})
    shown = replace(TIMED, ranks=replace(TIMED.ranks, age_s=age_s))
    assert since(lost, shown, ago=" ago") == "31 s ago"
    assert dict(rows(lost, shown))["Since"] == f"{time_of_day(shown.taken_at - 31.0)}, 31 s ago"
    age_s[2] = np.nan
    for unknown in (replace(lost, kind="rank_failed"), replace(lost, ranks=()), lost):
        assert since(unknown, shown) == ""
        assert "Since" not in dict(rows(unknown, shown))


def test_the_cost_has_hours_so_far_and_a_day() -> None:
    words = dict(rows(KNOWN, TIMED))["Costs"]
    assert words.startswith("24 % of the run's time, ")
    assert words.endswith("GPU-h lost so far, 46 GPU-h a day")
    assert dict(rows(replace(KNOWN, cleared_at_step=900), TIMED))["Cost"] == "24 % of the run's time while it lasted"


def test_what_is_lost_so_far_is_an_estimate_that_may_fall_and_says_so() -> None:
    """It was told as if it had been counted, and fell from one minute to the next."""
    cheaper = dict(rows(replace(KNOWN, cost_pct=8.0), TIMED))["Costs"]
    lost = [float(re.findall(r", about ([\d.]+) GPU-h lost so far, ", words)[0]) for words in (_costs(KNOWN), cheaper)]
    assert lost[0] > lost[1]
    assert ", at least " in _costs(OLDER)
    assert "about" not in _costs(OLDER)
    assert any(part.startswith("about ") for form in facts(KNOWN, TIMED, "|") for part in form)


def _costs(finding: Finding) -> str:
    return dict(rows(finding, TIMED))["Costs"]


def test_a_standstill_costs_all_ranks_all_of_their_time() -> None:
    hang = replace(KNOWN, kind="hang", cost_pct=100.0, since_step=1205, evidence={"seconds": 3600.0, "waiting": 7})
    words = dict(rows(hang, TIMED))["Costs"]
    assert words == "all of the run's time while it stands still, 8.0 GPU-h lost so far, 192 GPU-h a day"
    stood = "all of the run's time while it stood still"
    assert dict(rows(replace(hang, cleared_at_step=1300), TIMED))["Cost"] == stood
    assert TIMED.run is not None
    ended = replace(TIMED, run=replace(TIMED.run, state="failed"))
    assert dict(rows(hang, ended))["Cost"] == f"{stood}, 8.0 GPU-h lost"


def test_the_use_of_a_gpu_by_a_foreign_process_is_said_once() -> None:
    evidence = {"cause_pid": 4242, "cause_sm_pct": 38.0, "cause_memory_bytes": 9 << 30, "cause_gpus": 1}
    found = replace(KNOWN, cause="a shared GPU: pid 4242 uses 38 % of its GPU (likely)", evidence=evidence)
    assert dict(rows(found, TIMED))["Cause"] == f"{found.cause}; memory 9.0 GiB"
    assert dict(rows(found, TIMED))["Rank"] == "5"


def test_an_age_changes_its_unit_at_two() -> None:
    said = {99.6: "100 s", 119.4: "119 s", 119.6: "2 min", 7169.0: "119 min", 7171.0: "2 h"}
    assert {seconds: age(seconds) for seconds in said} == said
