"""Which ranks are compared, and which of their steps have not been judged yet."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ddpmon.diagnose.lost import lost_ranks
from ddpmon.run.model import Run
from ddpmon.run.rings import I64

WARM_UP = 20  # steps that are never judged: compiling, autotuning, the rebuilding of buckets


def alive(run: Run, ages: NDArray[np.float64]) -> NDArray[np.bool_]:
    """[world] the ranks that take part and are not lost."""
    ranks = run.taking_part()
    ranks[lost_ranks(run, ages)] = False
    return ranks


def ends_of_blocks(steps: I64, every: int, judged: int) -> I64:
    """The places behind the first step on record of each block of `every` steps, for steps above `judged`.

    Not at the multiples alone: these may all be missing, where every fifth step holds an evaluation.
    """
    block = steps // every
    begins = np.diff(block, prepend=block[:1] - 1) > 0
    found: I64 = np.flatnonzero((steps > judged) & begins) + 1
    return found


class NewSteps:
    """Hands out every step once: when all ranks that are compared have a record of it."""

    def __init__(self) -> None:
        self._judged = -1

    def take(self, run: Run, ranks: NDArray[np.bool_]) -> I64:
        """Steps not handed out before, ascending, that every one of `ranks` has on record; anew after a restart."""
        known = ranks & (run.rings.last >= 0)
        last = run.rings.last[known]
        if not last.size:
            return np.empty(0, np.int64)
        if int(last.max()) < self._judged:
            self._judged = -1
        steps = run.finished_after(self._judged, np.flatnonzero(known))
        self._judged = max(self._judged, int(last.min()))
        return steps
