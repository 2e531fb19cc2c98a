"""The memory of torch on the ranks' GPUs: one whose tensors grow, and one that needs more than the others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ddpmon.diagnose.alert import Alert, Measures, Severity
from ddpmon.diagnose.contention_policy import TORCH_MEMORY
from ddpmon.diagnose.tick import Tick
from ddpmon.run.model import Run


class GpuMemoryGrowthMeasures(Measures, frozen=True):
    """The tensors of the named ranks take more and more device memory.

    Attributes:
        rank: the one whose tensors grow most; the rest is about it.
        host: where it is.
        growth_bytes: by how much its living tensors have grown in `window_s`.
        window_s: seconds.
        allocated_bytes: what its living tensors take, None where unknown.
        left_s: in how many seconds its GPU is full at this pace, None where its size is unknown.
    """

    rank: int
    host: str
    growth_bytes: int
    window_s: float
    allocated_bytes: int | None
    left_s: float | None


class GpuMemoryUnevenMeasures(Measures, frozen=True):
    """The named ranks need more device memory than the others.

    Attributes:
        rank: the one that needs most; the rest is about it.
        host: where it is.
        peak_bytes: the most that its tensors have taken.
        others_bytes: the median of that over the other ranks.
        retries: how often an allocation of it failed and was tried again.
    """

    rank: int
    host: str
    peak_bytes: int
    others_bytes: int
    retries: int


def find_gpu_memory_growth(tick: Tick, _said: Sequence[Alert]) -> list[Alert]:
    """One alert for all ranks whose tensors grow, the fastest first. The ranks judge the growth themselves."""
    growth = np.where(tick.alive & ~tick.run.latest.ended, tick.run.latest.column("gpu_growth"), np.nan)
    with np.errstate(invalid="ignore"):
        ranks = np.flatnonzero(growth >= TORCH_MEMORY.growth_bytes)
    if not ranks.size:
        return []
    ranks = ranks[np.argsort(-growth[ranks], kind="stable")]
    measures = _growth(tick.run, int(ranks[0]), float(growth[ranks[0]]))
    return [
        Alert(
            kind="gpu_memory_growth",
            severity=_urgency(measures.left_s),
            measures=measures,
            ranks=tuple(ranks.tolist()),
            nodes=_hosts(tick.run, ranks),
        )
    ]


def _growth(run: Run, rank: int, growth: float) -> GpuMemoryGrowthMeasures:
    allocated, gpu = run.latest.column("gpu_allocated")[rank], run.gpu_of(rank)
    total = None if gpu is None else gpu.memory_total
    window = TORCH_MEMORY.growth_window_s
    left = None if total is None or np.isnan(allocated) else max(0.0, total - float(allocated)) * window / growth
    held = None if np.isnan(allocated) else int(allocated)
    return GpuMemoryGrowthMeasures(rank, run.latest.host[rank], int(growth), window, held, left)


def _urgency(left_s: float | None) -> Severity:
    return "critical" if left_s is not None and left_s <= TORCH_MEMORY.imminent_s else "warning"


def find_gpu_memory_uneven(tick: Tick, _said: Sequence[Alert]) -> list[Alert]:
    """One alert for all ranks that need more than the others, the greatest first; few steps say nothing yet."""
    latest, peak = tick.run.latest, tick.run.latest.column("gpu_peak")
    going = tick.alive & ~latest.ended & (latest.step >= TORCH_MEMORY.first_step)
    compared = np.flatnonzero(going & ~np.isnan(peak))
    if len(compared) < TORCH_MEMORY.fewest_ranks:
        return []
    usual = _of_the_others(peak[compared])
    excess = peak[compared] - usual
    high = (excess >= TORCH_MEMORY.uneven_bytes) & (excess >= TORCH_MEMORY.uneven_share * usual)
    if not high.any():
        return []
    order = np.flatnonzero(high)[np.argsort(-excess[high], kind="stable")]
    ranks, retries = compared[order], latest.column("alloc_retries")
    first = int(ranks[0])
    tried = 0 if np.isnan(retries[first]) else int(retries[first])
    return [
        Alert(
            kind="gpu_memory_uneven",
            severity="warning" if tried else "info",
            measures=GpuMemoryUnevenMeasures(first, latest.host[first], int(peak[first]), int(usual[order[0]]), tried),
            ranks=tuple(ranks.tolist()),
            nodes=_hosts(tick.run, ranks),
        )
    ]


def _of_the_others(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """[n] for each value the median of the others, the higher of the two middles where there are two.

    With their mean, a rank that needs less than two others would make these two seem to need more.
    """
    ordered, middle = np.sort(values), (len(values) - 1) // 2
    found: NDArray[np.float64] = np.where(values <= ordered[middle], ordered[middle + 1], ordered[middle])
    return found


def _hosts(run: Run, ranks: NDArray[np.int64]) -> tuple[str, ...]:
    return tuple(sorted({run.latest.host[rank] for rank in ranks.tolist()}))
