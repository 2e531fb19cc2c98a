"""Losses: values that are not finite, and losses that rise to several times what they were and stay there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ddpmon.diagnose.finding import Finding
from ddpmon.diagnose.step_matrix import NewSteps, alive
from ddpmon.diagnose.wording import format_ranks
from ddpmon.parts import BadLoss
from ddpmon.run.medians import row_medians
from ddpmon.run.model import SILENT_S, Run
from ddpmon.run.rings import F32, I64

F64 = NDArray[np.float64]
ENOUGH = 20  # values that a baseline takes
LASTING = 3
_RISE, _SIGMAS = 4.0, 10.0
_NOISE_FLOOR = 1e-6
BASELINE = 50  # logged values
_BLOCK = 25
_WORDS = {"nan": "NaN", "inf": "infinite", "-inf": "minus infinite"}
_ASKED = 8  # ranks whose later losses are looked at
_FRESH_STEPS = 200


def limits(values: F32) -> tuple[F64, F64]:
    """[n] median of each row, and what a value must exceed to be a jump: NaN where too little is known.

    median + max(4 |median|, 10 robust standard deviations): five times the median, for losses that are positive and
    steady, and something sensible for those near zero or below it.
    """
    middle = row_medians(values).astype(np.float64)  # four times a float32 may be more than one can hold
    noise = 1.4826 * row_medians(np.abs(values - middle[:, None]))
    enough = (~np.isnan(values)).sum(axis=1) >= ENOUGH
    limit = middle + np.maximum(_RISE * np.abs(middle), np.maximum(_SIGMAS * noise, _NOISE_FLOOR))
    return middle, np.where(enough, limit, np.nan)


def onsets(values: F32, limit: F64) -> I64:
    """[n] where the first run of three logged values above the limit begins, -1 without one; gaps do not count."""
    with np.errstate(invalid="ignore"):
        above = values > limit[:, None]
    found = np.full(len(values), -1, np.int64)
    for row in np.flatnonzero(above.sum(axis=1) >= LASTING).tolist():
        places = np.flatnonzero(~np.isnan(values[row]))
        high = above[row, places]
        runs = np.flatnonzero(np.convolve(high, np.ones(LASTING), "valid") == LASTING)
        if runs.size:
            found[row] = places[runs[0]]
    return found


def raised(losses: F32, cut: int) -> NDArray[np.bool_]:
    """[n] whether three values of `losses[:, cut:]` lie above nine tenths of the row's earlier ones.

    Less is no jump; and this is far cheaper to ask than how large a jump it is.
    """
    level = np.partition(np.nan_to_num(losses[:, cut:], nan=-np.inf), -LASTING, axis=1)[:, -LASTING]
    with np.errstate(invalid="ignore"):
        above: NDArray[np.bool_] = (losses[:, :cut] >= level[:, None]).sum(axis=1) <= cut // 10
    return above & np.isfinite(level)


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
        if steps.size and self._logged.size and steps[0] <= self._logged[-1]:  # the ranks have restarted
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
    whose = f"the loss of {format_ranks(jump.ranks)}" if jump.ranks else "the loss"
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


def find_nonfinite(run: Run, ages: NDArray[np.float64]) -> list[Finding]:
    """One finding for all ranks with such losses; it names a minority that was first, else nobody in particular.

    Nothing is said while a rank that goes on has not told of the first such step: frames come in any order, and the
    ranks that the trouble has spread to would be named for the one where it began. `ages` is [world] in seconds.

    A trouble that has passed (finite losses since, as after the steps that AMP skips) is a warning, and after 200
    steps information.
    """
    bad = {rank: loss for rank, loss in sorted(run.standing.bad_loss.items()) if loss.count}
    if not bad:
        return []
    since = min(loss.first_step for loss in bad.values())
    if _is_awaited(run, ages, since):
        return []
    first = [rank for rank, loss in bad.items() if loss.first_step == since]
    heard = len(run.states)
    named = first if 2 * len(first) < heard or len(first) == heard == 1 or (heard == 2 and len(first) == 1) else []
    last = max(loss.last_step for loss in bad.values())
    since_then = _finite_since(run, [rank for rank, loss in bad.items() if loss.last_step == last][:_ASKED], last)
    return [_nonfinite_finding(run, bad, first, named, since_then)]


def _is_awaited(run: Run, ages: NDArray[np.float64], step: int) -> bool:
    """Whether a rank that goes on has not yet told of `step`."""
    behind = np.flatnonzero((run.rings.last < step) & (ages <= SILENT_S))
    states = [run.ranks[rank] for rank in behind.tolist()]
    return any(state is not None and state.frame.state == "running" for state in states)


def _finite_since(run: Run, ranks: Sequence[int], last: int) -> int | None:
    """The first step after `last` at which one of `ranks` logged a finite loss; None while there is none."""
    steps, losses = run.rings.step[ranks], run.rings.column["loss"][ranks]
    later = steps[(steps > last) & np.isfinite(losses)]
    return int(later.min()) if later.size else None


def _nonfinite_finding(
    run: Run, bad: dict[int, BadLoss], first: Sequence[int], named: Sequence[int], finite_since: int | None
) -> Finding:
    since, last = bad[first[0]].first_step, max(loss.last_step for loss in bad.values())
    newest = int(run.standing.step.max())
    fading = finite_since is not None and newest - last > _FRESH_STEPS
    count = sum(loss.count for loss in bad.values())
    hosts = {state.frame.host for rank in named if (state := run.ranks[rank]) is not None}
    return Finding(
        kind="nonfinite_loss",
        severity="critical" if finite_since is None else "info" if fading else "warning",
        summary=_summary(bad, first, named, finite_since),
        ranks=tuple(named),
        nodes=tuple(sorted(hosts)),
        since_step=max(since, 0),
        evidence={"first_step": since, "last_step": last, "count": count, "ranks": len(bad)},
        advice=_advice(named, since, finite_since),
    )


def _summary(bad: dict[int, BadLoss], first: Sequence[int], named: Sequence[int], finite_since: int | None) -> str:
    since, last = bad[first[0]].first_step, max(loss.last_step for loss in bad.values())
    word = _WORDS[bad[first[0]].value]
    whose = f"the loss of {format_ranks(named)}" if named else "the loss"
    later = {rank: loss.first_step for rank, loss in bad.items() if loss.first_step > since}
    if finite_since is not None:
        passing = f"at step {since:,}" if last == since else f"between steps {since:,} and {last:,}"
        return f"{whose} was {word} {passing}, and has been finite again since step {finite_since:,}"
    text = f"{whose} has been {word} since step {since:,}"
    if not named:
        return f"{text} on {format_ranks(first)}: no single rank is to blame"
    if later:
        text += f"; it spread through the gradients to {format_ranks(list(later))} from step {min(later.values()):,} on"
    return text


def _advice(named: Sequence[int], since: int, finite_since: int | None) -> str:
    if finite_since is not None:
        return (
            "normal now and then in mixed precision, where the gradient scaler skips such steps; see whether it recurs"
        )
    if named:
        batch = f"the batch that {format_ranks(named)} read at step {since:,}"
        return f"check {batch}, then restart from an earlier checkpoint"
    return f"restart from a checkpoint before step {since:,}; check learning rate, gradient clipping and loss scaling"
