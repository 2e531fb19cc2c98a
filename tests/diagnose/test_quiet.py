"""What must not alarm; and, beside each case, the same disturbance made lasting, which must."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ddpmon.diagnose.judge import Judge
from ddpmon.run.model import Run
from ddpmon.snapshot import Finding
from tests.made_frames import Floats, MadeJob, healthy_phases, play, rank_frame, run_info

RANKS, STEPS = 4, 400
Disturbance = Callable[[dict[str, Floats], int], None]


def one_rank_slow(phases: dict[str, Floats], every: int) -> None:
    phases["forward"][1, 60::every] += 400.0


def collections_in_turn(phases: dict[str, Floats], every: int) -> None:
    for rank in range(RANKS if every >= 100 else 1):
        phases["forward"][rank, 60 + 7 * rank :: every] += 50.0


def checkpoints_of_rank_0(phases: dict[str, Floats], every: int) -> None:
    phases["other"][0, 60::every] += 2000.0


def epochs_begin(phases: dict[str, Floats], every: int) -> None:
    for rank in range(RANKS if every >= 60 else 1):
        phases["input"][rank, 60::every] += 120.0


def last_batches_are_short(phases: dict[str, Floats], every: int) -> None:
    for name in ("forward", "backward"):
        phases[name][:3, 60::every] *= 0.3  # the last rank's shard holds a whole batch more


def alarms(job: MadeJob) -> list[Finding]:
    """All that was ever said above information."""
    return [finding for findings in play(job) for finding in findings if finding.severity != "info"]


@pytest.mark.parametrize(
    ("disturb", "rare", "frequent"),
    [
        (one_rank_slow, 1000, 10),
        (collections_in_turn, 100, 4),
        (checkpoints_of_rank_0, 100, 20),
        (epochs_begin, 60, 5),
        (last_batches_are_short, 60, 1),
    ],
)
def test_what_comes_rarely_is_no_trouble(disturb: Disturbance, rare: int, frequent: int) -> None:
    said = []
    for every in (rare, frequent):
        phases = healthy_phases(RANKS, STEPS)
        disturb(phases, every)
        said.append(alarms(MadeJob(phases)))
    assert said[0] == []
    assert {finding.kind for finding in said[1]} & {"straggler", "intermittent_straggler"}


@pytest.mark.parametrize("jump", [-1e6, 1e6])
def test_a_clock_that_jumps_is_none_of_our_business(jump: float) -> None:
    job = MadeJob(healthy_phases(RANKS, STEPS))
    run, judge = Run(run_info(RANKS)), Judge()
    for tick in range(STEPS // 10):
        for rank in range(RANKS):
            sent_at = tick + (jump if rank == 2 and tick > 20 else 0.0)
            part = job.columns(rank, 10 * tick, 10 * tick + 10)
            run.add_rank(rank_frame(rank, tick + 1, part, sent_at=sent_at), float(tick))
        assert [finding for finding in judge(run, run.ages(float(tick))) if finding.severity != "info"] == []


def test_steps_that_come_late_are_waited_for() -> None:
    job = MadeJob(healthy_phases(RANKS, STEPS))
    run, judge = Run(run_info(RANKS)), Judge()
    for tick in range(STEPS // 10):
        for rank in range(RANKS):
            behind = 3 if rank == 3 else 0  # its frames are three seconds old when they come
            if tick >= behind:
                first = 10 * (tick - behind)
                run.add_rank(rank_frame(rank, tick + 1, job.columns(rank, first, first + 10)), float(tick))
        assert [finding for finding in judge(run, run.ages(float(tick))) if finding.severity != "info"] == []
    assert len(run.finished_steps(STEPS)) == STEPS - 30
