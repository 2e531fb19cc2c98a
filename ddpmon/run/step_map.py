"""The newest steps of all ranks as a table of lateness and as a few figures a step, worked out for new steps only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ddpmon.run.medians import lateness_beside, row_medians, some_of
from ddpmon.run.rings import F32, I64, Rings

STEPS = 512
# So many ranks, evenly spaced, stand for the typical one: their median is that of all within the spread of healthy
# ranks, and of 4,096 ranks a sixteenth is sorted. Chosen, not measured.
MOST_RANKS = 256
TYPICAL = ("duration", "loss")
# Each rank samples the all-reduce window once a second, at a step of its own: of steps of 1 ms once in 1,000 steps.
SAMPLED_WITHIN = 1024  # steps
_MOST_SAMPLED = 0.5  # of the ranks: more than that stand for the others. Chosen, not measured.
# Of steps that are worked out together. Their tables have less than 2 MiB: glibc maps larger ones by themselves, and
# fresh pages take longer than the work.
_CELLS_AT_ONCE = 1 << 17
SPARE = 32  # steps that a table has room for beyond the newest one: 0.5 MB at 4,096 ranks. Chosen, not measured.
_FIGURES = 5 + len(TYPICAL)  # a step: base, ranks known, the worst lateness, whose it is, typical figures, all-reduce
F64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class NewestSteps:
    """The W newest steps, ascending. What a table holds is never written again; only what lies behind it is.

    Attributes:
        step: [W] their numbers.
        lateness: [world, W] in ms, NaN where a rank has no record of the step.
        column: [world, W] the column that was asked for besides; None if none was.
        base_ms: [W] what a step takes if no rank is late: median work and the transfer that no rank could hide.
        known: [W] of how many ranks the lateness is known; of a run of one rank of none.
        worst_ms, worst_rank: [W] the largest lateness, and whose it is; NaN and -1 where nobody's is known.
        duration_ms, loss: [W] medians over at most 256 ranks, evenly spaced, NaN where unknown.
        allreduce_ms: [W] of the steps that some of these ranks have sampled the median of the newest sample of each.
    """

    step: I64
    lateness: F32
    column: F32 | None
    base_ms: F32
    known: F64
    worst_ms: F64
    worst_rank: I64
    duration_ms: F64
    allreduce_ms: F64
    loss: F64


class StepMap:
    """Remembers what was worked out of the newest steps, as far as no rank has told anything new of them.

    Args:
        rings: the steps of all ranks.
    """

    def __init__(self, rings: Rings) -> None:
        self._rings = rings
        self._heard: NDArray[np.bool_] = np.zeros(len(rings.last), np.bool_)  # the ranks that have ever told of a step
        self._some: I64 = np.empty(0, np.int64)  # those of them that stand for the typical one
        self._column, self._apart, self._late = "", self._heard, self._heard
        self._tables = _Tables(np.empty((1, 0, len(rings.last)), np.float32))
        self._figures: F64 = np.empty((_FIGURES, 0))
        self._known = _newest_steps(np.empty(0, np.int64), self._tables.shown, self._figures)

    def read(
        self, column: str = "", apart: NDArray[np.bool_] | None = None, late: NDArray[np.bool_] | None = None
    ) -> NewestSteps:
        """The newest steps; the same object again if nothing is new.

        Args:
            column: one of the rings, whose table is wanted besides; empty for none.
            apart: [world] ranks whose steps are of other times than the steps of the same numbers; None for nobody.
            late: [world] ranks that findings call late, with which no other rank is compared; None for nobody.
        """
        apart, late = (np.zeros_like(self._heard) if some is None else some for some in (apart, late))
        rings, old = self._rings, self._known.step
        newest = int(rings.last.max(initial=-1))
        steps = np.arange(max(0, newest + 1 - min(STEPS, rings.capacity)), newest + 1)
        is_same = column == self._column and np.array_equal(apart, self._apart) and np.array_equal(late, self._late)
        is_as_before = not self._choose() and is_same
        end = min(rings.changed_from, int(old[-1]) + 1) if old.size and is_as_before else 0
        kept = int(np.clip(end - steps[0], 0, len(steps))) if steps.size and old.size and old[0] <= steps[0] else 0
        rings.changed_from = rings.NOTHING
        if is_as_before and kept == len(steps) == len(old):
            return self._known
        self._apart, self._late = apart, late
        tables, figures = self._work_out(steps[kept:], column)
        if kept:
            first = int(steps[0] - old[0])
            figures = np.concatenate([self._figures[:, first : first + kept], figures], axis=1)
            self._tables.go_on(first, kept, tables)
        else:
            self._tables = _Tables(tables)
        self._figures = figures
        self._column, self._known = column, _newest_steps(steps, self._tables.shown, self._figures)
        return self._known

    def _choose(self) -> bool:
        """Choose the ranks that stand for the typical one, if some have told of a step for the first time."""
        heard = self._heard | (self._rings.last >= 0)
        if np.array_equal(heard, self._heard):
            return False
        self._heard, self._some = heard, some_of(np.flatnonzero(heard), MOST_RANKS)
        return True

    def _work_out(self, steps: I64, column: str) -> tuple[F32, F64]:
        """Of these steps the tables [1 or 2, steps, world] and the figures [_FIGURES, steps]."""
        at_once = max(1, _CELLS_AT_ONCE // len(self._heard))
        parts = [self._work_out_part(steps[at : at + at_once], column) for at in range(0, len(steps) or 1, at_once)]
        tables, figures = zip(*parts, strict=True)
        return np.concatenate(tables, axis=1), np.concatenate(figures, axis=1)

    def _work_out_part(self, steps: I64, column: str) -> tuple[F32, F64]:
        work, wait, *shown = self._rings.takes(("work", "wait", *([column] if column else [])), steps)
        if self._apart.any():
            work[self._apart] = wait[self._apart] = np.nan
            for table in shown:
                table[self._apart] = np.nan
        late, middle = lateness_beside(work, self._late)
        worst = np.fmax.reduce(late, axis=0)
        rank = np.where(np.isfinite(worst), (late == worst).argmax(axis=0), -1)
        base = middle + np.fmin.reduce(wait, axis=0)
        some = self._some[~self._apart[self._some]] if self._apart.any() else self._some
        typical = [row_medians(table.T) for table in self._rings.takes(TYPICAL, steps, some)]
        known = np.count_nonzero(~np.isnan(late), axis=0)
        return np.array([table.T for table in (late, *shown)], np.float32), np.array(
            [base, known, worst, rank, *typical, self._allreduce(steps, some)], np.float64
        )

    def _allreduce(self, steps: I64, some: I64) -> F32:
        """[steps] the median of the newest sample of each rank, in the steps that one of them has sampled.

        A late rank has a short window and the others have long ones: medians of the samples of one step alone would
        jump from one rank to another.
        """
        table = self._rings.takes(("allreduce",), steps, some)[0]
        known = ~np.isnan(table)
        if known.all() or not known.any():
            return row_medians(table.T)
        before = min(SAMPLED_WITHIN, self._rings.capacity - len(steps))
        longer = np.arange(max(int(steps[0]) - before, 0), steps[-1] + 1)
        newest = _newest_known(self._rings.takes(("allreduce",), longer, some)[0])[:, -len(steps) :]
        told = np.count_nonzero(~np.isnan(newest), axis=0) > _MOST_SAMPLED * len(some)
        return np.where(known.any(axis=0) & told, row_medians(newest.T), np.float32(np.nan))


def _newest_known(table: F32) -> F32:
    """[ranks, steps] the newest known value of each rank up to each step."""
    places = np.where(np.isnan(table), 0, np.arange(table.shape[1]))
    return np.take_along_axis(table, np.maximum.accumulate(places, axis=1), axis=1)


class _Tables:
    """Tables over steps that go on: new steps are written behind the old ones, which many pictures then share.

    Args:
        tables: [any, steps, world] of the first steps.

    Attributes:
        shown: [any, W, world] the steps that are known now.
    """

    def __init__(self, tables: F32) -> None:
        self.shown = self._room = tables
        self._first = 0  # where `shown` begins in `_room`

    def go_on(self, first: int, kept: int, more: F32) -> None:
        """Show `kept` steps from the place `first` on, and `more` behind them."""
        begin = self._first + first
        old_end, kept_end = self._first + self.shown.shape[1], begin + kept
        end = kept_end + more.shape[1]
        if kept_end < old_end or end > self._room.shape[1]:  # steps that are shown already, or no room
            room = np.empty((len(more), kept + more.shape[1] + SPARE, more.shape[2]), np.float32)
            room[:, :kept] = self._room[:, begin:kept_end]
            self._room, begin, kept_end, end = room, 0, kept, kept + more.shape[1]
        self._room[:, kept_end:end] = more
        self._first, self.shown = begin, self._room[:, begin:end]


def _newest_steps(steps: I64, tables: F32, figures: F64) -> NewestSteps:
    base, known, worst, rank, duration, loss, allreduce = figures
    column = tables[1].T if len(tables) > 1 else None
    whose = rank.astype(np.int64)
    return NewestSteps(
        steps, tables[0].T, column, base.astype(np.float32), known, worst, whose, duration, allreduce, loss
    )
