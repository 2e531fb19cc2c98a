"""Loss jumps: a loss that rises to several times what it was, and stays there for some steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ddpmon.diagnose.finding import Finding
from ddpmon.diagnose.jumps import ENOUGH, LASTING, limits, onsets, raised
from ddpmon.diagnose.steps import NewSteps, alive
from ddpmon.diagnose.wording import who
from ddpmon.run.medians import row_medians
from ddpmon.run.model import Run
from ddpmon.run.rings import F32, I64

BASELINE = 50  # logged values
_BLOCK = 25


@dataclass(slots=True)
class _Jump:
    """A jump that stands: whose, since when, from what to what; `calm` counts logged values back below the limit."""

    ranks: tuple[int, ...]
    since: int
    before: float
    after: float
    limit: float
    calm: int = 0


class LossJumpRule:
    """Follows the losses from frame to frame: every rank's against its own past, and the median of all."""

    def __init__(self) -> None:
        self._logged: I64 = np.empty(0, np.int64)
        self._medians: F32 = np.empty(0, np.float32)  # of all ranks, at `_logged`
        self._steps = NewSteps()
        self._jump: _Jump | None = None

    def update(self, run: Run, ages: NDArray[np.float64]) -> list[Finding]:
        """Judge what has been logged since the last call. A jump stands until 50 logged values are normal again."""
        ranks = alive(run, ages)
        steps = self._steps.take(run, ranks)
        logged = steps[np.isfinite(_losses(run, steps, ranks)).any(axis=0)]
        if steps.size and self._logged.size and steps[0] <= self._logged[-1]:  # the ranks have started anew
            self._forget()
        for start in range(0, len(logged), _BLOCK):
            block = logged[start : start + _BLOCK]
            if self._jump is None:
                self._seek(run, ranks, block)
            else:
                self._follow(run, ranks, block, self._jump)
        return [] if self._jump is None else [_finding(run, self._jump)]

    def _forget(self) -> None:
        self._jump, self._logged, self._medians = None, self._logged[:0], self._medians[:0]

    def _seek(self, run: Run, ranks: NDArray[np.bool_], block: I64) -> None:
        """One block of logged steps, and the two before it, against the 50 before these."""
        start = max(0, len(self._logged) - BASELINE - LASTING + 1)
        cut = max(0, len(self._logged) - LASTING + 1)
        self._logged = np.concatenate([self._logged[start:], block])
        medians = row_medians(_losses(run, block, ranks).T)
        self._medians = np.concatenate([self._medians[start:], medians])
        if cut - start >= ENOUGH:
            self._jump = _find(run, ranks, self._logged, self._medians, cut - start)

    def _follow(self, run: Run, ranks: NDArray[np.bool_], block: I64, jump: _Jump) -> None:
        losses = _losses(run, block, ranks)
        chosen = np.isin(np.flatnonzero(ranks), jump.ranks)
        values = row_medians((losses[chosen] if chosen.any() else losses).T)
        for value in values[np.isfinite(values)].tolist():
            jump.calm = jump.calm + 1 if value <= jump.limit else 0
            if jump.calm >= BASELINE:
                self._forget()
                return


def _losses(run: Run, steps: I64, ranks: NDArray[np.bool_]) -> F32:
    """[ranks, steps] the logged losses; NaN where nothing was logged, or nothing finite."""
    losses = run.rings.take("loss", steps)[ranks]
    losses[~np.isfinite(losses)] = np.nan
    return losses


def _find(run: Run, ranks: NDArray[np.bool_], steps: I64, medians: F32, cut: int) -> _Jump | None:
    """A jump at `steps[cut:]` against the steps before: a minority's of `ranks`, or the job's."""
    who_ = np.flatnonzero(ranks)
    losses = _losses(run, steps, ranks)
    judged = int(((~np.isnan(losses[:, :cut])).sum(axis=1) >= ENOUGH).sum())
    high = np.flatnonzero(raised(losses, cut))
    before, after = losses[high, :cut], losses[high, cut:]
    base, limit = limits(before)
    own = onsets(after, limit)
    jumped = np.flatnonzero(own >= 0)
    if jumped.size and (2 * jumped.size < judged or (jumped.size == 1 and judged == 2)):
        first = jumped[np.argsort(own[jumped], kind="stable")]
        at = int(first[0])
        named = tuple(who_[high[first]].tolist())
        return _jump(named, steps[cut:], int(own[at]), after[at], float(base[at]), float(limit[at]))
    base, limit = limits(medians[None, :cut])
    at = int(onsets(medians[None, cut:], limit)[0])
    return _jump((), steps[cut:], at, medians[cut:], float(base[0]), float(limit[0])) if at >= 0 else None


def _jump(ranks: tuple[int, ...], recent: I64, at: int, after: F32, base: float, limit: float) -> _Jump:
    return _Jump(ranks, int(recent[at]), base, float(np.nanmedian(after[at:])), limit)


def _finding(run: Run, jump: _Jump) -> Finding:
    hosts = {state.frame.host for rank in jump.ranks if (state := run.ranks[rank]) is not None}
    whose = f"the loss of {who(jump.ranks)}" if jump.ranks else "the loss"
    alone = "the losses of the other ranks did not" if jump.ranks else "on no rank in particular"
    if run.info.world_size == 1:
        alone = "it had been steady for many steps"
    return Finding(
        kind="loss_jump",
        severity="warning",
        summary=f"{whose} jumped from {jump.before:.4g} to {jump.after:.4g} at step {jump.since:,}: {alone}",
        ranks=jump.ranks,
        nodes=tuple(sorted(hosts)),
        since_step=jump.since,
        evidence={"before": jump.before, "after": jump.after, "limit": jump.limit, "calm_steps": jump.calm},
        advice="check the data that this rank read from that step on"
        if jump.ranks
        else "check learning rate, gradient clipping and the data from that step on; restart from an older checkpoint",
    )
