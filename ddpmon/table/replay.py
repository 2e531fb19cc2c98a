"""Records as the frames that would have crossed the store, tick by tick, through the watcher's model and the judge."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
from msgspec.structs import replace

from ddpmon.diagnose.alert import Alert
from ddpmon.diagnose.judge import Judge
from ddpmon.parts import NO_HOST, BadLoss
from ddpmon.run.model import Run
from ddpmon.schema import HOST_COLUMNS, RankFrame, RunInfo, StepColumns
from ddpmon.table.fields import Array
from ddpmon.table.normalise import Records

STEPS_A_TICK = 20  # as many as a second of a fast run brings
_RUN = "table"


def replay(records: Records) -> Iterator[tuple[tuple[Alert, ...], int]]:
    """Play the records; after each tick what the judge says and the newest step.

    A rank without rows for a whole tick is taken for done, until it has some again: nobody waits for its word, and its
    silence is not held against it. It is not known what became of it.
    """
    records = _in_tick_order(records)
    run, judge, frames = Run(_info(records)), Judge(), _Frames(records)
    run.rank_count = len(np.unique(records.rank))
    silent: set[int] = set()
    for tick, parts in enumerate(_ticks(records)):
        now = float(tick)
        talking = {rank for rank, _ in parts}
        quiet = frames.seen - talking
        new = [frames.running(tick, rank, rows) for rank, rows in parts]
        run.add_ranks([*new, *(frames.done(tick, rank) for rank in quiet - silent)], now, {})
        silent = quiet
        run.settle(now)
        yield judge(run, run.ages(now)), int(records.steps[min(len(records.steps), STEPS_A_TICK * (tick + 1)) - 1])


def tick_of(records: Records) -> Array:
    """[n] the tick that each record comes in."""
    ticks: Array = np.searchsorted(records.steps, records.step) // STEPS_A_TICK
    return ticks


def _ticks(records: Records) -> Iterator[list[tuple[int, slice]]]:
    """For every tick the ranks with rows in it, each with the places of its rows; `records` are in tick order."""
    tick, rank = tick_of(records), records.rank
    cuts = np.flatnonzero((np.diff(tick) != 0) | (np.diff(rank) != 0)) + 1
    starts = np.concatenate([[0], cuts])
    ends = np.concatenate([cuts, [len(rank)]])
    parts = [(number, slice(*place)) for number, *place in np.stack([rank[starts], starts, ends], axis=1).tolist()]
    firsts = np.flatnonzero(np.diff(tick[starts], prepend=-1))
    for start, end in zip(firsts, [*firsts[1:], len(parts)], strict=True):
        yield parts[start:end]


def _in_tick_order(records: Records) -> Records:
    """The records by tick, then rank, then step: as the frames carry them."""
    order = np.lexsort((records.step, records.rank, tick_of(records)))
    return replace(
        records,
        step=records.step[order],
        rank=records.rank[order],
        values={name: column[order] for name, column in records.values.items()},
        broken_loss=records.broken_loss[order],
    )


class _Frames:
    """Makes the frames of all ranks.

    Attributes:
        seen: ranks with a frame so far.
    """

    def __init__(self, records: Records) -> None:
        self._records = records
        self._steps = records.step.astype("<i8")
        with np.errstate(over="ignore"):
            self._values = {
                name: column.astype("<f2" if name in HOST_COLUMNS else "<f4") for name, column in records.values.items()
            }
        self._hosts = {host: place for place, host in enumerate(dict.fromkeys(records.nodes.values()))}
        self._bad: dict[int, BadLoss] = {}
        self._last: dict[int, int] = {}

    @property
    def seen(self) -> set[int]:
        return set(self._last)

    def running(self, tick: int, rank: int, rows: slice) -> RankFrame:
        self._last[rank] = int(self._steps[rows.stop - 1])
        if self._records.broken_loss[rows].any():
            self._count_bad(rank, rows.start + np.flatnonzero(self._records.broken_loss[rows]))
        values = {name: column[rows].tobytes() for name, column in self._values.items()}
        return self._frame(tick, rank, StepColumns(self._steps[rows].tobytes(), values), "running")

    def done(self, tick: int, rank: int) -> RankFrame:
        return self._frame(tick, rank, StepColumns(), "finished")

    def _frame(self, tick: int, rank: int, steps: StepColumns, state: Literal["running", "finished"]) -> RankFrame:
        host = self._records.nodes.get(rank, NO_HOST)
        return RankFrame(
            run_id=_RUN,
            rank=rank,
            seq=tick,
            sent_at=float(tick),
            host=host,
            node=self._hosts.get(host, -1),
            pid=0,
            local_rank=0,
            gpu_uuid=None,
            state=state,
            phase="other",
            step=self._last[rank],
            phase_s=0.0,
            steps=steps,
            bad_loss=self._bad.get(rank),
        )

    def _count_bad(self, rank: int, rows: Array) -> None:
        before, steps = self._bad.get(rank), self._records.step[rows]
        first = int(steps[0]) if before is None else before.first_step
        value = _kind(float(self._records.values["loss"][rows[0]])) if before is None else before.value
        self._bad[rank] = BadLoss(first, int(steps[-1]), len(rows) + (before.count if before else 0), value)


def _kind(loss: float) -> Literal["nan", "inf", "-inf"]:
    return "nan" if np.isnan(loss) else "inf" if loss > 0 else "-inf"


def _info(records: Records) -> RunInfo:
    return RunInfo(
        run_id=_RUN,
        name=_RUN,
        world_size=records.world_size,
        node_keys=[],
        backend="",
        device="",
        parameters=0,
        gradient_bytes=0,
        bucket_detail=False,
        started_at=0.0,
        host="",
        pid=0,
        versions={},
    )
