"""What a jump of a series is: a lasting rise to several times its median, far outside its noise."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ddpmon.run.medians import row_medians
from ddpmon.run.rings import F32, I64

F64 = NDArray[np.float64]
ENOUGH = 20  # values that a baseline takes
LASTING = 3
_RISE, _SIGMAS = 4.0, 10.0
_NOISE_FLOOR = 1e-6


def limits(values: F32) -> tuple[F64, F64]:
    """[n] median of each row, and what a value must exceed to be a jump: NaN where too little is known.

    median + max(4 |median|, 10 robust standard deviations): five times the median, for losses that are positive and
    steady, and something sensible for those near zero or below it.
    """
    middle = row_medians(values).astype(np.float64)  # four times a float32 may be more than one can hold
    noise = 1.4826 * row_medians(np.abs(values - middle[:, None]))
    enough = (~np.isnan(values)).sum(axis=1) >= ENOUGH
    limit = middle + np.maximum(_RISE * np.abs(middle), np.maximum(_SIGMAS * noise, _NOISE_FLOOR))
    return middle, np.where(enough, limit, np.nan)


def onsets(values: F32, limit: F64) -> I64:
    """[n] where the first run of three logged values above the limit begins, -1 without one; gaps do not count."""
    with np.errstate(invalid="ignore"):
        above = values > limit[:, None]
    found = np.full(len(values), -1, np.int64)
    for row in np.flatnonzero(above.sum(axis=1) >= LASTING).tolist():
        places = np.flatnonzero(~np.isnan(values[row]))
        high = above[row, places]
        runs = np.flatnonzero(np.convolve(high, np.ones(LASTING), "valid") == LASTING)
        if runs.size:
            found[row] = places[runs[0]]
    return found


def raised(losses: F32, cut: int) -> NDArray[np.bool_]:
    """[n] whether three values of `losses[:, cut:]` lie above nine tenths of the row's earlier ones.

    Less is no jump; and this is far cheaper to ask than how large a jump it is.
    """
    level = np.partition(np.nan_to_num(losses[:, cut:], nan=-np.inf), -LASTING, axis=1)[:, -LASTING]
    with np.errstate(invalid="ignore"):
        above: NDArray[np.bool_] = (losses[:, :cut] >= level[:, None]).sum(axis=1) <= cut // 10
    return above & np.isfinite(level)
