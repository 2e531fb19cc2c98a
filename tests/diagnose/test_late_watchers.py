"""A watcher that attaches late gives no other onset than one that has seen the whole run: the same step, or a bound."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from ddpmon.diagnose.alert import Alert
from ddpmon.diagnose.judge import Judge
from ddpmon.run.model import Run
from ddpmon.schema import HistoryFrame, StepColumns
from tests.made_frames import RUN_ID, MadeJob, healthy_phases, mark, noisy, rank_frame, run_info

STEPS, ONSET, RECENT, A_TICK = 700, 150, 256, 10
NEAR = 5  # steps that an onset may be off by the noise


def watch(
    job: MadeJob, attaches_at: int, names: dict[int, str] | None = None, unheard: Sequence[int] = ()
) -> Iterator[list[Alert]]:
    """What lasts, tick by tick, for a watcher that comes at a step and reads what the ranks remember.

    Two ranks share a host. `names` are those of the steps in which rank 0 is in a named phase; `unheard` are the ranks
    whose frames cannot be read at the first two ticks.
    """
    run, judge = Run(run_info(job.ranks)), Judge()
    if attaches_at:
        recent = range(max(0, attaches_at - RECENT), attaches_at)
        past = [job.columns(rank, recent.start - rank % 4, recent.stop - rank % 4) for rank in range(job.ranks)]
        run.add_history(
            HistoryFrame(run_id=RUN_ID, rank=r, recent=own, older=StepColumns()) for r, own in enumerate(past)
        )
    for tick, first in enumerate(range(attaches_at, job.steps, A_TICK)):
        part = range(max(0, first - A_TICK), first + A_TICK)
        marks = [mark(step, name, 900.0) for step, name in (names or {}).items() if step in part]
        for rank in range(job.ranks):
            own = marks if rank == 0 else []
            frame = rank_frame(rank, tick, job.columns(rank, part.start, part.stop), marks=own, **host(rank))
            if tick >= 2 or rank not in unheard:
                run.add_rank(frame, float(tick))
        run.settle(float(tick))
        yield [alert for alert in judge(run, run.ages(float(tick))) if alert.cleared_at_step is None]


def host(rank: int) -> dict[str, object]:
    """What the frame of a rank says of its host."""
    return {"host": f"node{rank // 2}", "node": rank // 2}


def is_true_of(alert: Alert, onset: int) -> bool:
    """Whether the trouble began when the alert says."""
    off = (alert.since_step or 0) - onset
    return off >= -NEAR if alert.since_is_bound else abs(off) <= NEAR


def late_rank(ranks: int, ms: float, seed: int) -> MadeJob:
    """Rank 1 is late in every step from `ONSET` on."""
    phases = healthy_phases(ranks, STEPS, 0.06, seed)
    phases["backward"][1, ONSET:] += ms * noisy(1, STEPS - ONSET, 1.0, 0.3, seed + 99)[0]
    return MadeJob(phases)


@pytest.mark.parametrize("ranks", [4, 8])
@pytest.mark.parametrize("seed", range(3))
def test_the_onset_of_a_straggler_is_right_or_a_bound_whenever_a_watcher_attaches(ranks: int, seed: int) -> None:
    job, told = late_rank(ranks, 13.0, seed), 0
    for attaches_at in range(300 + 20 * seed, STEPS - 20, 60):  # each seed at other steps
        for alerts in watch(job, attaches_at):
            for alert in alerts:
                if alert.kind == "straggler":
                    told += 1
                    assert alert.ranks == (1,)
                    assert is_true_of(alert, ONSET), (attaches_at, alert.since_step, alert.since_is_bound)
    assert told > 100


def test_an_onset_that_a_late_watcher_sees_is_exact() -> None:
    phases = healthy_phases(4, STEPS)
    phases["backward"][1, 500:] += 40.0
    last = [*watch(MadeJob(phases), 420)][-1]
    assert [(each.kind, each.since_step, each.since_is_bound) for each in last] == [("straggler", 500, False)]


def test_uneven_work_is_older_than_the_step_at_which_it_was_shown() -> None:
    job = MadeJob(healthy_phases(8, STEPS, cv=0.3))
    for attaches_at in (0, 400):
        found = [alert for alerts in watch(job, attaches_at) for alert in alerts if alert.kind == "uneven_work"]
        assert found
        assert all(alert.since_is_bound for alert in found)


def test_the_first_of_the_pauses_is_known_to_who_has_seen_the_run_from_its_beginning() -> None:
    phases, at = healthy_phases(4, STEPS), range(99, STEPS, 100)
    phases["other"][0, list(at)] += 900.0
    marked = np.zeros((4, STEPS))
    marked[0, list(at)] = 900.0
    job, names = MadeJob(phases, marked=marked), dict.fromkeys(at, "checkpoint")
    for attaches_at, onset in ((0, (99, False)), (400, (399, True)), (450, (499, True))):
        pauses = [alert for alerts in watch(job, attaches_at, names) for alert in alerts if alert.kind == "pause"]
        assert {(each.since_step, each.since_is_bound) for each in pauses} == {onset}


def test_the_first_long_step_is_known_to_who_has_seen_the_run_from_its_beginning() -> None:
    phases = healthy_phases(4, STEPS)
    phases["input"][2, [200, 500]] += 9000.0
    for attaches_at, onset in ((0, (200, False)), (510, (500, True))):
        pauses = [alert for alerts in watch(MadeJob(phases), attaches_at) for alert in alerts if alert.kind == "pause"]
        assert {(each.since_step, each.since_is_bound) for each in pauses} == {onset}


def test_a_straggler_has_its_host_once_its_frame_can_be_read() -> None:
    phases = healthy_phases(4, 400)
    phases["input"][3] += 40.0
    last = [*watch(MadeJob(phases), 300, unheard=(2, 3))][-1]
    assert [(each.kind, each.ranks, each.nodes) for each in last] == [("straggler", (3,), ("node1",))]


def test_a_slow_host_is_found_once_the_frames_of_its_ranks_can_be_read() -> None:
    phases = healthy_phases(8, 400)
    phases["input"][2:4] += 40.0
    last = [*watch(MadeJob(phases), 300, unheard=range(2, 8))][-1]
    assert [(each.kind, each.ranks, each.nodes) for each in last] == [("slow_node", (2, 3), ("node1",))]
