"""A watcher over a made-up job: frames go through the Run and the Judge as they do live, at 1 Hz."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from detection_cells import Cell
from detection_job import Job
from detection_truth import Outcome, Tick, score
from numpy.typing import NDArray

from ddpmon.diagnose.judge import Judge
from ddpmon.report.sentences import in_words
from ddpmon.run.model import Run
from ddpmon.schema import Mark, RankFrame, RunInfo, StepColumns

RUN_ID = "synthetic"
_OVERLAP = 4  # steps that a frame repeats from the one before


def judge_cell(cell: Cell, seed: int) -> Outcome:
    """One seed of a cell, from the generator to the score."""
    job = cell.job(seed)
    ended = step_ends(job)
    return score(list(watch(job)), job.episodes, job.natural, ended.tolist())


def step_ends(job: Job) -> NDArray[np.float64]:
    """[T] seconds from the start to the end of each step."""
    ended: NDArray[np.float64] = job.pace(job.work, job.transfer).cumsum() / 1e3
    return ended


def watch(job: Job) -> Iterator[Tick]:
    """What a 1 Hz watcher says: each rank publishes at its own moment of the second, so their news are uneven."""
    run, judge = Run(run_info(job)), Judge()
    ended = step_ends(job)
    offsets, blobs = job.rng.random(job.ranks), job.columns()
    sent = np.zeros(job.ranks, np.int64)
    for second in range(1, int(np.ceil(ended[-1])) + 2):
        now = float(second)
        published = np.floor(now - offsets) + offsets
        upto = np.searchsorted(ended, published, side="right")
        for rank in range(job.ranks):
            if published[rank] >= 0:
                first = max(0, int(sent[rank]) - _OVERLAP)
                frame = rank_frame(job, blobs, rank, second, range(first, int(upto[rank])))
                run.add_rank(frame, now, now - float(published[rank]))
        sent = upto
        run.settle(now)
        yield Tick(now, int(upto.min()) - 1, in_words(judge(run, run.ages(now))))


def run_info(job: Job) -> RunInfo:
    """What rank 0 would say of the job."""
    return RunInfo(
        run_id=RUN_ID, name="synthetic", world_size=job.ranks, node_keys=list(range(0, job.ranks, job.host_size)),
        backend="gloo", device="cpu", parameters=1 << 20, gradient_bytes=4 << 20, bucket_detail=False,
        started_at=0.0, host="node0", pid=100, versions={},
    )  # fmt: skip


def rank_frame(
    job: Job, blobs: dict[str, NDArray[np.float32]], rank: int, seq: int, steps: range, offset: int = 0
) -> RankFrame:
    """One rank's frame with the records of `steps`; `blobs` [n, T] begin at step `offset`."""
    part = slice(steps.start - offset, steps.stop - offset)
    columns = StepColumns(
        step=np.arange(steps.start, steps.stop, dtype="<i8").tobytes(),
        values={name: table[rank, part].tobytes() for name, table in blobs.items()},
    )
    marks = [Mark(s, name, float(job.marked[rank, s])) for s, name in job.mark_names.items() if s in steps]
    node = rank // job.host_size
    return RankFrame(
        run_id=RUN_ID, rank=rank, seq=seq, sent_at=float(seq), host=f"node{node}", node=node, pid=100 + rank,
        local_rank=rank % job.host_size, gpu_uuid=None, state="running", phase="backward", step=steps.stop - 1,
        phase_s=0.05, steps=columns, marks=[mark for mark in marks if mark.ms > 0], gradient_bytes=4 << 20,
        bucket_count=1,
    )  # fmt: skip
