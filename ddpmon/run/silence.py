"""Which ranks have fallen silent while others report, and whose process is gone before that shows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ddpmon.machine import GpuFigures
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


def has_left(gpu: GpuFigures | None, held: float) -> bool:
    """Whether the process of a rank is no longer on its GPU, which holds less memory than torch did in the rank.

    Args:
        gpu: the rank's; None where that is not known.
        held: bytes, as the rank said last, NaN where it did not.
    """
    return gpu is not None and gpu.memory_used is not None and gpu.memory_used < held
