"""When the newest steps ended, as it was known at the time: the moment of a past step does not move afterwards."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

MOST = 1024  # moments that are kept; of older ones every second is then left out
F64 = NDArray[np.float64]


class StepTimes:
    """Moments at which a step was the newest one, in monotonic seconds.

    Between them steps are taken to be of one length.
    """

    def __init__(self) -> None:
        self._steps: list[int] = []
        self._at: list[float] = []

    def note(self, steps: NDArray[np.int64], ended_at: F64) -> None:
        """Take down the newest of these [n] steps with when the last of them ended; NaN where nobody tells.

        Of what is said of one step the earliest holds: word of it may come late, and never early. After a restart steps
        begin again.
        """
        step, at = int(steps.max()), float(np.fmax.reduce(ended_at))
        if step < 0 or math.isnan(at):
            return
        while self._steps and self._steps[-1] > step:
            self._steps.pop()
            self._at.pop()
        if self._steps and self._steps[-1] == step:
            self._at[-1] = min(self._at[-1], at)
            return
        self._steps.append(step)
        self._at.append(at)
        if len(self._steps) > MOST:
            self._steps[: MOST // 2] = self._steps[: MOST // 2 : 2]
            self._at[: MOST // 2] = self._at[: MOST // 2 : 2]

    def known(self) -> tuple[F64, F64]:
        """[k] the steps, ascending, and [k] when they ended."""
        return np.array(self._steps, np.float64), np.array(self._at, np.float64)
