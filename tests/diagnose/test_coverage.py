"""The monitor's own gaps."""

from __future__ import annotations

from typing import Any

from ddpmon.diagnose.coverage import CoverageRule
from ddpmon.run.model import Run
from ddpmon.snapshot import Finding
from tests.made_frames import columns, rank_frame, run_info

STEPS = columns([5], {"duration": [1.0]})


def judge(world: int, heard: dict[int, float], seq: int = 60, **says: Any) -> list[Finding]:
    """The findings when these ranks were heard of so many seconds ago."""
    run = Run(run_info(world))
    for rank, age in heard.items():
        run.add_rank(rank_frame(rank, seq, STEPS, **says), 100.0, age)
    return CoverageRule().update(run, run.ages(100.0))


def test_all_report() -> None:
    assert judge(4, dict.fromkeys(range(4), 1.0)) == []


def test_a_few_silent_ranks_are_information_and_a_fifth_is_a_warning() -> None:
    (finding,) = judge(10, dict.fromkeys(range(9), 0.5) | {9: 6.0})
    assert (finding.kind, finding.severity, finding.ranks) == ("monitor_degraded", "info", (9,))
    assert "rank 9 has not reported for 6.0 s" in finding.summary
    (finding,) = judge(10, dict.fromkeys(range(8), 0.5) | {8: 6.0, 9: 6.0})
    assert finding.severity == "warning"


def test_lost_ranks_are_spoken_of_elsewhere() -> None:
    assert judge(4, {0: 0.5, 1: 0.5, 2: 0.5, 3: 30.0}) == []


def test_ranks_never_heard_of_after_half_a_minute() -> None:
    (finding,) = judge(4, {0: 0.5})
    assert (finding.severity, finding.ranks) == ("warning", (1, 2, 3))
    assert "not enough evidence for a verdict: only 1 of 4 ranks have reported" in finding.summary
    assert judge(4, {0: 0.5}, seq=10) == []


def test_a_run_that_has_ended_is_complete() -> None:
    assert judge(4, {0: 6.0, 1: 6.0}, state="finished") == []
    assert judge(4, {0: 6.0, 1: 6.0}, state="failed") == []
    assert judge(4, {0: 6.0, 1: 6.0}) != []


def test_drops_count_while_they_grow() -> None:
    run, rule = Run(run_info(1)), CoverageRule()

    def at(now: float, steps: int, frames: int) -> list[Finding]:
        run.add_rank(rank_frame(0, int(now) + 1, STEPS, dropped_steps=steps, dropped_frames=frames), now)
        return rule.update(run, run.ages(now))

    assert at(0.0, 7, 1) == []
    (finding,) = at(10.0, 12, 1)
    assert (finding.severity, finding.ranks) == ("info", ())
    assert "5 steps dropped within the last minute" in finding.summary
    assert finding.evidence["dropped_frames"] == 0
    assert at(100.0, 12, 1) == []


def test_what_was_rejected_or_set_aside_counts() -> None:
    run, rule = Run(run_info(1)), CoverageRule()
    run.add_rank(rank_frame(0, 1, STEPS), 0.0)
    assert rule.update(run, run.ages(0.0)) == []
    run.reject("rank/1: not a RankFrame")
    run.add_rank(rank_frame(0, 2, columns([6], {"duration": [-1.0]})), 1.0)
    (finding,) = rule.update(run, run.ages(1.0))
    assert "1 frame rejected within" in finding.summary
    assert "1 step record set aside" in finding.summary


def test_what_this_watcher_refuses_counts_from_its_first_look_on_and_for_a_minute() -> None:
    run, rule = Run(run_info(1)), CoverageRule()

    def at(now: float) -> list[Finding]:
        run.add_rank(rank_frame(0, int(now) + 1, STEPS), now)
        return rule.update(run, run.ages(now))

    run.refused = 2
    (finding,) = at(0.0)
    assert "2 frames refused within the last minute" in finding.summary
    assert finding.evidence["refused_frames"] == 2
    assert "DDPMON_TOKEN" in finding.advice
    assert at(100.0) == []
    run.refused = 3
    (finding,) = at(101.0)
    assert "1 frame refused" in finding.summary


def test_nobody_heard_because_nothing_is_believed_is_a_warning() -> None:
    run = Run(run_info(3))
    run.refused = 3
    (finding,) = CoverageRule().update(run, run.ages(5.0))
    assert (finding.severity, finding.ranks) == ("warning", (0, 1, 2))
    assert "have never reported" in finding.summary
    assert "3 frames refused so far; there is not enough evidence" in finding.summary


def test_nothing_heard_is_nothing_said() -> None:
    assert judge(4, {}) == []
