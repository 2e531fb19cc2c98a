"""Which ranks have fallen silent while others report, and which processes have left their GPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ddpmon.machine import GpuFigures
from ddpmon.run.model import SILENT_S

PAUSE_S = SILENT_S / 2  # where not even one rank has reported for so long, nobody can be heard. Chosen.


def fallen_silent(ages: NDArray[np.float64], ended: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """[world] whether each rank has been silent for longer than `SILENT_S` without having said that it ends.

    Where no rank reports, as after the store has ended, its silence counts from the last word of any rank.

    Args:
        ages: [world] seconds since each rank was heard, NaN of one that never was.
        ended: [world] whether it has said that it ends.
    """
    newest = float(np.fmin.reduce(ages, initial=np.inf))
    with np.errstate(invalid="ignore"):
        silent: NDArray[np.bool_] = ages - (newest if newest > PAUSE_S else 0.0) > SILENT_S
    return silent & ~ended


def has_left(gpu: GpuFigures | None, held: float) -> bool:
    """Whether the process of a rank is no longer on its GPU, which holds less memory than torch did in the rank.

    Args:
        gpu: the rank's; None where that is not known.
        held: bytes, as the rank said last, NaN where it did not.
    """
    return gpu is not None and gpu.memory_used is not None and gpu.memory_used < held


def still_there(
    ranks: Sequence[int], gpu_of: Callable[[int], GpuFigures | None], held: NDArray[np.float64]
) -> list[int]:
    """The ranks whose processes are on their GPUs; all of them where that would be none.

    The GPU and the rank are read at moments of their own: while the memory of all ranks grows, each GPU may seem left.

    Args:
        ranks: some of the run's.
        gpu_of: a rank's GPU.
        held: [world] bytes that torch held in each rank, NaN where unknown.
    """
    return [rank for rank in ranks if not has_left(gpu_of(rank), float(held[rank]))] or [*ranks]
