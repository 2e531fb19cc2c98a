"""What a look at one host needs to know of the whole run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ddpmon.diagnose.clash.figures import Figures
from ddpmon.diagnose.clash.leak import Leak
from ddpmon.machine import GpuFigures
from ddpmon.run.limits import FULL
from ddpmon.run.medians import others_medians
from ddpmon.run.model import Run

LOADED_PCT = 50.0
_WAITS_PCT, _ANY_WAITS_PCT, _THROTTLED_PCT = 5.0, 10.0, 5.0


@dataclass
class View:
    """The run at one look.

    Attributes:
        late: ranks named late, at a cost of 5 % of the job's time or more -> in which phase.
        slower: whether the whole job has become slower, and in which phase, None if not ("" in no one phase).
        leaks: ranks whose memory grows steadily towards the limit.
    """

    run: Run
    figures: Figures
    leaks: Mapping[int, Leak] = field(default_factory=dict)
    late: Mapping[int, str] = field(default_factory=dict)
    slower: str | None = None

    @cached_property
    def held_up(self) -> set[int]:
        """The ranks that wait for a CPU, or are throttled, for more than a moment."""
        now = self.figures.now
        with np.errstate(invalid="ignore"):
            waits = (now["queue"] >= _WAITS_PCT) | (now["queue_all"] >= _ANY_WAITS_PCT)
            return set(np.flatnonzero(waits | (now["throttled"] >= _THROTTLED_PCT)).tolist())

    @cached_property
    def tight(self) -> set[int]:
        """The ranks whose cgroup is nearly full, or has lost a process for it."""
        now = self.figures.now
        with np.errstate(invalid="ignore"):
            return set(np.flatnonzero((now["full"] >= FULL) | (now["kills"] > 0)).tolist())

    @cached_property
    def peers_wait(self) -> NDArray[np.float64]:
        """[world] what share of the time (percent) the other ranks wait for a CPU, in the middle; NaN if unknown."""
        waits = self.figures.now["queue"]
        known, found = np.flatnonzero(~np.isnan(waits)), np.full(len(waits), np.nan)
        if len(known) > 1:
            found[known] = others_medians(waits[known][:, None])[:, 0]
        return found

    @cached_property
    def peers_clock(self) -> dict[str, float]:
        """UUID -> the middle SM clock in MHz of the other GPUs of its model, of those under load."""
        models: dict[str, dict[str, float]] = {}
        mine = {gpu.uuid for gpu in self.run.gpus() if gpu is not None}
        for frame, _ in self.run.nodes.values():
            for gpu in frame.gpus:
                if gpu.sm_clock_mhz and gpu.name and gpu.uuid in mine and is_loaded(gpu):
                    models.setdefault(gpu.name, {})[gpu.uuid] = gpu.sm_clock_mhz
        found: dict[str, float] = {}
        for clocks in models.values():
            if len(clocks) > 1:
                middle = others_medians(np.array([*clocks.values()])[:, None])[:, 0]
                found |= zip(clocks, middle.tolist(), strict=True)
        return found


def is_loaded(gpu: GpuFigures, least_pct: float = LOADED_PCT) -> bool:
    """Whether it is known to be at work."""
    return gpu.utilization_pct is not None and gpu.utilization_pct >= least_pct
