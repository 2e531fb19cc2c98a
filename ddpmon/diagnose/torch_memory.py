"""The memory of torch on the ranks' GPUs: one whose tensors grow, and one that needs more than the others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ddpmon.diagnose.alert import Alert, Measures, Severity
from ddpmon.diagnose.contention_policy import TORCH_MEMORY
from ddpmon.diagnose.tick import Tick
from ddpmon.run.latest_frames import LatestFrames
from ddpmon.run.model import Run

_SLOTS = 11  # parts of a tenth of `TORCH_MEMORY.recent_s` each; the newest of them is not complete


class GpuMemoryGrowthMeasures(Measures, frozen=True):
    """The tensors of the named ranks take more and more device memory.

    Attributes:
        rank: the one whose tensors grow most; the rest is about it.
        host: where it is.
        growth_bytes: by how much its tensors grow in `window_s`.
        window_s: seconds.
        allocated_bytes: what its tensors occupy, None where unknown.
        left_s: in how many seconds its GPU is full at this pace, None where its size is unknown.
        peak_bytes: the most that its tensors have occupied within a step since the start, None where unknown.
    """

    rank: int
    host: str
    growth_bytes: int
    window_s: float
    allocated_bytes: int | None
    left_s: float | None
    peak_bytes: int | None = None


class GpuMemoryUnevenMeasures(Measures, frozen=True):
    """The named ranks need more device memory than the others.

    Attributes:
        rank: the one that needs most; the rest is about it.
        host: where it is.
        peak_bytes: the most that its tensors have taken in the last minutes, as far as is known.
        others_bytes: the median over the other ranks of the most that theirs have taken since the start.
        retries: how often in these minutes an allocation of it failed and was tried again.
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
    allocated, peak = (run.latest.column(name)[rank] for name in ("gpu_allocated", "gpu_peak"))
    gpu = run.gpu_of(rank)
    total = None if gpu is None else gpu.memory_total
    window = TORCH_MEMORY.growth_window_s
    left = None if total is None or np.isnan(allocated) else max(0.0, total - float(allocated)) * window / growth
    held, most = (None if np.isnan(each) else int(each) for each in (allocated, peak))
    return GpuMemoryGrowthMeasures(rank, run.latest.host[rank], int(growth), window, held, left, most)


def _urgency(left_s: float | None) -> Severity:
    return "critical" if left_s is not None and left_s <= TORCH_MEMORY.imminent_s else "warning"


class _Recent:
    """What the newest frames have said of each rank's peak and retries in the last `TORCH_MEMORY.recent_s`.

    Both are totals since the start of the rank, so that only their growth is new. Times are those of the ranks' own
    frames: no clocks are compared.
    """

    def __init__(self, world: int) -> None:
        self._number = np.full((_SLOTS, world), -1, dtype=np.int64)  # of the slot's part of the time
        self._most = np.full((_SLOTS, world), np.nan)
        self._tried = np.full((_SLOTS, world), np.nan)
        self._peak = np.full(world, np.nan)

    def take(self, latest: LatestFrames) -> None:
        """Take what is known now; a peak counts as new when it is seen first, and when it has risen."""
        sent, peak = latest.column("sent_at"), latest.column("gpu_peak")
        ranks = np.flatnonzero(~np.isnan(sent))
        number = (sent[ranks] // (TORCH_MEMORY.recent_s / (_SLOTS - 1))).astype(np.int64)
        at = (number % _SLOTS, ranks)
        begins = self._number[at] != number
        self._number[at] = number
        new = np.where(peak <= self._peak, np.nan, peak)
        most = np.fmax(latest.column("gpu_allocated"), new)[ranks]
        tried = latest.column("alloc_retries")[ranks]
        self._most[at] = np.where(begins, most, np.fmax(self._most[at], most))
        self._tried[at] = np.where(begins, tried, np.fmin(self._tried[at], tried))
        self._peak = np.where(np.isnan(peak), self._peak, peak)

    def most(self) -> NDArray[np.float64]:
        """[world] the most that its tensors have taken, in bytes; NaN where unknown."""
        found: NDArray[np.float64] = np.fmax.reduce(np.where(self._is_recent(), self._most, np.nan))
        return found

    def retries(self, rank: int, now: float) -> int:
        """How many of the `now` retries of this rank are new."""
        before = np.fmin.reduce(np.where(self._is_recent(), self._tried, np.nan)[:, rank])
        return 0 if np.isnan(now) or np.isnan(before) else int(now - before)

    def _is_recent(self) -> NDArray[np.bool_]:
        recent: NDArray[np.bool_] = (self._number >= 0) & (self._number > self._number.max(axis=0) - _SLOTS)
        return recent


class UnevenGpuMemory:
    """One alert for all ranks that need more than the others, the greatest first; few steps say nothing yet.

    A run does not say which part its ranks have, such as the stages of a pipeline. Where two ranks or more have needed
    about as much from the start, and others another amount, each rank is compared with those of its own amount.
    """

    def __init__(self) -> None:
        self._recent: _Recent | None = None
        self._levels: NDArray[np.float64] | None = None
        self._group: NDArray[np.int64] = np.empty(0, dtype=np.int64)

    def __call__(self, tick: Tick, _said: Sequence[Alert]) -> list[Alert]:
        """The alert, if there is one."""
        latest, peak = tick.run.latest, tick.run.latest.column("gpu_peak")
        if np.isnan(peak).all():
            return []
        if self._recent is None:
            self._recent, self._group = _Recent(len(peak)), np.full(len(peak), -1, dtype=np.int64)
        self._recent.take(latest)
        going = tick.alive & ~latest.ended & ~np.isnan(peak)
        compared = np.flatnonzero(going & (latest.step >= TORCH_MEMORY.first_step))
        if len(compared) < TORCH_MEMORY.fewest_ranks:
            return []
        if self._levels is None:
            if len(compared) < np.count_nonzero(going):
                return []  # the groups are those of all ranks
            self._levels = _levels(peak[compared])
        self._assign(compared, peak, self._levels)
        most = self._recent.most()
        usual = self._usual(compared, peak)
        with np.errstate(invalid="ignore"):
            excess = most - usual
            high = (excess >= TORCH_MEMORY.uneven_bytes) & (excess >= TORCH_MEMORY.uneven_share * usual)
        ranks = np.flatnonzero(high)
        ranks = ranks[np.argsort(-excess[ranks], kind="stable")]
        return [_uneven(tick.run, self._recent, ranks, most, usual)] if ranks.size else []

    def _assign(self, compared: NDArray[np.int64], peak: NDArray[np.float64], levels: NDArray[np.float64]) -> None:
        """Give each rank that is new the group whose level is nearest to its peak."""
        new = compared[self._group[compared] < 0]
        self._group[new] = np.abs(peak[new][:, None] - levels).argmin(axis=1)

    def _usual(self, compared: NDArray[np.int64], peak: NDArray[np.float64]) -> NDArray[np.float64]:
        """[world] the median peak of the others of its group; NaN where these are too few."""
        usual = np.full(len(peak), np.nan)
        for group in np.unique(self._group[compared]):
            ranks = compared[self._group[compared] == group]
            if len(ranks) >= TORCH_MEMORY.fewest_ranks:
                usual[ranks] = _of_the_others(peak[ranks])
        return usual


def _uneven(
    run: Run, recent: _Recent, ranks: NDArray[np.int64], most: NDArray[np.float64], usual: NDArray[np.float64]
) -> Alert:
    first = int(ranks[0])
    tried = recent.retries(first, float(run.latest.column("alloc_retries")[first]))
    host = run.latest.host[first]
    return Alert(
        kind="gpu_memory_uneven",
        severity="warning" if tried else "info",
        measures=GpuMemoryUnevenMeasures(first, host, int(most[first]), int(usual[first]), tried),
        ranks=tuple(ranks.tolist()),
        nodes=_hosts(run, ranks),
    )


def _levels(peaks: NDArray[np.float64]) -> NDArray[np.float64]:
    """The median peak of each group of two ranks or more, a group being ranks without an uneven gap between them."""
    ordered = np.sort(peaks)
    gaps, below = np.diff(ordered), ordered[:-1]
    uneven = (gaps >= TORCH_MEMORY.uneven_bytes) & (gaps >= TORCH_MEMORY.uneven_share * below)
    groups = np.split(ordered, np.flatnonzero(uneven) + 1)
    return np.array([np.median(group) for group in groups if len(group) > 1] or [np.median(ordered)])


def _of_the_others(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """[n] for each value the median of the others, the higher of the two middles where there are two.

    With their mean, a rank that needs less than two others would make these two seem to need more.
    """
    ordered, middle = np.sort(values), (len(values) - 1) // 2
    found: NDArray[np.float64] = np.where(values <= ordered[middle], ordered[middle + 1], ordered[middle])
    return found


def _hosts(run: Run, ranks: NDArray[np.int64]) -> tuple[str, ...]:
    return tuple(sorted({run.latest.host[rank] for rank in ranks.tolist()}))
