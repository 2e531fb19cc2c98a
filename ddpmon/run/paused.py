"""Which steps a phase that the user marked makes no measure of the others."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ddpmon.run.rings import F32, I64, Rings

_STEPS, _OFTEN, _MORE = 64, 0.4, 3.0


def paused(longest: F32) -> NDArray[np.bool_]:
    """[T] whether a pause lies in each step; `longest` [T] is the most that any rank spent in marked phases, in ms.

    NaN is unknown. A phase that stands in four steps of ten or more (a rollout, a log line) is part of the work: then a
    pause is what takes three times as long.
    """
    known = longest[~np.isnan(longest)]
    often = known.size and (known > 0).mean() >= _OFTEN
    usual = float(np.quantile(known, 1 - _OFTEN / 2)) if often else 0.0
    found: NDArray[np.bool_] = np.nan_to_num(longest) > _MORE * usual
    return found


def paused_steps(rings: Rings, steps: I64, who: I64) -> NDArray[np.bool_]:
    """[T] the same of `steps` (ascending), by what the ranks in `who` say of them and of the 64 steps before."""
    if not steps.size or not who.size:
        return np.zeros(len(steps), np.bool_)
    around = np.arange(max(0, int(steps[0]) - _STEPS), int(steps[-1]) + 1)
    found: NDArray[np.bool_] = paused(longest_marked(rings, around, who))[steps - around[0]]
    return found


def longest_marked(rings: Rings, steps: I64, who: I64 | None = None) -> F32:
    """[T] the most that any of `who` (all ranks, by default) spent in marked phases, in ms; NaN where none tells."""
    longest: F32 = np.fmax.reduce(rings.take("marked", steps, who), axis=0, initial=np.nan)
    return longest
