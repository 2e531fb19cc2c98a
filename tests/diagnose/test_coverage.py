"""The monitor's own gaps."""

from __future__ import annotations

from typing import Any

from ddpmon.diagnose.alert import Alert
from ddpmon.diagnose.coverage import CoverageMeasures, CoverageRule, Losses
from ddpmon.run.model import Run
from tests.diagnose.measured import measured
from tests.made_frames import columns, rank_frame, run_info, tick

STEPS = columns([5], {"duration": [1.0]})


def losses(alert: Alert) -> Losses:
    """What was lost within the last minute."""
    measures = measured(alert, CoverageMeasures)
    assert measures.window_s == 60
    return measures.losses


def judge(world: int, heard: dict[int, float], seq: int = 60, **says: Any) -> list[Alert]:
    """The alerts when these ranks were heard of so many seconds ago."""
    run = Run(run_info(world))
    for rank, age in heard.items():
        run.add_rank(rank_frame(rank, seq, STEPS, **says), 100.0, age)
    return CoverageRule()(tick(run, run.ages(100.0)), ())


def test_all_report() -> None:
    assert judge(4, dict.fromkeys(range(4), 1.0)) == []


def test_a_few_silent_ranks_are_information_and_a_fifth_is_a_warning() -> None:
    (alert,) = judge(10, dict.fromkeys(range(9), 0.5) | {9: 6.0})
    assert (alert.kind, alert.severity, alert.ranks) == ("monitor_degraded", "info", (9,))
    measures = measured(alert, CoverageMeasures)
    assert (measures.silent, measures.silent_s, measures.unheard) == ((9,), 6.0, ())
    (alert,) = judge(10, dict.fromkeys(range(8), 0.5) | {8: 6.0, 9: 6.0})
    assert alert.severity == "warning"


def test_lost_ranks_are_spoken_of_elsewhere() -> None:
    assert judge(4, {0: 0.5, 1: 0.5, 2: 0.5, 3: 30.0}) == []


def test_ranks_never_heard_of_after_half_a_minute() -> None:
    (alert,) = judge(4, {0: 0.5})
    assert (alert.severity, alert.ranks) == ("warning", (1, 2, 3))
    measures = measured(alert, CoverageMeasures)
    assert (measures.unheard, measures.silent, measures.world_size) == ((1, 2, 3), (), 4)
    assert judge(4, {0: 0.5}, seq=10) == []


def test_a_run_that_has_ended_is_complete() -> None:
    assert judge(4, {0: 6.0, 1: 6.0}, state="finished") == []
    assert judge(4, {0: 6.0, 1: 6.0}, state="failed") == []
    assert judge(4, {0: 6.0, 1: 6.0}) != []


def test_drops_count_while_they_grow() -> None:
    run, rule = Run(run_info(1)), CoverageRule()

    def at(now: float, steps: int, frames: int) -> list[Alert]:
        run.add_rank(rank_frame(0, int(now) + 1, STEPS, dropped_steps=steps, dropped_frames=frames), now)
        return rule(tick(run, run.ages(now)), ())

    assert at(0.0, 7, 1) == []
    (alert,) = at(10.0, 12, 1)
    assert (alert.severity, alert.ranks) == ("info", ())
    assert losses(alert) == Losses(5, 0, 0, 0, 0)
    assert at(100.0, 12, 1) == []


def test_what_was_rejected_or_set_aside_counts() -> None:
    run, rule = Run(run_info(1)), CoverageRule()
    run.add_rank(rank_frame(0, 1, STEPS), 0.0)
    assert rule(tick(run, run.ages(0.0)), ()) == []
    run.reject("rank/1: not a RankFrame")
    run.add_rank(rank_frame(0, 2, columns([6], {"duration": [-1.0]})), 1.0)
    (alert,) = rule(tick(run, run.ages(1.0)), ())
    assert losses(alert) == Losses(0, 0, 1, 0, 1)


def test_what_this_watcher_refuses_counts_from_its_first_look_on_and_for_a_minute() -> None:
    run, rule = Run(run_info(1)), CoverageRule()

    def at(now: float) -> list[Alert]:
        run.add_rank(rank_frame(0, int(now) + 1, STEPS), now)
        return rule(tick(run, run.ages(now)), ())

    run.refused = 2
    (alert,) = at(0.0)
    assert losses(alert) == Losses(0, 0, 0, 2, 0)
    assert at(100.0) == []
    run.refused = 3
    (alert,) = at(101.0)
    assert losses(alert) == Losses(0, 0, 0, 1, 0)


def test_nobody_heard_because_nothing_is_believed_is_a_warning() -> None:
    run = Run(run_info(3))
    run.refused = 3
    (alert,) = CoverageRule()(tick(run, run.ages(5.0)), ())
    assert (alert.severity, alert.ranks) == ("warning", (0, 1, 2))
    measures = measured(alert, CoverageMeasures)
    assert (measures.unheard, measures.losses, measures.window_s) == ((0, 1, 2), Losses(0, 0, 0, 3, 0), None)


def test_nothing_heard_is_nothing_said() -> None:
    assert judge(4, {}) == []
