"""What is seen and not said yet, and what of it one look suffices for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ddpmon.diagnose.judge import Judge
from ddpmon.diagnose.pending import Pending
from ddpmon.machine import Disk, HostFigures, HostProcess, Process, ProcessFigures
from ddpmon.parts import BadLoss
from ddpmon.run.model import Run
from ddpmon.schema import HistoryFrame, StepColumns
from tests.made_frames import RUN_ID, MadeJob, healthy_phases, node_frame, rank_frame, run_info

LOW = Disk("/work", ["checkpoints"], 1000 << 30, 5 << 30)
RANKS = 4
Frame = Callable[[int], dict[str, Any]]


class Watched:
    """A run of four ranks whose history is known, looked at once a second."""

    def __init__(self, job: MadeJob | None = None) -> None:
        self.run, self.judge, self.job = Run(run_info(RANKS)), Judge(), job or MadeJob(healthy_phases(RANKS, 400))
        self.now, self.said = 0.0, set[str]()

    def look(self, steps: int = 120, figures: HostFigures | None = None, frame: Frame = lambda _rank: {}) -> None:
        """Read the frames of a moment, at which the ranks have finished so many steps."""
        seq = int(self.now) + 1
        if not self.run.states:
            recent = [self.job.columns(rank, 0, steps) for rank in range(RANKS)]
            older = StepColumns()
            self.run.add_history(
                HistoryFrame(run_id=RUN_ID, rank=rank, recent=part, older=older) for rank, part in enumerate(recent)
            )
        for rank in range(RANKS):
            part = self.job.columns(rank, steps - 10, steps)
            self.run.add_rank(rank_frame(rank, seq, part, **frame(rank)), self.now)
        self.run.add_node(node_frame(0, seq, figures=figures or HostFigures()), self.now)
        self.judged()

    def judged(self, later_s: float = 1.0) -> None:
        """Judge, and let time go by."""
        said = self.judge(self.run, self.run.ages(self.now))
        self.said = {alert.kind for alert in said}
        self.now += later_s

    @property
    def pending(self) -> dict[str, Pending]:
        return {pending.kind: pending for pending in self.judge.pending}


def disk(reads: int) -> HostFigures:
    return HostFigures(disks=[Disk(**{name: getattr(LOW, name) for name in LOW.__struct_fields__} | {"reads": reads})])


def hogged(reads: int | None, passes: int) -> HostFigures:
    hog = HostProcess(Process(8123, [7000, 1], "bob", "python x.py"), 95.0, "2", reads=reads)
    return HostFigures(cpu_count=8, processes=[hog], readings={"processes": passes})


def starved(rank: int) -> dict[str, Any]:
    return {"process": ProcessFigures(runqueue_pct=30.0 if rank == 2 else 1.0, cpus=str(rank), compute_threads=1)}


def test_a_healthy_run_has_nothing_pending_after_the_first_look() -> None:
    watched = Watched()
    watched.look()
    assert watched.judge.pending == ()
    assert watched.said == set()


def test_a_contention_is_pending_until_enough_readings_have_shown_it() -> None:
    watched = Watched()
    seen = []
    for reads in (1, 1, 2, 3):  # the second frame tells of the same reading again
        watched.look(figures=disk(reads))
        seen.append((watched.pending.get("disk_low"), "disk_low" in watched.said))
    ranks, nodes = (0, 1, 2, 3), ("node0",)
    assert seen[:3] == [
        (Pending("disk_low", ranks, nodes, 2, 4.0), False),
        (Pending("disk_low", ranks, nodes, 2, 4.0), False),
        (Pending("disk_low", ranks, nodes, 1, 2.0), False),
    ]
    assert seen[3] == (None, True)


@pytest.mark.parametrize(("reads", "looks"), [(None, 3), (1, 3), (2, 2), (50, 2)])
def test_what_the_host_has_seen_before_the_watcher_came_counts(reads: int | None, looks: int) -> None:
    watched = Watched()
    for look in range(1, looks + 1):
        assert "cpu_contention" not in watched.said
        watched.look(figures=hogged(reads, look), frame=starved)
        assert watched.run.nodes
    assert "cpu_contention" in watched.said


def test_what_the_host_has_seen_counts_for_the_first_look_only() -> None:
    """A rank whose wait flickers beside an old process must show it in three readings, like any other."""
    watched = Watched()
    watched.look(frame=lambda rank: {"process": ProcessFigures(runqueue_pct=1.0, cpus=str(rank))})
    for look in (1, 2):
        watched.look(figures=hogged(50, look), frame=starved)
    assert "cpu_contention" not in watched.said
    assert watched.pending["cpu_contention"].confirmations == 1


def test_a_silent_rank_is_pending_until_it_is_lost() -> None:
    watched = Watched()
    watched.look()
    watched.now = 6.0
    for rank in (0, 1, 2):
        part = watched.job.columns(rank, 120, 130)
        watched.run.add_rank(rank_frame(rank, 9, part), watched.now)
    watched.judged(later_s=5.0)
    assert watched.pending["rank_lost"] == Pending("rank_lost", (3,), (), None, 4.0)
    for rank in (0, 1, 2):
        watched.run.add_rank(rank_frame(rank, 10, watched.job.columns(rank, 130, 140)), watched.now)
    watched.judged()
    assert "rank_lost" not in watched.pending
    assert "rank_lost" in watched.said


def test_a_loss_that_is_not_finite_is_pending_until_all_ranks_have_told_of_the_step() -> None:
    watched = Watched()
    bad = BadLoss(first_step=119, last_step=119, count=1, value="nan")
    watched.look(frame=lambda rank: {"bad_loss": bad} if rank == 1 else {})
    assert "nonfinite_loss" in watched.said, "all are at the step"
    watched = Watched()
    later = BadLoss(first_step=125, last_step=125, count=1, value="nan")
    watched.look(frame=lambda rank: {"bad_loss": later} if rank == 1 else {})
    assert watched.pending["nonfinite_loss"].ranks == (1,)
    assert "nonfinite_loss" not in watched.said


def test_a_straggler_is_pending_while_too_few_windows_have_shown_it() -> None:
    phases = healthy_phases(RANKS, 400)
    phases["forward"][2, 100:] *= 3
    watched, seen = Watched(MadeJob(phases)), []
    for steps in range(105, 130):
        watched.look(steps=steps)
        seen.append(watched.pending.get("straggler"))
        if "straggler" in watched.said:
            break
    assert [pending.confirmations for pending in seen if pending is not None] == [2, 1]
    assert {pending.ranks for pending in seen if pending is not None} == {(2,)}
    assert seen[-1] is None


def test_a_job_that_stands_still_is_pending_while_its_ranks_have_yet_to_tell_where() -> None:
    watched = Watched()
    watched.look(frame=lambda rank: {"state": "stalled"} if rank == 0 else {"phase": "barrier", "phase_s": 12.0})
    assert watched.pending["hang"].confirmations is None
    assert watched.pending["hang"].seconds >= 1
    assert "hang" not in watched.said


def test_the_first_look_at_a_long_history_gives_its_advice() -> None:
    phases = healthy_phases(RANKS, 400)
    phases["input"] += 60.0
    watched = Watched(MadeJob(phases))
    watched.look(steps=89)
    assert "advice" not in watched.said
    assert watched.pending["advice"].confirmations == 1, "only two windows are full"
    watched = Watched(MadeJob(phases))
    watched.look(steps=120)
    assert "advice" in watched.said
    assert "advice" not in watched.pending
