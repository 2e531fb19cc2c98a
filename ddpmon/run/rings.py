"""The last steps of every rank: one [world, capacity] array a column, where step s lies in slot s % capacity."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ddpmon.schema import StepColumns

F32 = NDArray[np.float32]
I64 = NDArray[np.int64]

MEASURED = ("duration", "input", "forward", "backward", "optimizer", "exposed", "barrier", "marked", "allreduce", "gc")
LOGGED = ("loss", "samples")
DERIVED = ("work", "other", "wait")
_LARGEST_MS = 1e9
_LONGEST_WAIT = 1.5  # of the step's duration: the two are measured by different clocks on a GPU
_LARGEST_STEP = 1 << 48
_CELLS = 1 << 20


def capacity_for(world_size: int) -> int:
    """Steps kept a rank: what a million cells a column allow, from 64 to 2,048."""
    return int(min(2048, max(64, _CELLS // world_size)))


class Rings:
    """All ranks' recent steps, aligned by step number.

    Attributes:
        step: [world, capacity] the step in each slot, -1 where there is none.
        column: name -> [world, capacity] float32, NaN where unknown.
        last: [world] the newest step on record, -1 where there is none.
        set_aside: records that could not be true (a duration that is 0, negative or infinite, waits far longer than
            the step) and were left out.
    """

    def __init__(self, world_size: int) -> None:
        self.capacity = capacity_for(world_size)
        shape = (world_size, self.capacity)
        self.step: I64 = np.full(shape, -1, np.int64)
        self.column: dict[str, F32] = {
            name: np.full(shape, np.nan, np.float32) for name in (*MEASURED, *LOGGED, *DERIVED)
        }
        self.last: I64 = np.full(world_size, -1, np.int64)
        self.set_aside = 0

    def clear(self, rank: int) -> None:
        """Forget a rank that has started anew."""
        self.step[rank] = -1
        self.last[rank] = -1

    def add(self, rank: int, columns: StepColumns) -> None:
        """Take step records in; a record never replaces one of a later step."""
        steps = np.frombuffer(columns.step, "<i8").astype(np.int64)
        values: dict[str, F32] = {name: np.frombuffer(data, "<f4") for name, data in columns.values.items()}
        good = _believable(steps, values)
        self.set_aside += len(good) - int(np.count_nonzero(good))
        kept = good & (steps >= self.step[rank, steps % self.capacity])
        if not kept.all():
            steps, values = steps[kept], {name: column[kept] for name, column in values.items()}
        if not steps.size:
            return
        at = self._slots(steps)
        self.step[rank, at] = steps
        for name in (*MEASURED, *LOGGED):
            self.column[name][rank, at] = values.get(name, np.nan)
        self._derive(rank, at, values)
        self.last[rank] = max(int(self.last[rank]), int(steps.max()))

    def _slots(self, steps: I64) -> I64 | slice:
        """Where steps lie: in one piece, as a slice, where they follow on each other."""
        slots = steps % self.capacity
        first, count = int(slots[0]), len(slots)
        together = first + count <= self.capacity and bool((np.diff(steps) == 1).all())
        return slice(first, first + count) if together else slots

    def _derive(self, rank: int, at: I64 | slice, values: dict[str, F32]) -> None:
        """`work = duration - exposed - barrier`, `wait = exposed + barrier`, `other` the rest (DESIGN section 3)."""
        unknown = np.full_like(values["duration"], np.nan)
        get = {name: values.get(name, unknown) for name in MEASURED}
        wait = get["exposed"] + np.where(np.isnan(get["barrier"]), np.float32(0), get["barrier"])
        work = get["duration"] - wait
        named = get["input"] + get["forward"] + get["backward"] + get["optimizer"]  # unknown if one of them is
        self.column["wait"][rank, at] = wait
        self.column["work"][rank, at] = np.maximum(work, 0)
        self.column["other"][rank, at] = np.maximum(work - named, 0)

    def take(self, name: str, steps: I64, who: I64 | None = None) -> F32:
        """[ranks, len(steps)] of a column at these steps, NaN where a rank has no record of the step.

        The ranks are those in `who`, by default all.
        """
        at = self._at(steps, who)
        return np.where(self.step[at] == steps, self.column[name][at], np.float32(np.nan))

    def present(self, steps: I64, who: I64 | None = None) -> NDArray[np.bool_]:
        """[ranks, len(steps)] whether the rank has a record of the step."""
        found: NDArray[np.bool_] = self.step[self._at(steps, who)] == steps
        return found

    def _at(self, steps: I64, who: I64 | None) -> tuple[slice | I64, I64]:
        slots = steps % self.capacity
        return (slice(None), slots) if who is None or len(who) == len(self.last) else (who[:, None], slots)


def _believable(steps: I64, values: dict[str, F32]) -> NDArray[np.bool_]:
    """Records whose step is a step, with durations that are finite and not negative, and waits that fit into them."""
    good = (steps >= 0) & (steps <= _LARGEST_STEP)
    duration = values.get("duration")
    if duration is None:
        return np.zeros_like(good)
    good &= np.isfinite(duration) & (duration > 0)
    for name in MEASURED:
        column = values.get(name)
        if column is not None:
            good &= ~((column < 0) | (column > _LARGEST_MS))  # NaN is neither
        if column is not None and name in ("exposed", "barrier"):
            good &= ~(column > _LONGEST_WAIT * np.minimum(duration, _LARGEST_MS) + 1)
    return good
