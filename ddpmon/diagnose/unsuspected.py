"""What the ranks that nobody suspects work in each step, worked out once a step: of thousands it takes long."""

from __future__ import annotations

import numpy as np

from ddpmon.diagnose.late_policy import LATENESS
from ddpmon.lru import LruDefaultDict
from ddpmon.run.medians import middles, some_of
from ddpmon.run.rings import F32, I64

_SETS = 8  # of suspects; a tick asks for those of each kind of alert, and for each late host or rank without the others


class _Steps:
    """Figures of some steps, in the order of these."""

    def __init__(self) -> None:
        self.step: I64 = np.empty(0, np.int64)
        self.figures: F32 = np.empty((2, 0), np.float32)

    def lacks(self, steps: I64) -> I64:
        """Those of the steps that are not here."""
        if not self.step.size:
            return steps
        near = np.minimum(np.searchsorted(self.step, steps), len(self.step) - 1)
        lacking: I64 = steps[self.step[near] != steps]
        return lacking

    def add(self, steps: I64, figures: F32, first: int) -> None:
        """Add new steps, and forget those before `first`."""
        step = np.concatenate([self.step, steps])
        order = np.argsort(step, kind="stable")
        order = order[step[order] >= first]
        self.step, self.figures = step[order], np.concatenate([self.figures, figures], axis=1)[:, order]


class Unsuspected:
    """Remembers the figures of each step for the last few sets of suspects; the steps on record never change."""

    def __init__(self) -> None:
        self._known = LruDefaultDict(_Steps, _SETS)

    def at(self, steps: I64, work: F32, suspects: I64, places: I64, bound: str) -> tuple[F32, F32]:
        """The normal and the longest work of those who are no suspects.

        Args:
            steps: [T] the steps on record, ascending.
            work: [n, T] all ranks' work in ms.
            suspects: the rows to leave out; where they are all rows, the normal is that of all, the longest is 0.
            places: [k] which of the steps.
            bound: the name of `work`, where there are several.

        Returns:
            [k] the median over at most 256 ranks spread over all, in ms, and [k] the longest.
        """
        known = self._known.of((suspects.tobytes(), bound))
        new = known.lacks(steps[places])
        if new.size:
            new = np.unique(new)
            known.add(new, _figures(work[:, np.searchsorted(steps, new)], suspects), int(steps[0]))
        normal, longest = known.figures[:, np.searchsorted(known.step, steps[places])]
        return normal, longest


def _figures(work: F32, suspects: I64) -> F32:
    """[2, k] the normal and the longest."""
    healthy = np.delete(work, suspects, axis=0)
    peers = healthy if len(healthy) else work
    normal = middles(some_of(peers, LATENESS.sampled_ranks).T)
    return np.stack([normal, healthy.max(axis=0, initial=0)])
