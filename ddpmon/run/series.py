"""The whole run as one line a quantity: loss, throughput and step time over all steps, decimated where it is old."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ddpmon.run.medians import row_medians
from ddpmon.run.rings import F32, I64
from ddpmon.schema import HistoryFrame, StepColumns

MAX_POINTS = 2048
_FRESH = 512  # points kept one a step
QUANTITIES = ("step", "loss", "loss_low", "loss_high", "throughput", "step_ms")
Points = NDArray[np.float64]  # [n, 6], one column a quantity


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
        """[n, 6] all points, n at most 2,048."""
        return np.concatenate([self._old, self._fresh])

    def seed(self, histories: Sequence[HistoryFrame]) -> None:
        """Start from what the ranks remember of the time before this watcher came."""
        older = [frame.older for frame in histories if len(frame.older)]
        if not older or self.newest >= 0:
            return
        stride = max(columns.stride for columns in older)
        aligned = [_by_stride(columns, stride) for columns in older]
        steps = np.unique(np.concatenate([steps for steps, _ in aligned]))
        table = {name: np.full((len(aligned), len(steps)), np.nan) for name in ("loss", "samples", "duration")}
        for row, (own_steps, columns) in enumerate(aligned):
            at = np.searchsorted(steps, own_steps)
            for name, target in table.items():
                target[row, at] = columns[name]
        self._append(_points(steps, table["loss"], table["samples"], table["duration"]))

    def add(self, steps: I64, loss: F32, samples: F32, duration: F32) -> None:
        """Append steps newer than all before; arrays are [world, len(steps)]."""
        fresh = steps > self.newest
        if fresh.any():
            self._append(_points(steps[fresh], loss[:, fresh], samples[:, fresh], duration[:, fresh]))

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


def _points(steps: NDArray[np.int64], loss: Points | F32, samples: Points | F32, duration: Points | F32) -> Points:
    duration_ms = row_medians(np.asarray(duration, np.float64).T)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a step without any loss stays NaN
        total = np.where(np.isnan(samples).all(axis=0), 1.0, np.nansum(samples, axis=0))
        low, high = np.nanmin(loss, axis=0), np.nanmax(loss, axis=0)
        middle = row_medians(np.asarray(loss, np.float64).T)
        throughput = np.where(duration_ms > 0, total / duration_ms * 1e3, np.nan)
    return np.column_stack([steps, middle, low, high, throughput, duration_ms]).astype(np.float64)


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


def _by_stride(columns: StepColumns, stride: int) -> tuple[I64, dict[str, Points]]:
    """A rank's decimated past at a coarser stride: (steps, column -> means)."""
    steps = np.frombuffer(columns.step, "<i8").clip(0, 1 << 48) // stride * stride
    unique, inverse = np.unique(steps, return_inverse=True)
    out = {}
    for name in ("loss", "samples", "duration"):
        data = columns.values.get(name)
        values = np.full(len(steps), np.nan) if data is None else np.frombuffer(data, "<f4").astype(np.float64)
        known = ~np.isnan(values)
        counts = np.bincount(inverse, known, len(unique))
        sums = np.bincount(inverse, np.where(known, values, 0), len(unique))
        out[name] = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return unique.astype(np.int64), out
