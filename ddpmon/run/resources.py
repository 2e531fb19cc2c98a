"""What every rank's process and GPU used over the last minutes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

OWN = ("cpu_pct", "runqueue_pct", "rss_bytes", "gpu_allocated")  # of the rank's process; the others are of its GPU
RESOURCES = ("step", *OWN, "gpu_utilization_pct", "gpu_power_w", "gpu_clock_mhz")
_UNITS = np.array([1 << 30 if name in ("rss_bytes", "gpu_allocated") else 1 for name in RESOURCES[1:]], np.float64)
_LARGEST = float(np.finfo(np.float16).max)
_POINTS, _FEWEST_POINTS = 600, 64  # a rank
_ALL_POINTS = 1 << 18
_HOLDS = 64  # steps for which a reading is drawn: as long as the next one may take at 1 Hz and 15 ms a step
_RANKS_EVERY_SECOND = 1024  # of so many ranks each frame is taken down, of more every second one, every third, ...
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Resources:
    """The last points of every rank: the figures of `RESOURCES` at one moment each, NaN where unknown."""

    def __init__(self, world_size: int) -> None:
        self._every = -(-world_size // _RANKS_EVERY_SECOND)
        self._most = min(_POINTS, max(_FEWEST_POINTS, _ALL_POINTS // world_size))
        # Steps are counted exactly, in int32 until one is above 2^31. The other figures are drawn with three digits, as
        # many as half precision has; it ends at 65,504, so memory is kept in GiB.
        self._steps: NDArray[np.int32] | Ints = np.zeros((world_size, self._most), np.int32)
        self._figures = np.zeros((world_size, self._most, len(RESOURCES) - 1), np.float16)
        self._count: Ints = np.zeros(world_size, np.int64)

    def due(self, ranks: Ints, before: Ints, now: Ints) -> NDArray[np.bool_]:
        """[n] whether these ranks' new frames are taken down; `before` and `now` are their last and new numbers."""
        turn = (ranks + now) // self._every != (ranks + before) // self._every
        found: NDArray[np.bool_] = turn | (self._count[ranks] == 0)
        return found

    def add(self, ranks: Ints, points: Floats) -> None:
        """Take down one point [n, len(RESOURCES)] of each of these ranks."""
        if self._steps.dtype != np.int64 and points[:, 0].max(initial=0) > np.iinfo(np.int32).max:
            self._steps = self._steps.astype(np.int64)
        cells = ranks, self._count[ranks] % self._most
        self._steps[cells], self._figures[cells] = points[:, 0], np.clip(points[:, 1:] / _UNITS, -_LARGEST, _LARGEST)
        self._count[ranks] += 1

    def forget(self, rank: int) -> None:
        """Forget a rank that has restarted: the steps of its readings have the numbers of later ones."""
        self._count[rank] = 0

    def of(self, rank: int) -> Floats:
        """[M, len(RESOURCES)] the points of a rank, oldest first."""
        count = int(self._count[rank])
        points: Floats = np.column_stack([self._steps[rank], self._figures[rank] * _UNITS])
        return points[:count] if count <= self._most else np.roll(points, -(count % self._most), axis=0)

    def over(self, name: str, steps: Ints) -> NDArray[np.float32]:
        """[world, steps] a figure of `RESOURCES` as it was read last at each of these steps (ascending, contiguous).

        NaN before the first reading. A reading holds until the next one, or for `_HOLDS` steps.
        """
        found = np.full((len(self._count), len(steps)), np.nan, np.float32)
        if not steps.size:
            return found
        seen = np.arange(self._most) < self._count[:, None]
        rows, points = np.nonzero(seen & (self._steps >= steps[0]) & (self._steps <= steps[-1]))
        order = np.argsort(self._steps[rows, points], kind="stable")
        rows, points = rows[order], points[order]
        place = RESOURCES.index(name) - 1
        found[rows, self._steps[rows, points] - steps[0]] = self._figures[rows, points, place] * _UNITS[place]
        at = np.where(np.isfinite(found), np.arange(len(steps)), -1)
        last = np.maximum.accumulate(at, axis=1)
        held = np.take_along_axis(found, np.maximum(last, 0), axis=1)
        return np.where((last >= 0) & (np.arange(len(steps)) - last <= _HOLDS), held, np.float32(np.nan))
