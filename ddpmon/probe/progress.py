"""How far the job is by its own count of steps, and how long it will take at its pace; in the publisher's thread."""

from __future__ import annotations

import math
from collections import deque
from time import monotonic
from typing import Any

_LARGEST = 1 << 48
_EVERY_S, _KEPT = 1.0, 600  # the pace is that of the last ten minutes: evaluations and checkpoints are in it


class Progress:
    """The steps that the job says it has finished.

    Attributes:
        step: the last of them; None as long as the job has said none.
        total: how many it will make; None if it does not say.
    """

    def __init__(self) -> None:
        self.step: int | None = None
        self.total: int | None = None
        self._seen: deque[tuple[float, int]] = deque(maxlen=_KEPT)

    def take(self, step: Any, total: Any, now: float | None = None) -> None:
        """The job has finished `step` steps of `total`; what is no number is left out, and a tensor is not read."""
        done = _whole(step)
        if done is None:
            return
        self.step, self.total = done, _whole(total)
        now = monotonic() if now is None else now
        if self._seen and done < self._seen[-1][1]:  # a new epoch's count, or another run of the same trainer
            self._seen.clear()
        if not self._seen or now - self._seen[-1][0] >= _EVERY_S:
            self._seen.append((now, done))

    def eta_s(self) -> float | None:
        """Seconds until the last step, counted from the newest one that was said; None where that is unknown."""
        if self.total is None or self.step is None or len(self._seen) < 2:
            return None
        (began, first), (at, last) = self._seen[0], self._seen[-1]
        if last <= first:
            return None
        return max(0.0, (self.total - last) * (at - began) / (last - first))


def _whole(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return int(value) if 0 <= value <= _LARGEST else None
