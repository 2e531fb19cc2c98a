"""Rule A: who works longer than the others, step after step. Followed for ranks, and for whole hosts."""

from __future__ import annotations

import numpy as np

from ddpmon.diagnose.cases import CONFIRMATIONS, Cases
from ddpmon.diagnose.ratios import WINDOW, judge_windows
from ddpmon.run.rings import F32, I64

ENOUGH = WINDOW + CONFIRMATIONS - 1  # steps that a verdict takes
_CHUNK = 64


class SteadyRule:
    """Walks through the windows of 20 steps; what it says depends on the steps alone, not on how they came in.

    Attributes:
        cases: who is under suspicion.
    """

    def __init__(self) -> None:
        self.cases = Cases()
        self._judged = -1

    def update(self, steps: I64, ratios: F32, keys: I64) -> None:
        """Judge the windows that end in steps not judged before.

        Args:
            steps: [T] ascending.
            ratios: [n, T] work over the median of the others.
            keys: [n] what each row is called, from call to call.
        """
        self.cases.keep(set(keys.tolist()))
        first = max(WINDOW - 1, int(np.searchsorted(steps, self._judged, side="right")))
        for start in range(first, len(steps), _CHUNK):
            part = slice(start - WINDOW + 1, min(len(steps), start + _CHUNK))
            verdicts = judge_windows(steps[part], ratios[:, part], np.isin(keys, self.cases.keys))
            calm = steps[start - WINDOW // 2 :].tolist()
            for at, step in enumerate(verdicts.step.tolist()):
                for place, row in enumerate(verdicts.row.tolist()):
                    high, low = bool(verdicts.high[place, at]), bool(verdicts.low[place, at])
                    self.cases.turn(int(keys[row]), step, high=high, low=low, calm=calm[at])
        if len(steps):
            self._judged = max(self._judged, int(steps[-1]))
