"""What lies long behind: means over a stride that doubles when the room is full, as a probe keeps them."""

from __future__ import annotations

import numpy as np

from ddpmon.simulate.plan import BACKWARD_OVERLAP, BLOCK, SAMPLES, SHARES, WORK_SHARE, Plan, loss_at
from ddpmon.simulate.scenarios import F32, I64

ROWS = 256


class Older:
    """The decimated past of some ranks.

    Args:
        plan: the run; its hours are made up here.
        count: how many ranks.
        end: the step behind the last one that is made up.

    Attributes:
        end: the step behind the last one taken in.
        stride: steps a row.
    """

    def __init__(self, plan: Plan, count: int, end: int) -> None:
        self.end, self.stride = end, 1
        while -(-end // self.stride) > ROWS:
            self.stride *= 2
        self.step: I64 = np.arange(0, end, self.stride)
        rng = np.random.default_rng([plan.seed, 1 << 62])
        shape = (count, len(self.step))
        means = {name: WORK_SHARE * share for name, share in SHARES.items() if name != "other"}
        reduction = BACKWARD_OVERLAP * means["backward"] + 1 - WORK_SHARE
        means |= {"exposed": 1 - WORK_SHARE, "duration": 1.0, "allreduce": reduction}
        noise = 1 + 0.01 * rng.standard_normal(shape, np.float32)
        self.columns: dict[str, F32] = {name: plan.step_ms * mean * noise for name, mean in means.items()}
        self.columns |= {"loss": loss_at(self.step) * noise, "samples": np.full(shape, SAMPLES, np.float32)}
        self.columns |= {name: np.zeros(shape, np.float32) for name in ("barrier", "marked", "gc")}
        self._waiting: list[dict[str, F32]] = []

    def add(self, steps: I64, columns: dict[str, F32]) -> None:
        """Take a block of steps in, which follows on the last."""
        self.end = int(steps[-1]) + 1
        if self.stride <= BLOCK:
            self._keep({name: _means(columns[name], self.stride) for name in self.columns})
            return
        self._waiting.append({name: columns[name].mean(axis=1, keepdims=True) for name in self.columns})
        if self.end % self.stride == 0:
            waiting, self._waiting = self._waiting, []
            self._keep({name: np.mean([part[name] for part in waiting], axis=0) for name in self.columns})

    def _keep(self, rows: dict[str, F32]) -> None:
        self.columns = {name: np.concatenate([table, rows[name]], axis=1) for name, table in self.columns.items()}
        count = self.columns["duration"].shape[1]
        self.step = np.arange(count) * self.stride
        if count > ROWS:
            whole = count // 2 * 2
            self.stride *= 2
            self.columns = {name: _means(table[:, :whole], 2) for name, table in self.columns.items()}
            self.step = np.arange(whole // 2) * self.stride


def _means(table: F32, every: int) -> F32:
    means: F32 = table.reshape(len(table), -1, every).mean(axis=2, dtype=np.float32)
    return means
