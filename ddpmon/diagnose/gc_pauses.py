"""Pauses of Python's garbage collector that the whole job waits for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ddpmon.diagnose.finding import Finding
from ddpmon.diagnose.steps import WARM_UP, NewSteps, alive
from ddpmon.diagnose.wording import who
from ddpmon.format import ms, pct
from ddpmon.run.marks import paused_steps
from ddpmon.run.model import Run
from ddpmon.run.rings import I64

_STEPS = 500
_CHUNK = 64
_INFO_PCT, _WARNING_PCT = 1.0, 5.0
_PAUSES = 3
_PAUSE_SHARE, _PAUSE_MS = 0.02, 1.0  # of a step, and at least
_NAMED = 8
_ADVICE = (
    "call gc.freeze() once the model is built; or call gc.disable(), and gc.collect() every few hundred steps at the "
    "same step on all ranks"
)


class GcRule:
    """Adds up, step by step, what the job would have saved without the collector."""

    def __init__(self) -> None:
        self._steps = NewSteps()
        self._judged: NDArray[np.float64] = np.empty((0, 4))  # step, duration, saved, the collector's longest: ms

    def update(self, run: Run, ages: NDArray[np.float64]) -> list[Finding]:
        """Take in the steps finished since the last call; the verdict is on the last 500 usable ones."""
        ranks = alive(run, ages)
        steps = self._steps.take(run, ranks)
        if steps.size and len(self._judged) and steps[-1] < self._judged[-1, 0]:
            self._judged = np.empty((0, 4))
        for start in range(0, len(steps), _CHUNK):
            self._add(run, ranks, steps[start : start + _CHUNK])
        self._judged = self._judged[-_STEPS:]
        return self._verdict(run, ranks)

    def _add(self, run: Run, ranks: NDArray[np.bool_], steps: I64) -> None:
        """`saved = max_r work - max_r(work - gc)`: what the slowest rank would have been faster."""
        take = {name: run.rings.take(name, steps)[ranks] for name in ("work", "gc", "duration")}
        gc = np.minimum(np.nan_to_num(take["gc"]), take["work"])
        usable = (steps >= WARM_UP) & ~paused_steps(run.rings, steps, np.flatnonzero(ranks))
        saved = take["work"].max(axis=0) - (take["work"] - gc).max(axis=0)
        rows = np.stack([steps, take["duration"].max(axis=0), saved, gc.max(axis=0)], axis=1)
        self._judged = np.concatenate([self._judged, rows[usable]])

    def _verdict(self, run: Run, ranks: NDArray[np.bool_]) -> list[Finding]:
        step, duration, saved, longest = self._judged.T
        if not len(step):
            return []
        cost = 100 * float(saved.sum()) / max(1e-9, float(duration.sum()))
        pauses = saved >= max(_PAUSE_MS, _PAUSE_SHARE * float(np.median(duration)))
        if cost < _INFO_PCT or pauses.sum() < _PAUSES:
            return []
        worst = _worst(run, ranks, step[pauses].astype(np.int64))
        typical, often = float(np.median(longest[pauses])), len(step) / int(pauses.sum())
        return [
            Finding(
                kind="gc_pauses",
                severity="warning" if cost >= _WARNING_PCT else "info",
                summary=f"Python's garbage collector costs {pct(cost)} % of the run's time: pauses of {ms(typical)}, "
                f"one in {often:.0f} steps, mostly on {who(worst)}",
                ranks=tuple(worst),
                since_step=int(step[pauses][0]),
                since_is_bound=len(step) >= _STEPS,
                cost_pct=cost,
                evidence={"pauses": int(pauses.sum()), "pause_ms": typical, "steps": len(step), "every": often},
                advice=_ADVICE,
            )
        ]


def _worst(run: Run, ranks: NDArray[np.bool_], steps: I64) -> list[int]:
    """The ranks with half of the worst rank's time in the collector or more, worst first, at most eight."""
    total = np.nan_to_num(run.rings.take("gc", steps)).sum(axis=1) * ranks
    order = np.argsort(-total, kind="stable")[:_NAMED]
    return [int(rank) for rank in order if total[rank] >= total.max() / 2]
