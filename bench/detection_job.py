"""A made-up data-parallel job: what each rank does in each phase and step, what it waits, and what a fault costs.

Nothing here follows the detector's own assumptions: work is a lognormal body with Pareto tails, ranks share slow noise
with their host and with the whole job, the pace drifts, and the exits from the reduction are skewed. Times are ms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from detection_truth import Episode
from numpy.typing import NDArray

from ddpmon.diagnose.kinds import KindName

F64 = NDArray[np.float64]
STEPS = 520
MEANS = {"input": 5.0, "forward": 30.0, "backward": 58.0, "optimizer": 4.0, "other": 3.0}
WORK_MS = sum(MEANS.values())
TRANSFER_MS = 10.0
SKEW_MS = 0.4
_BODY = 0.5  # sigma of the lognormal
_TAIL_SHARE, _TAIL_INDEX, _TAIL_CAP = 0.02, 2.5, 12.0


@dataclass
class Job:
    """One job of n ranks and T steps.

    Attributes:
        phases: phase -> [n, T] work, faults included.
        transfer: [T] what the reduction takes once all have come, faults included.
        skew: [n, T] how much later than the first each rank leaves it.
        marked: [n, T] time inside a phase that the user named; `mark_names` says how, by step.
        gc: [n, T] time inside the garbage collector, or None where it is not measured.
        natural: kinds of findings that are true of this job whenever they come.
        injected: one a fault: (its delays [n, T], its part of the transfer [T]).
        episodes: one a fault: what should be said.
    """

    rng: np.random.Generator
    cv: float
    host_size: int
    phases: dict[str, F64]
    transfer: F64
    skew: F64
    marked: F64
    mark_names: dict[int, str] = field(default_factory=dict)
    gc: F64 | None = None
    natural: set[KindName] = field(default_factory=set)
    injected: list[tuple[F64, F64]] = field(default_factory=list)
    episodes: list[Episode] = field(default_factory=list)

    @property
    def ranks(self) -> int:
        """The world's size."""
        return int(self.skew.shape[0])

    @property
    def work(self) -> F64:
        """[n, T] the whole work."""
        total: F64 = np.sum(list(self.phases.values()), axis=0)
        return total

    def delay(self, phase: str, ms: F64) -> None:
        """Add ms [n, T] to a phase."""
        self.phases[phase] = self.phases[phase] + ms

    def pace(self, work: F64, transfer: F64) -> F64:
        """[T] how long each step of the job takes: until the last rank has come, and then the transfer."""
        late: F64 = (self._began() + work).max(axis=0) + transfer
        return late

    def columns(self) -> dict[str, NDArray[np.float32]]:
        """Step columns [n, T] as the ranks' probes would have them."""
        out = self.pace(self.work, self.transfer) + self.skew
        arrived = self._began() + self.work
        table = {name: self.phases[name] for name in MEANS if name != "other"}
        table |= {"exposed": out - arrived, "duration": out - self._began(), "marked": self.marked}
        table |= {"barrier": np.zeros_like(self.skew), "allreduce": 0.4 * self.phases["backward"] + out - arrived}
        table |= {"loss": np.broadcast_to(4.0 - 0.001 * np.arange(self.skew.shape[1]), self.skew.shape)}
        table |= {"samples": np.full_like(self.skew, 8.0)}
        if self.gc is not None:
            table["gc"] = self.gc
        return {name: np.ascontiguousarray(values, np.float32) for name, values in table.items()}

    def cost_of(self, which: int) -> Callable[[int, int], float]:
        """(first, last step) -> percent of the training's time that one fault costs, were the others mended before.

        Steps with a named pause (evaluation, checkpoint) are no training.
        """
        clean = self.work - sum((delays for delays, _ in self.injected), np.zeros_like(self.skew))
        quick = self.transfer - sum((more for _, more in self.injected), np.zeros_like(self.transfer))
        delays, more = self.injected[which]
        lost = self.pace(clean + delays, quick + more) - self.pace(clean, quick)
        trains = self.marked.max(axis=0) == 0
        whole, lost = np.where(trains, self.pace(self.work, self.transfer), 0), np.where(trains, lost, 0)
        return lambda first, last: float(100 * lost[first : last + 1].sum() / whole[first : last + 1].sum())

    def _began(self) -> F64:
        """[n, T] when each rank left the step before, after the first that left."""
        return np.concatenate([np.zeros((self.ranks, 1)), self.skew[:, :-1]], axis=1)


def healthy_job(rng: np.random.Generator, ranks: int, cv: float, host_size: int = 8, steps: int = STEPS) -> Job:
    """A job without faults whose ranks' work scatters by `cv` of itself, a rank and step."""
    shape = (ranks, steps)
    pace = (1 + 0.5 * cv * wander(rng, (1, steps), 0.5) + drift(rng, steps)) * (
        1 + 0.004 * rng.standard_normal((ranks, 1))
    )
    hosts = 1 + 0.4 * cv * wander(rng, (-(-ranks // host_size), steps), 0.9)
    pace = pace * hosts[np.arange(ranks) // host_size]
    both = heavy(rng, shape)
    own = np.sqrt(sum((mean / WORK_MS) ** 2 for mean in MEANS.values()))
    phases = {}
    for name, mean in MEANS.items():
        noise = np.sqrt(0.7) * both + np.sqrt(0.3) / own * heavy(rng, shape)
        phases[name] = mean * pace * np.maximum(0.2, 1 + cv * noise)
    phases["input"] = phases["input"] * rng.lognormal(0, min(0.4, 8 * cv), shape)
    start = 1 + 4 * np.exp(-np.arange(steps) / 3) * rng.lognormal(0, 0.3, (ranks, 1))
    for name in ("forward", "backward"):
        phases[name] = phases[name] * start
    transfer = TRANSFER_MS * rng.lognormal(0, 0.12, steps) * (1 + 0.05 * wander(rng, (1, steps), 0.9)[0])
    skew = np.abs(rng.normal(0, SKEW_MS, shape))
    return Job(rng, cv, host_size, phases, transfer, skew - skew.min(axis=0), np.zeros(shape))


def heavy(rng: np.random.Generator, shape: tuple[int, ...]) -> F64:
    """Noise of about unit variance: a lognormal body, and in 2 % of the steps a Pareto tail."""
    mean, spread = np.exp(_BODY**2 / 2), np.sqrt((np.exp(_BODY**2) - 1) * np.exp(_BODY**2))
    body = (rng.lognormal(0, _BODY, shape) - mean) / spread
    tail = np.where(rng.random(shape) < _TAIL_SHARE, np.minimum(rng.pareto(_TAIL_INDEX, shape), _TAIL_CAP), 0)
    return np.asarray(body + tail)


def wander(rng: np.random.Generator, shape: tuple[int, int], keep: float) -> F64:
    """Rows of AR(1) noise of unit variance; `keep` is its correlation from step to step."""
    noise = rng.standard_normal(shape)
    for step in range(1, shape[1]):
        noise[:, step] = keep * noise[:, step - 1] + np.sqrt(1 - keep**2) * noise[:, step]
    return noise


def drift(rng: np.random.Generator, steps: int) -> F64:
    """[steps] a slow change of the whole job's pace, a few percent over hundreds of steps."""
    at = np.arange(steps)
    wave = 0.02 * np.sin(2 * np.pi * (at / rng.uniform(300, 900) + rng.random()))
    return np.asarray(wave + rng.uniform(-0.02, 0.02) * at / steps)
