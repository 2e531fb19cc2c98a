"""Which ranks have fallen silent while others report."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ddpmon.run.model import SILENT_S

_PAUSE_S = SILENT_S / 2  # where not even one rank has reported for so long, nobody can be heard. Chosen.


def fallen_silent(ages: NDArray[np.float64], ended: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """[world] whether each rank has been silent for longer than `SILENT_S` without having said that it ends.

    Where no rank reports, as after the store has ended, its silence counts from the last word of any rank.

    Args:
        ages: [world] seconds since each rank was heard, NaN of one that never was.
        ended: [world] whether it has said that it ends.
    """
    newest = float(np.fmin.reduce(ages, initial=np.inf))
    with np.errstate(invalid="ignore"):
        silent: NDArray[np.bool_] = ages - (newest if newest > _PAUSE_S else 0.0) > SILENT_S
    return silent & ~ended
