"""The steps of a simulated run: made block by block from the seed alone, so that every process makes the same."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ddpmon.schema import PHASES
from ddpmon.simulate.buckets import bucket_ms
from ddpmon.simulate.older import Older
from ddpmon.simulate.plan import BACKWARD_OVERLAP, BLOCK, RECENT, SAMPLES, SHARES, WORK_SHARE, Plan, loss_at
from ddpmon.simulate.scenarios import F32, I64, Scenario

WINDOW_S = 8.0  # a frame holds these seconds
_CV, _HOST_CV = 0.015, 0.006


class Timeline:
    """The last steps of some ranks.

    Args:
        plan: the run.
        scenario: what befalls it.
        own: the ranks whose columns are kept; their pace depends on all.

    Attributes:
        step: [T] step numbers. ends: [T] when each ended, in seconds since the run began.
        columns: name -> [own, T] as the ranks' probes would have them. `work` is there for the phase that a rank is in,
            `buckets` [own, T, buckets] in runs with bucket detail.
        older: what lies before them, decimated.
    """

    def __init__(self, plan: Plan, scenario: Scenario, own: I64) -> None:
        self._plan, self._scenario, self._own = plan, scenario, own
        self._shown = max(RECENT, math.ceil(WINDOW_S * 1e3 / plan.step_ms)) + BLOCK
        first = max(0, plan.first_step - self._shown // BLOCK * BLOCK)
        self.older = Older(plan, len(own), first)
        self.step: I64 = np.arange(first, first)
        self.ends: NDArray[np.float64] = np.empty(0)
        self.columns: dict[str, F32] = {}
        while first + len(self.step) < plan.first_step:
            self._append()
        self.ends -= self.ends[-1] if len(self.ends) else 0.0

    def reach(self, seconds: float) -> int:
        """Make what has ended by now; returns how many of the steps on record have."""
        while not len(self.ends) or self.ends[-1] <= seconds:
            self._append()
        return int(np.searchsorted(self.ends, seconds, side="right"))

    def trim(self, done: int) -> int:
        """Retire whole blocks that no frame shows any more; returns where `done` is then."""
        while done - BLOCK >= self._shown:
            self.older.add(self.step[:BLOCK], {name: table[:, :BLOCK] for name, table in self.columns.items()})
            self.step, self.ends = self.step[BLOCK:], self.ends[BLOCK:]
            self.columns = {name: table[:, BLOCK:] for name, table in self.columns.items()}
            done -= BLOCK
        return done

    def _append(self) -> None:
        first = int(self.step[-1]) + 1 if len(self.step) else self.older.end
        steps = np.arange(first, first + BLOCK)
        table, ends = self._block(steps)
        began = float(self.ends[-1]) if len(self.ends) else 0.0
        self.step, self.ends = np.concatenate([self.step, steps]), np.concatenate([self.ends, began + ends])
        kept = self.columns or {name: values[:, :0] for name, values in table.items()}
        self.columns = {name: np.concatenate([kept[name], values], axis=1) for name, values in table.items()}

    def _block(self, steps: I64) -> tuple[dict[str, F32], NDArray[np.float64]]:
        """A block's columns for the own ranks, and when its steps end, in seconds since its first began."""
        plan = self._plan
        rng = np.random.default_rng([plan.seed, int(steps[0])])
        mean = WORK_SHARE * plan.step_ms
        wave = 1 + 0.01 * np.sin(steps / 150).astype(np.float32)
        host = rng.standard_normal((plan.nodes, BLOCK), np.float32)[np.arange(plan.ranks) // plan.per_host]
        pace = wave * (1 + _CV * rng.standard_normal((plan.ranks, BLOCK), np.float32) + _HOST_CV * host)
        shift = 0.01 * rng.standard_normal((plan.ranks, BLOCK), np.float32)
        loss_noise = rng.standard_normal(BLOCK, np.float32), rng.standard_normal((plan.ranks, BLOCK), np.float32)
        transfer = (1 - WORK_SHARE) * plan.step_ms * (0.8 + 0.05 * rng.standard_normal(BLOCK)).astype(np.float32)
        phases = {name: mean * share * pace for name, share in SHARES.items()}
        phases["forward"] += mean * shift
        phases["backward"] -= mean * shift
        for name, extra in self._scenario.extra(plan, steps, mean).items():
            phases[name] += extra
        work: F32 = np.sum([phases[name] for name in PHASES], axis=0, dtype=np.float32)
        duration = work.max(axis=0) + np.maximum(transfer, 0.1)
        ends = np.cumsum(duration, dtype=np.float64) / 1e3
        if self._scenario.hung is not None:
            ends[steps >= plan.fault_step] = math.inf
        own = self._own
        table = {name: phases[name][own] for name in PHASES if name != "other"}
        table["exposed"] = duration - work[own]
        table["duration"] = np.broadcast_to(duration, table["exposed"].shape)
        table["allreduce"] = BACKWARD_OVERLAP * table["backward"] + table["exposed"]
        table["loss"] = loss_at(steps) * (1 + 0.01 * loss_noise[0] + 0.02 * loss_noise[1][own])
        table["samples"] = np.full_like(table["exposed"], SAMPLES)
        for name in ("barrier", "marked", "gc"):
            table[name] = np.zeros_like(table["exposed"])
        table["work"] = work[own]
        if plan.bucket_detail:
            table["buckets"] = bucket_ms(plan, work, phases["backward"], duration, own)
        return table, ends
