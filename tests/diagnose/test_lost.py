"""Ranks that go silent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from ddpmon.diagnose.alert import Alert
from ddpmon.diagnose.judge import Judge
from ddpmon.diagnose.lost import LostMeasures
from ddpmon.report.sentences import in_words
from ddpmon.report.verdicts import stops_job
from ddpmon.run.model import Run
from ddpmon.snapshot import Finding
from tests.made_frames import MadeJob, columns, healthy_phases, open_findings, play, rank_frame, run_info


def test_a_silent_rank_is_lost_after_ten_seconds_and_no_sooner() -> None:
    said = play(MadeJob(healthy_phases(4, 300)), silent={3: 100})
    kinds = [[finding.kind for finding in findings] for findings in said]
    assert kinds[10] == []
    assert kinds[-1] == ["rank_lost"]
    (finding,) = open_findings(said[-1])
    assert (finding.ranks, finding.severity) == ((3,), "critical")
    assert finding.since_step == 99
    assert "rank 3 (node0)" in finding.summary


def test_a_rank_that_said_goodbye_is_not_lost() -> None:
    run, judge = Run(run_info(2)), Judge()
    steps = columns([0], {"duration": [1.0]})
    run.add_rank(rank_frame(0, 1, steps, state="finished"), 0.0)
    run.add_rank(rank_frame(1, 1, steps, state="failed"), 0.0)
    assert [finding.kind for finding in judge(run, run.ages(100.0))] == ["rank_failed"]


def test_ranks_that_fall_silent_after_a_failure_follow_from_it_and_are_not_said_to_be_back() -> None:
    """torchrun ended rank 2 before its last frame, and a second critical finding sent people after it."""
    job = MadeJob(healthy_phases(4, 300))
    run, judge = Run(run_info(4)), Judge()
    kinds = set[str]()
    for tick in range(40):
        for rank in range(4):
            if tick < 10 or (rank != 2 and tick == 10):
                state = "failed" if tick == 10 else "running"
                columns_of = job.columns(rank, 10 * tick, 10 * tick + 10)
                run.add_rank(rank_frame(rank, tick, columns_of, state=state), float(tick))
        run.settle(float(tick))
        kinds = {alert.kind for alert in judge(run, run.ages(float(tick)))}
    assert kinds == {"rank_failed"}
    assert judge.pending == ()


def test_a_rank_never_heard_of_is_not_lost() -> None:
    run, judge = Run(run_info(2)), Judge()
    run.add_rank(rank_frame(0, 1, columns([0], {"duration": [1.0]})), 0.0)
    ages = run.ages(1.0)
    assert np.isnan(ages[1])
    assert judge(run, ages) == ()


@pytest.mark.parametrize(("goes_on", "severity"), [(True, "warning"), (False, "critical")])
def test_a_silent_rank_takes_part_where_the_others_finish_steps_that_need_it(goes_on: bool, severity: str) -> None:
    job = MadeJob(healthy_phases(4, 400))
    run, judge = Run(run_info(4)), Judge()
    findings: tuple[Finding, ...] = ()
    for tick in range(30):
        stopped = 0 if goes_on else max(0, tick - 10)  # the others finish the step in which rank 3 dies, and no other
        first = 10 * (tick - stopped)
        for rank in range(3 if tick >= 10 else 4):
            frame = rank_frame(rank, tick, job.columns(rank, first, first + 10), step_s=0.1 + stopped)
            run.add_rank(frame, float(tick))
        run.settle(float(tick))
        findings = in_words(judge(run, run.ages(float(tick))))
    (lost,) = (finding for finding in open_findings(findings) if finding.kind == "rank_lost")
    assert (lost.ranks, lost.severity) == ((3,), severity)
    assert ("it takes part and only the reports are missing" in lost.summary) == goes_on
    assert stops_job(lost) != goes_on


def test_the_rank_that_stops_the_run_is_named_beside_one_whose_reports_were_missing_before() -> None:
    job = MadeJob(healthy_phases(8, 600))
    run, judge = Run(run_info(8)), Judge()
    findings: tuple[Finding, ...] = ()
    for tick in range(60):
        stopped = max(0, tick - 40)  # the others finish the step in which rank 6 dies, and no other
        first = 10 * (tick - stopped)
        for rank in range(8):
            if (rank == 1 and tick >= 10) or (rank == 6 and tick >= 40):
                continue
            frame = rank_frame(rank, tick, job.columns(rank, first, first + 10), step_s=0.1 + stopped)
            run.add_rank(frame, float(tick))
        run.settle(float(tick))
        findings = in_words(judge(run, run.ages(float(tick))))
    lost = [(f.severity, f.ranks, f.since_step) for f in open_findings(findings) if f.kind == "rank_lost"]
    assert lost == [("critical", (6,), 399), ("warning", (1,), 99)]


def lost_in(ticks: range, alive: Callable[[int], int], is_again: Callable[[int, int], bool]) -> Finding:
    """The finding on lost ranks at the end.

    Args:
        ticks: those that the watcher sees.
        alive: how many ranks are heard at a tick.
        is_again: whether a rank has restarted by a tick, at tick 20, so that it counts its steps from there.
    """
    job, run, judge = MadeJob(healthy_phases(4, 700)), Run(run_info(4)), Judge()
    findings: tuple[Finding, ...] = ()
    for tick in ticks:
        for rank in range(alive(tick)):
            again = is_again(rank, tick)
            first = 10 * (tick - 20) if again else 10 * tick
            part = job.columns(rank, first, first + 10)
            run.add_rank(rank_frame(rank, tick, part, pid=900 if again else 100 + rank, step_s=0.1), float(tick))
        run.settle(float(tick))
        findings = in_words(judge(run, run.ages(float(tick))))
    (lost,) = (finding for finding in open_findings(findings) if finding.kind == "rank_lost")
    return lost


def test_the_step_of_a_lost_rank_that_had_restarted_alone_is_none_of_the_runs() -> None:
    lost = lost_in(range(50), lambda tick: 4 if tick < 30 else 3, lambda rank, tick: rank == 3 and tick >= 20)
    assert (lost.ranks, lost.since_step) == ((3,), None)


def test_a_watcher_that_came_after_a_restart_does_not_take_the_step_of_a_lost_rank_for_one_of_the_run() -> None:
    lost = lost_in(range(25, 50), lambda tick: 4 if tick < 30 else 3, lambda rank, _tick: rank == 3)
    assert (lost.ranks, lost.since_step) == ((3,), None)


def test_the_run_goes_on_while_the_rank_that_did_not_restart_with_the_lost_ones_finishes_steps() -> None:
    lost = lost_in(range(60), lambda tick: 4 if tick < 40 else 1, lambda rank, tick: rank > 0 and tick >= 20)
    assert (lost.ranks, lost.severity) == ((1, 2, 3), "warning")
    assert not stops_job(lost)


def test_many_lost_ranks_make_one_finding() -> None:
    said = play(MadeJob(healthy_phases(8, 300)), silent=dict.fromkeys(range(4, 8), 100))
    (finding,) = open_findings(said[-1])
    assert finding.ranks == (4, 5, 6, 7)
    assert finding.summary.startswith("ranks 4, 5, 6, 7 (node0) have been silent for ")


def test_the_ranks_that_go_on_are_still_judged() -> None:
    phases = healthy_phases(4, 400)
    phases["input"][1, 200:] += 60.0
    found = open_findings(play(MadeJob(phases), silent={3: 100})[-1])
    assert {finding.kind: finding.ranks for finding in found} == {"rank_lost": (3,), "straggler": (1,)}


def test_a_rank_that_ended_early_does_not_blind_the_watcher_to_the_others() -> None:
    phases = healthy_phases(4, 300)
    phases["forward"][2, 150:] += 60.0
    job = MadeJob(phases)
    run, judge = Run(run_info(4)), Judge()
    for tick, first in enumerate(range(0, 300, 10)):
        for rank in range(4):
            if rank < 3 or first < 60:
                state = "finished" if rank == 3 and first == 50 else "running"
                frame = rank_frame(rank, tick, job.columns(rank, first, first + 10), state=state)
                run.add_rank(frame, float(tick))
        run.settle(float(tick))
        findings = in_words(judge(run, run.ages(float(tick))))
    assert [(f.kind, f.ranks) for f in open_findings(findings)] == [("straggler", (2,)), ("uneven_inputs", (3,))]
    assert run.series.points[-1, 0] == 299


def test_ranks_that_finish_unequally_leave_the_verdict_as_it_is() -> None:
    phases = healthy_phases(3, 110)
    phases["forward"][1, 30:] += 60.0
    job = MadeJob(phases)
    run, judge = Run(run_info(3)), Judge()
    for tick in range(16):  # rank 0 alone saves for four seconds behind the last step, which it tells of late
        now, first = float(tick), min(10 * tick, 100)
        for rank in range(3):
            state = "finished" if (rank and tick >= 10) or tick == 15 else "running"
            behind = 3 if tick == 10 and not rank else 0
            part = job.columns(rank, first, first + 10 - behind)
            run.add_rank(rank_frame(rank, tick, part, state=state, phase="other"), now)
        run.settle(now)
        found = [(f.kind, f.ranks, f.severity) for f in judge(run, run.ages(now))]
        assert tick < 7 or found == [("straggler", (1,), "critical")]
    assert run.taking_part().all()


def test_a_rank_left_behind_is_not_compared_once_all_have_ended() -> None:
    run = Run(run_info(3))
    for rank, last in enumerate((50, 300, 300)):
        steps = columns(range(last + 1), {"duration": [1.0] * (last + 1)})
        run.add_rank(rank_frame(rank, 1, steps, state="finished"), 0.0)
    assert run.taking_part().tolist() == [False, True, True]


def test_a_straggler_that_is_lost_is_no_straggler_any_more() -> None:
    phases = healthy_phases(4, 400)
    phases["forward"][2, 40:] += 60.0
    found = open_findings(play(MadeJob(phases), silent={2: 200})[-1])
    assert [(finding.kind, finding.ranks) for finding in found] == [("rank_lost", (2,))]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_lost_rank_that_is_heard_again_is_over_and_kept_as_such(restarts: bool) -> None:
    job = MadeJob(healthy_phases(4, 400))
    run, judge = Run(run_info(4)), Judge()
    for tick in range(45):
        now, away = float(tick), 10 <= tick < 25
        # No rank finishes a step without rank 3.
        first = 10 * min(tick, 9) if away else 10 * (tick if tick < 10 else tick - 15)
        for rank in range(4):
            if rank < 3 or not away:
                pid = 100 + rank + 1000 * (restarts and rank == 3 and tick >= 25)
                run.add_rank(rank_frame(rank, tick, job.columns(rank, first, first + 10), pid=pid), now)
        run.settle(now)
        said = judge(run, run.ages(now))
        if tick == 24:
            assert [(each.kind, each.cleared_at_step) for each in open_findings(said)] == [("rank_lost", None)]
    (over,) = (each for each in said if each.kind == "rank_lost")
    assert (over.severity, over.ranks, over.nodes) == ("critical", (3,), ("node0",)), "no step without it"
    assert (over.since_step, over.cleared_at_step) == (99, 110)
    assert in_words([over])[0].summary.startswith("rank 3 (node0) was silent for ")
    assert " (from step 99 to 110)" in in_words([over])[0].summary


def test_a_rank_that_is_lost_twice_leaves_two_that_are_over() -> None:
    job = MadeJob(healthy_phases(4, 800))
    run, judge = Run(run_info(4)), Judge()
    for tick in range(80):
        now, away = float(tick), 10 <= tick % 35 < 25
        for rank in range(4):
            if rank < 3 or not away:
                part = job.columns(rank, 10 * tick, 10 * tick + 10)
                run.add_rank(rank_frame(rank, tick, part), now)
        run.settle(now)
        said = judge(run, run.ages(now))
    over = [(each.ranks, each.since_step, each.cleared_at_step) for each in said if each.kind == "rank_lost"]
    assert over == [((3,), 449, 610), ((3,), 99, 260)]


def away_and_back(
    away: Mapping[int, range], pids: Callable[[int, int], int] = lambda _tick, rank: 100 + rank
) -> list[tuple[Alert, ...]]:
    """Four ranks, of which some are away for some ticks, meanwhile no step is finished; what is said at each tick."""
    job, run, judge = MadeJob(healthy_phases(4, 800)), Run(run_info(4)), Judge()
    said, first = [], 0
    for tick in range(60):
        gone = {rank for rank, ticks in away.items() if tick in ticks}
        for rank in {0, 1, 2, 3} - gone:
            run.add_rank(
                rank_frame(rank, tick, job.columns(rank, first, first + 10), pid=pids(tick, rank)), float(tick)
            )
        run.settle(float(tick))
        said.append(judge(run, run.ages(float(tick))))
        first += 0 if gone else 10
    return said


def losses(alerts: Sequence[Alert]) -> list[Alert]:
    return [alert for alert in alerts if alert.kind == "rank_lost"]


def test_a_loss_that_is_over_tells_of_a_rank_that_came_back_and_not_of_one_that_is_still_lost() -> None:
    lasting, over = losses(away_and_back({2: range(10, 99), 3: range(12, 30)})[40])
    assert (lasting.ranks, lasting.cleared_at_step) == ((2,), None)
    assert (over.ranks, over.since_step, over.cleared_at_step) == ((3,), 109, 110)
    assert isinstance(over.measures, LostMeasures)
    assert (over.measures.rank, over.measures.pid, over.measures.silent_s) == (3, 103, 18.0)
    assert over.id != lasting.id


def test_of_ranks_that_come_back_together_the_one_that_was_silent_for_the_longest_is_told_of() -> None:
    said = away_and_back({1: range(10, 99), 2: range(14, 30), 3: range(12, 30)})[40]
    _, over = losses(said)
    assert isinstance(over.measures, LostMeasures)
    assert (over.ranks, over.measures.rank) == ((2, 3), 3)


def test_each_loss_of_a_rank_has_a_number_of_its_own_which_it_keeps() -> None:
    job, run, judge = MadeJob(healthy_phases(4, 800)), Run(run_info(4)), Judge()
    numbers: list[set[int]] = []
    for tick in range(80):
        for rank in range(3 if 10 <= tick % 35 < 25 else 4):
            run.add_rank(rank_frame(rank, tick, job.columns(rank, 10 * tick, 10 * tick + 10)), float(tick))
        run.settle(float(tick))
        numbers.append({each.id for each in losses(judge(run, run.ages(float(tick))))})
    assert (numbers[23], numbers[30], numbers[58], numbers[79]) == ({1}, {1}, {1, 2}, {1, 2})


@pytest.mark.parametrize(("state", "kinds"), [("failed", ["rank_failed"]), ("finished", [])])
def test_a_lost_rank_whose_last_frame_says_how_it_ended_leaves_no_loss_that_is_over(
    state: str, kinds: list[str]
) -> None:
    job, run, judge = MadeJob(healthy_phases(4, 400)), Run(run_info(4)), Judge()
    for tick in range(30):
        for rank in range(4):
            if rank == 3 and tick >= 10 and tick != 25:
                continue
            ended = {"state": state} if rank == 3 and tick == 25 else {}
            run.add_rank(rank_frame(rank, tick, job.columns(rank, 10 * min(tick, 9), 100), **ended), float(tick))
        run.settle(float(tick))
        said = judge(run, run.ages(float(tick)))
        assert tick != 24 or losses(said)
    assert losses(said) == []
    assert [each.kind for each in said if each.kind == "rank_failed"] == kinds


def test_no_loss_keeps_a_step_of_before_the_steps_began_again() -> None:
    """The second loss ends only after the run has begun its steps again, the first one ended long before."""
    job, run, judge = MadeJob(healthy_phases(4, 400)), Run(run_info(4)), Judge()
    steps = [*range(10), *[9] * 15, *range(10, 20), *[19] * 15, *range(5)]
    for tick, place in enumerate(steps):
        silent, again = tick in {*range(10, 25), *range(35, 50)}, tick >= 50
        for rank in range(1 if tick < 35 else 0, 1) if silent else range(4):
            part = job.columns(rank, 10 * place, 10 * place + 10)
            run.add_rank(rank_frame(rank, tick, part, pid=100 + rank + 1000 * again), float(tick))
        run.settle(float(tick))
        said = judge(run, run.ages(float(tick)))
        if tick == 30:
            assert [(each.since_step, each.cleared_at_step) for each in losses(said)] == [(99, 110)]
    assert [(each.since_step, each.cleared_at_step) for each in losses(said)] == [(None, 10)]
