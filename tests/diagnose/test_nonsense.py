"""Frames that are late, sparse, contradictory or nonsense: no crash, no false verdict, the right one all the same."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
import pytest

from ddpmon.diagnose.judge import Judge
from ddpmon.report.sentences import in_words
from ddpmon.run.model import Run
from ddpmon.schema import HistoryFrame, RankFrame
from ddpmon.snapshot import Finding
from tests.made_frames import (
    RUN_ID,
    Floats,
    MadeJob,
    columns,
    healthy_phases,
    open_findings,
    play,
    rank_frame,
    run_info,
)

STEPS = 400
Edit = Callable[[int, int, RankFrame], RankFrame | None]


def watched(job: MadeJob, edit: Edit, hosts: list[str] | None = None) -> list[tuple[Finding, ...]]:
    """What is said tick by tick of frames that `edit(tick, rank, frame)` has had its way with."""
    run, judge, said = Run(run_info(job.ranks)), Judge(), []
    for tick, first in enumerate(range(0, job.steps, 10)):
        for rank in range(job.ranks):
            part = job.columns(rank, max(0, first - 5), first + 10)
            frame = edit(tick, rank, rank_frame(rank, tick, part, host=hosts[rank] if hosts else "node0"))
            if frame is not None:
                run.add_rank(frame, float(tick))
        run.settle(float(tick))
        said.append(in_words(judge(run, run.ages(float(tick)))))
    return said


def test_a_past_without_a_present_is_judged_and_nothing_breaks() -> None:
    """The ranks' frames cannot be read, their histories can."""
    phases = healthy_phases(4, STEPS)
    phases["forward"][2, 100:] += 30.0
    job, run = MadeJob(phases), Run(run_info(4))
    past = [HistoryFrame(run_id=RUN_ID, rank=r, recent=job.columns(r, 0, 256), older=columns([], {})) for r in range(4)]
    run.add_history(past)
    (finding,) = Judge()(run, run.ages(0.0))
    assert (finding.kind, finding.ranks) == ("straggler", (2,))


def test_small_trouble_that_large_trouble_follows_in_the_same_tick() -> None:
    phases = healthy_phases(4, STEPS)
    phases["forward"][2, 40:90:3] += 40.0
    phases["forward"][2, 300::4] += 400.0
    (finding,) = open_findings(play(MadeJob(phases), STEPS)[-1])
    assert (finding.kind, finding.ranks) == ("intermittent_straggler", (2,))


@pytest.mark.parametrize("every", [5, 10, 50])
def test_an_evaluation_at_every_round_step_blinds_no_rule(every: int) -> None:
    def marked(phases: dict[str, Floats]) -> MadeJob:
        time = np.zeros(600)
        time[::every] = 50.0
        phases["other"] += time
        return MadeJob(phases, marked=time)

    phases = healthy_phases(4, 600)
    phases["forward"][2, 203::4] += 60.0
    kinds = {finding.kind for finding in play(marked(phases))[-1]}
    assert "intermittent_straggler" in kinds
    quick = healthy_phases(4, 600)
    for table in quick.values():
        table[:, 150:350] *= 0.7
    assert "job_slower" in {finding.kind for finding in play(marked(quick))[-1]}
    uneven = healthy_phases(4, 600)
    uneven["forward"] *= np.random.default_rng(0).lognormal(0, 1.0, (4, 600))
    assert "uneven_work" in {finding.kind for finding in play(marked(uneven))[-1]}


@pytest.mark.parametrize("every", [1, 2])
def test_a_phase_that_is_part_of_the_work_blinds_no_rule(every: int) -> None:
    phases = healthy_phases(4, 600)
    time = np.zeros(600)
    time[::every] = 10.0
    time[::40] += 300.0  # and pauses beside it
    phases["other"] += time
    phases["forward"][2, 210:] += 40.0
    said = play(MadeJob(phases, marked=time))
    found = [finding for finding in open_findings(said[-1]) if finding.kind != "pause"]
    assert [(finding.kind, finding.ranks, finding.since_step) for finding in found] == [("straggler", (2,), 210)]
    assert all(finding.kind == "pause" for findings in said[:20] for finding in findings)


def test_a_straggler_that_comes_again_is_not_dated_back_to_the_time_before() -> None:
    phases = healthy_phases(4, 800)
    late = np.arange(800) // 50 % 2 == 1
    phases["forward"][2, late] += 15.0
    onsets = {f.since_step for said in play(MadeJob(phases)) for f in open_findings(said) if f.kind == "straggler"}
    assert len(onsets) >= 8
    assert all(min(abs((step or 0) - first) for first in range(50, 800, 100)) <= 5 for step in onsets)


def test_lateness_that_comes_and_goes_is_one_finding_until_it_stays() -> None:
    phases = healthy_phases(4, 1000)
    phases["forward"][2, (np.arange(1000) // 25 % 2 == 1) | (np.arange(1000) >= 800)] += 15.0
    said = [[f.kind for f in open_findings(tick)] for tick in play(MadeJob(phases))]
    assert {tuple(kinds) for kinds in said[20:80]} == {("intermittent_straggler",)}
    assert said[90:] == [["straggler"]] * 10


@pytest.mark.parametrize("hosts", [None, ["a", "b", "b"]])
def test_two_of_three_ranks_are_named_and_the_job_as_a_whole_is_not(hosts: list[str] | None) -> None:
    phases = healthy_phases(3, STEPS)
    phases["forward"][1:, 100:] += 30.0
    found = open_findings(play(MadeJob(phases), hosts=hosts)[-1])
    assert sorted(rank for finding in found for rank in finding.ranks) == [1, 2]
    assert {finding.kind for finding in found} == ({"straggler"} if hosts is None else {"slow_node"})


def test_a_host_that_leaves_does_not_hand_its_place_in_a_verdict_on() -> None:
    phases = healthy_phases(6, STEPS)
    phases["forward"][2:4, 100:] += 30.0

    def first_host_ends(tick: int, rank: int, frame: RankFrame) -> RankFrame:
        return msgspec.structs.replace(frame, state="finished") if rank < 2 and tick >= 25 else frame

    said = watched(MadeJob(phases), first_host_ends, ["a", "a", "b", "b", "c", "c"])
    for tick in said[15:]:
        (finding,) = (f for f in open_findings(tick) if f.kind == "slow_node")
        assert (finding.nodes, finding.severity) == (("b",), "critical")
    assert not [f for f in said[-1] if f.cleared_at_step is not None]


@pytest.mark.parametrize("pid", [102, 999])  # in a container the number may be the same again
def test_a_rank_that_starts_anew_by_itself_is_not_compared_with_the_others_past(pid: int) -> None:
    phases = healthy_phases(4, STEPS)
    phases["forward"][1, 250:] += 30.0
    slower = MadeJob({name: 1.5 * table for name, table in healthy_phases(4, STEPS, seed=1).items()})

    def starts_anew(tick: int, rank: int, frame: RankFrame) -> RankFrame | None:
        if rank != 2 or tick < 15:
            return frame
        first = 10 * (tick - 20)
        part = slower.columns(2, first, first + 10) if first >= 0 else None
        return None if part is None else rank_frame(2, tick - 20, part, pid=pid, sent_at=float(tick))

    said = watched(MadeJob(phases), starts_anew)
    assert {rank for tick in said for f in tick if f.kind == "straggler" for rank in f.ranks} == {1}
    assert not [f for f in said[-1] if f.kind == "rank_lost" or "unattributed" in f.summary]
    (note,) = (f for f in said[-1] if f.kind == "monitor_degraded")
    assert note.summary.startswith("rank 2 has restarted on its own and cannot be compared")
    assert (note.ranks, note.nodes) == ((2,), ("node0",)), "the way to it"
    assert note.since_step == 209, "the run's step when its new process was heard first"


@pytest.mark.parametrize("again", [(2,), (0, 1, 3)])
def test_a_watcher_that_comes_later_says_which_ranks_have_started_anew(again: tuple[int, ...]) -> None:
    job = MadeJob(healthy_phases(4, STEPS))

    def comes_later(tick: int, rank: int, _frame: RankFrame) -> RankFrame | None:
        first = 10 * (tick - 20 * (rank in again))
        return rank_frame(rank, tick, job.columns(rank, first, first + 10)) if tick > 25 else None

    (note,) = (finding for finding in watched(job, comes_later)[-1] if finding.kind == "monitor_degraded")
    own = "rank 2 has restarted on its own" if again == (2,) else "ranks 0, 1, 3 have restarted on their own"
    assert f"{own} and cannot be compared" in note.summary


def test_of_two_halves_the_one_that_has_started_anew_is_out_of_step() -> None:
    job = MadeJob(healthy_phases(4, STEPS))

    def starts_anew(tick: int, rank: int, frame: RankFrame) -> RankFrame | None:
        if rank < 2 or tick < 20:
            return frame
        first = 10 * (tick - 20)
        return rank_frame(rank, tick - 20, job.columns(rank, first, first + 10), pid=900 + rank, sent_at=float(tick))

    said = watched(job, starts_anew)
    (note,) = (finding for finding in said[-1] if finding.kind == "monitor_degraded")
    assert "ranks 2, 3 have restarted on their own" in note.summary


def test_ranks_that_start_anew_one_after_the_other_are_compared_once_all_have() -> None:
    phases = healthy_phases(4, STEPS)
    phases["forward"][1] += 30.0
    job = MadeJob(phases)

    def starts_anew(tick: int, rank: int, frame: RankFrame) -> RankFrame | None:
        begun = 15 + rank
        if tick < begun:
            return frame if tick < 15 else None
        pid = 900 + rank if tick < 19 or rank else 950  # rank 0 even twice
        first = 10 * (tick - 15)
        return rank_frame(rank, tick, job.columns(rank, first, first + 10), pid=pid)

    said = watched(job, starts_anew)
    (finding,) = open_findings(said[-1])
    assert (finding.kind, finding.ranks) == ("straggler", (1,))


def _waits_for_longer_than_the_step(frame: RankFrame) -> RankFrame:
    values = frame.steps.values | {"exposed": np.full(len(frame.steps), 500.0, "<f4").tobytes()}
    return msgspec.structs.replace(frame, steps=msgspec.structs.replace(frame.steps, values=values))


def _all_zero(frame: RankFrame) -> RankFrame:
    values = {name: bytes(len(column)) for name, column in frame.steps.values.items()}
    return msgspec.structs.replace(frame, steps=msgspec.structs.replace(frame.steps, values=values))


@pytest.mark.parametrize("nonsense", [_waits_for_longer_than_the_step, _all_zero])
@pytest.mark.parametrize("liars", [{1}, {0, 1}])
def test_durations_that_cannot_be_blame_nobody_and_are_counted(
    nonsense: Callable[[RankFrame], RankFrame], liars: set[int]
) -> None:
    job = MadeJob(healthy_phases(2, STEPS))
    said = watched(job, lambda _, rank, frame: nonsense(frame) if rank in liars else frame)
    (finding,) = open_findings(said[-1])
    assert finding.kind == "monitor_degraded"
    assert "step records set aside" in finding.summary


@pytest.mark.filterwarnings("error")
def test_losses_as_large_as_numbers_go() -> None:
    job = MadeJob(healthy_phases(4, STEPS))

    def huge(_: int, rank: int, frame: RankFrame) -> RankFrame:
        loss = np.full(len(frame.steps), [3e38, 3e38, 3e38, np.inf][rank], "<f4").tobytes()
        steps = msgspec.structs.replace(frame.steps, values=frame.steps.values | {"loss": loss})
        return msgspec.structs.replace(frame, steps=steps)

    assert not open_findings(watched(job, huge)[-1])
