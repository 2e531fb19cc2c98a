"""Work by rank and step over the newest steps: what the heat-map draws, kept from tick to tick."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ddpmon.run.paused import marked_in, paused
from ddpmon.run.rings import F32, I64, Rings

STEPS = 512


class WorkMap:
    """The newest steps of all ranks. A table that was handed out is never written again."""

    def __init__(self, rings: Rings) -> None:
        self._rings = rings
        self._steps: I64 = np.empty(0, np.int64)
        self._work: F32 = np.empty((len(rings.last), 0), np.float32)
        self._marked: F32 = np.empty((3, 0), np.float32)

    def read(self) -> tuple[I64, F32, NDArray[np.bool_]]:
        """(steps [W], work [world, W], whether a pause that the user marked lies in it [W])."""
        rings, old = self._rings, self._steps
        newest = int(rings.last.max(initial=-1))
        steps = np.arange(max(0, newest + 1 - min(STEPS, rings.capacity)), newest + 1)
        end = min(rings.changed_from, int(old[-1]) + 1) if old.size else 0
        kept = int(np.clip(end - steps[0], 0, len(steps))) if steps.size and old.size and old[0] <= steps[0] else 0
        rings.changed_from = rings.NOTHING
        work = np.empty((len(rings.last), len(steps)), np.float32)
        marked = np.empty((3, len(steps)), np.float32)
        if kept:
            part = slice(int(steps[0] - old[0]), int(steps[0] - old[0]) + kept)
            work[:, :kept], marked[:, :kept] = self._work[:, part], self._marked[:, part]
        work[:, kept:] = rings.take("work", steps[kept:])
        marked[:, kept:] = marked_in(rings, steps[kept:])
        self._steps, self._work, self._marked = steps, work, marked
        return steps, work, paused(marked)
