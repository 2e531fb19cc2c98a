"""The whole run as one line a quantity: loss, throughput and step time over all steps, decimated where it is old."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ddpmon.run.medians import row_medians
from ddpmon.run.rings import F32, I64
from ddpmon.schema import StepColumns

MAX_POINTS = 2048
_FRESH = 512  # points kept one a step
_MOST_TOLD = 0.5  # of a step's ranks: more than that stand for those that did not tell of it. Chosen, not measured.
QUANTITIES = ("step", "loss", "loss_low", "loss_high", "throughput", "step_ms", "share")
SEEDS = ("loss", "samples", "duration")
# [n, 7], one column a quantity. `share` is that of the run's ranks whose samples the throughput has; NaN where none are
# logged, or where it was not taken down.
Points = NDArray[np.float64]


class RunSeries:
    """Points in step order: the last few hundred one a step, those before as means over a stride that doubles.

    Attributes:
        newest: the last step taken in, -1 before the first.
    """

    def __init__(self) -> None:
        self._old: Points = np.empty((0, len(QUANTITIES)))
        self._fresh: Points = np.empty((0, len(QUANTITIES)))
        self._stride = 1
        self.newest = -1

    @property
    def points(self) -> Points:
        """[n, 7] all points, n at most 2,048."""
        return np.concatenate([self._old, self._fresh])

    def throughput(self, share: float) -> Points:
        """[n] the throughput of all points, of so large a `share` of the run's ranks where it counts samples."""
        points = self.points
        found: Points = points[:, 4] * np.where(np.isnan(points[:, 6]), 1.0, share / points[:, 6])
        return found

    def seed(self, past: Mapping[int, StepColumns], away: NDArray[np.bool_], share: float) -> None:
        """Start from what the ranks remember of the time before this watcher came.

        Args:
            past: rank -> what it remembers.
            away: [world] the ranks that are at other steps.
            share: that of all ranks which is not at other steps.
        """
        older = [columns for rank, columns in past.items() if len(columns) and not away[rank]]
        if not older or self.newest >= 0:
            return
        stride = max(columns.stride for columns in older)
        aligned = [_by_stride(part, stride) for part in _alike(older)]
        steps = np.unique(np.concatenate([steps for steps, _ in aligned]))
        found = np.full((len(SEEDS), len(older), len(steps)), np.nan, np.float32)
        row = 0
        for own_steps, tables in aligned:
            at = np.searchsorted(steps, own_steps)
            rows = slice(row, row + len(tables["loss"]))
            for name, target in zip(SEEDS, found, strict=True):
                target[rows, at] = tables[name]
            row = rows.stop
        self._append(_points(steps, found, round(share * len(away)), share))

    def restore(self, points: Points) -> None:
        """Begin with points that were taken down before, in step order, without their share."""
        self._append(np.column_stack([points, np.full(len(points), np.nan)]))

    def add(self, steps: I64, tables: F32, ranks: int, share: float) -> None:
        """Append steps newer than all before.

        Args:
            steps: their numbers.
            tables: [3, ranks that tell, len(steps)] loss, samples and duration.
            ranks: how many make these steps.
            share: that of all ranks which is not at other steps.
        """
        fresh = steps > self.newest
        if fresh.any():
            self._append(_points(steps[fresh], tables[:, :, fresh], ranks, share))

    def _append(self, points: Points) -> None:
        self._fresh = np.concatenate([self._fresh, points])
        if len(self._fresh):
            self.newest = int(self._fresh[-1, 0])
        if len(self._fresh) > _FRESH:
            self._retire()

    def _retire(self) -> None:
        """Move all but the newest points to the old ones, whole strides only."""
        keys = self._fresh[:, 0] // self._stride
        cut = int(np.searchsorted(keys, keys[-_FRESH // 2]))
        self._old = np.concatenate([self._old, _merged(self._fresh[:cut], self._stride)])
        self._fresh = self._fresh[cut:]
        while len(self._old) > MAX_POINTS - 2 * _FRESH:
            self._stride *= 2
            self._old = _merged(self._old, self._stride)


def _points(steps: I64, tables: F32, ranks: int, share: float) -> Points:
    """The points of these steps; `tables` [3, ranks, steps] are `SEEDS`."""
    loss, samples, duration = tables
    duration_ms = row_medians(np.asarray(duration, np.float64).T)
    told = (~np.isnan(duration)).sum(axis=0)
    shares = np.array([share_taken(count, ranks) for count in told.tolist()])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a step without any loss stays NaN
        unknown = np.isnan(samples).all(axis=0)
        total = np.where(unknown, 1.0, np.nansum(samples, axis=0) / shares)
        low, high = np.nanmin(loss, axis=0), np.nanmax(loss, axis=0)
        middle = row_medians(np.asarray(loss, np.float64).T)
        throughput = np.where(duration_ms > 0, total / duration_ms * 1e3, np.nan)
    counted = np.where(unknown, np.nan, share)
    return np.column_stack([steps, middle, low, high, throughput, duration_ms, counted]).astype(np.float64)


def share_taken(told: int, ranks: int) -> float:
    """The share of what `ranks` ranks take in a step that those have taken that tell; NaN unless most tell.

    The others take part in the step, too, and have taken as much on average.
    """
    share = told / max(ranks, 1)
    return min(share, 1.0) if share > _MOST_TOLD else math.nan


def _merged(points: Points, stride: int) -> Points:
    """Points of the same stride as one: means, and the extremes of the band. Missing values are left out."""
    if not len(points):
        return points
    starts = np.unique(points[:, 0] // stride, return_index=True)[1]
    known = ~np.isnan(points)
    counts = np.add.reduceat(known, starts, axis=0, dtype=np.int64)
    sums = np.add.reduceat(np.where(known, points, 0), starts, axis=0)
    merged = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    merged[:, 0] = points[starts, 0]
    merged[:, 2] = np.fmin.reduceat(points[:, 2], starts)
    merged[:, 3] = np.fmax.reduceat(points[:, 3], starts)
    return merged


def seeds(older: StepColumns) -> StepColumns:
    """Of a rank's decimated past what the series is made of."""
    return StepColumns(older.step, {name: older.values[name] for name in SEEDS if name in older.values}, older.stride)


def _alike(older: Sequence[StepColumns]) -> list[list[StepColumns]]:
    """Pasts of the same steps, together."""
    groups: dict[tuple[bytes, int], list[StepColumns]] = {}
    for columns in older:
        groups.setdefault((columns.step, columns.stride), []).append(columns)
    return list(groups.values())


def _by_stride(alike: Sequence[StepColumns], stride: int) -> tuple[I64, dict[str, F32]]:
    """Decimated pasts of the same steps at a coarser stride: (steps, column -> [ranks, steps] means)."""
    steps = np.frombuffer(alike[0].step, "<i8").clip(0, 1 << 48) // stride * stride
    order = np.argsort(steps, kind="stable")
    unique, starts = np.unique(steps[order], return_index=True)
    blank = np.full(len(steps), np.nan, "<f4").tobytes()
    out: dict[str, F32] = {}
    for name in SEEDS:
        data = b"".join([columns.values.get(name, blank) for columns in alike])
        values = np.frombuffer(data, "<f4").reshape(len(alike), -1)[:, order]
        known = ~np.isnan(values)
        counts = np.add.reduceat(known, starts, axis=1, dtype=np.int64)
        with np.errstate(over="ignore", invalid="ignore"):  # hostile values
            sums = np.add.reduceat(np.where(known, values, np.float32(0)), starts, axis=1, dtype=np.float64)
            out[name] = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan).astype(np.float32)
    return unique.astype(np.int64), out
