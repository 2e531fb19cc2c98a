"""Losses: values that are not finite, and losses that rise to several times what they were and stay there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ddpmon.diagnose.alert import Alert, Measures
from ddpmon.diagnose.job_policy import LOSSES
from ddpmon.diagnose.step_matrix import NewSteps
from ddpmon.diagnose.tick import Tick
from ddpmon.parts import BadLoss
from ddpmon.run.medians import row_medians
from ddpmon.run.model import SILENT_S, Run
from ddpmon.run.rings import F32, I64

F64 = NDArray[np.float64]
_ASKED = 8  # ranks whose later losses are looked at: it bounds the work where all ranks of a large run are meant


class LossJumpMeasures(Measures, frozen=True):
    """A loss that has risen to several times what it was.

    Attributes:
        before: its median before the jump.
        after: its median since.
        limit: what a value must exceed to belong to the jump.
        calm_steps: how many logged values in a row have been below the limit since.
        world_size: the number of ranks of the run.
    """

    before: float
    after: float
    limit: float
    calm_steps: int
    world_size: int


class NonfiniteLossMeasures(Measures, frozen=True):
    """Losses that are not finite.

    Attributes:
        value: what the first one was.
        first_step: the first step with one.
        last_step: the last step with one.
        count: how many there were, on all ranks together.
        first_ranks: the ranks that had one in the first step.
        later_ranks: the ranks that have had one since.
        later_step: the first step in which one of those had one, None without any.
        finite_since: the first step after the last one with a loss that is finite, None while there is none.
    """

    value: Literal["nan", "inf", "-inf"]
    first_step: int
    last_step: int
    count: int
    first_ranks: tuple[int, ...]
    later_ranks: tuple[int, ...]
    later_step: int | None
    finite_since: int | None


def limits(values: F32) -> tuple[F64, F64]:
    """[n] median of each row, and what a value must exceed to be a jump: NaN where too little is known.

    median + max(4 |median|, 10 robust standard deviations): five times the median, for losses that are positive and
    steady, and something sensible for those near zero or below it.
    """
    middle = row_medians(values).astype(np.float64)  # four times a float32 may be more than one can hold
    noise = 1.4826 * row_medians(np.abs(values - middle[:, None]))
    enough = (~np.isnan(values)).sum(axis=1) >= LOSSES.enough_values
    limit = middle + np.maximum(
        LOSSES.rise_ratio * np.abs(middle), np.maximum(LOSSES.rise_sigmas * noise, LOSSES.least_rise)
    )
    return middle, np.where(enough, limit, np.nan)


def onsets(values: F32, limit: F64) -> I64:
    """[n] where the first run of three logged values above the limit begins, -1 without one; gaps do not count."""
    with np.errstate(invalid="ignore"):
        above = values > limit[:, None]
    found = np.full(len(values), -1, np.int64)
    for row in np.flatnonzero(above.sum(axis=1) >= LOSSES.lasting_values).tolist():
        places = np.flatnonzero(~np.isnan(values[row]))
        high = above[row, places]
        runs = np.flatnonzero(np.convolve(high, np.ones(LOSSES.lasting_values), "valid") == LOSSES.lasting_values)
        if runs.size:
            found[row] = places[runs[0]]
    return found


def raised(losses: F32, cut: int) -> NDArray[np.bool_]:
    """[n] whether three values of `losses[:, cut:]` lie above nine tenths of the row's earlier ones.

    Less is no jump; and this is far cheaper to ask than how large a jump it is.
    """
    largest = [np.full(len(losses), -np.inf, np.float32)] * LOSSES.lasting_values
    for value in np.fmax(losses[:, cut:], -np.inf).T:  # a quarter of the time of `np.partition`
        left = value
        for place, known in enumerate(largest):
            largest[place], left = np.maximum(known, left), np.minimum(known, left)
    level = largest[-1]
    with np.errstate(invalid="ignore"):
        above: NDArray[np.bool_] = (losses[:, :cut] >= level[:, None]).sum(axis=1) <= cut // 10
    return above & np.isfinite(level)


class _Jump(Struct):
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

    def __call__(self, tick: Tick, _said: Sequence[Alert]) -> list[Alert]:
        """Judge what has been logged since the last call. A jump stands until 50 logged values are normal again."""
        run, ranks = tick.run, tick.alive
        steps = self._steps.take(run, ranks)
        logged = steps[np.isfinite(_losses(run, steps, ranks)).any(axis=0)]
        if steps.size and self._logged.size and steps[0] <= self._logged[-1]:  # the ranks have restarted
            self._forget()
        for start in range(0, len(logged), LOSSES.block_values):
            block = logged[start : start + LOSSES.block_values]
            if self._jump is None:
                self._seek(run, ranks, block)
            else:
                self._follow(run, ranks, block, self._jump)
        return [] if self._jump is None else [_jump_alert(run, self._jump)]

    def _forget(self) -> None:
        self._jump, self._logged, self._medians = None, self._logged[:0], self._medians[:0]

    def _seek(self, run: Run, ranks: NDArray[np.bool_], block: I64) -> None:
        """One block of logged steps, and the two before it, against the 50 before these."""
        start = max(0, len(self._logged) - LOSSES.baseline_values - LOSSES.lasting_values + 1)
        cut = max(0, len(self._logged) - LOSSES.lasting_values + 1)
        self._logged = np.concatenate([self._logged[start:], block])
        medians = row_medians(_losses(run, block, ranks).T)
        self._medians = np.concatenate([self._medians[start:], medians])
        if cut - start >= LOSSES.enough_values:
            self._jump = _find(run, ranks, self._logged, self._medians, cut - start)

    def _follow(self, run: Run, ranks: NDArray[np.bool_], block: I64, jump: _Jump) -> None:
        losses = _losses(run, block, ranks)
        chosen = np.isin(np.flatnonzero(ranks), jump.ranks)
        values = row_medians((losses[chosen] if chosen.any() else losses).T)
        for value in values[np.isfinite(values)].tolist():
            jump.calm = jump.calm + 1 if value <= jump.limit else 0
            if jump.calm >= LOSSES.baseline_values:
                self._forget()
                return


def _losses(run: Run, steps: I64, ranks: NDArray[np.bool_]) -> F32:
    """[ranks, steps] the logged losses; NaN where nothing was logged, or nothing finite."""
    losses = run.rings.take("loss", steps, np.flatnonzero(ranks))
    np.copyto(losses, np.float32(np.nan), where=np.isinf(losses))
    return losses


def _find(run: Run, ranks: NDArray[np.bool_], steps: I64, medians: F32, cut: int) -> _Jump | None:
    """A jump at `steps[cut:]` against the steps before: a minority's of `ranks`, or the job's."""
    who_ = np.flatnonzero(ranks)
    losses = _losses(run, steps, ranks)
    high = np.flatnonzero(raised(losses, cut))
    before, after = losses[high, :cut], losses[high, cut:]
    base, limit = limits(before)
    own = onsets(after, limit)
    jumped = np.flatnonzero(own >= 0)
    judged = int(((~np.isnan(losses[:, :cut])).sum(axis=1) >= LOSSES.enough_values).sum()) if jumped.size else 0
    if 2 * jumped.size < judged or (jumped.size == 1 and judged == 2):
        first = jumped[np.argsort(own[jumped], kind="stable")]
        at = int(first[0])
        named = tuple(who_[high[first]].tolist())
        return _jump(named, steps[cut:], int(own[at]), after[at], float(base[at]), float(limit[at]))
    base, limit = limits(medians[None, :cut])
    at = int(onsets(medians[None, cut:], limit)[0])
    return _jump((), steps[cut:], at, medians[cut:], float(base[0]), float(limit[0])) if at >= 0 else None


def _jump(ranks: tuple[int, ...], recent: I64, at: int, after: F32, base: float, limit: float) -> _Jump:
    return _Jump(ranks, int(recent[at]), base, float(np.nanmedian(after[at:])), limit)


def _jump_alert(run: Run, jump: _Jump) -> Alert:
    hosts = {state.frame.host for rank in jump.ranks if (state := run.ranks[rank]) is not None}
    return Alert(
        kind="loss_jump",
        severity="warning",
        ranks=jump.ranks,
        nodes=tuple(sorted(hosts)),
        since_step=jump.since,
        measures=LossJumpMeasures(jump.before, jump.after, jump.limit, jump.calm, run.info.world_size),
    )


def find_nonfinite(tick: Tick, _said: Sequence[Alert]) -> list[Alert]:
    """One alert for all ranks with such losses; it names a minority that was first, else nobody in particular.

    Nothing is said while a rank that goes on has not reported the first such step: frames come in any order, and the
    ranks that the trouble has spread to would be named for the one where it began.

    A trouble that has passed (finite losses since, as after the steps that AMP skips) is a warning, and after 200
    steps information.
    """
    run, ages = tick.run, tick.ages
    bad = {rank: loss for rank, loss in sorted(run.latest.bad_loss.items()) if loss.count}
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
    return [_nonfinite_alert(run, named, _nonfinite_measures(bad, first, since_then))]


def _is_awaited(run: Run, ages: NDArray[np.float64], step: int) -> bool:
    """Whether a rank that goes on has not yet reported `step`."""
    behind = np.flatnonzero((run.rings.last < step) & (ages <= SILENT_S))
    states = [run.ranks[rank] for rank in behind.tolist()]
    return any(state is not None and state.frame.state == "running" for state in states)


def _finite_since(run: Run, ranks: Sequence[int], last: int) -> int | None:
    """The first step after `last` at which one of `ranks` logged a finite loss; None while there is none."""
    steps, losses = run.rings.step[ranks].astype(np.int64), run.rings.of("loss", ranks)
    later = steps[(steps > last) & np.isfinite(losses)]
    return int(later.min()) if later.size else None


def _nonfinite_measures(
    bad: dict[int, BadLoss], first: Sequence[int], finite_since: int | None
) -> NonfiniteLossMeasures:
    since = bad[first[0]].first_step
    later = {rank: loss.first_step for rank, loss in bad.items() if loss.first_step > since}
    return NonfiniteLossMeasures(
        value=bad[first[0]].value,
        first_step=since,
        last_step=max(loss.last_step for loss in bad.values()),
        count=sum(loss.count for loss in bad.values()),
        first_ranks=tuple(first),
        later_ranks=tuple(later),
        later_step=min(later.values(), default=None),
        finite_since=finite_since,
    )


def _nonfinite_alert(run: Run, named: Sequence[int], measures: NonfiniteLossMeasures) -> Alert:
    newest = int(run.latest.step.max())
    fading = measures.finite_since is not None and newest - measures.last_step > LOSSES.fresh_steps
    hosts = {state.frame.host for rank in named if (state := run.ranks[rank]) is not None}
    return Alert(
        kind="nonfinite_loss",
        severity="critical" if measures.finite_since is None else "info" if fading else "warning",
        ranks=tuple(named),
        nodes=tuple(sorted(hosts)),
        since_step=max(measures.first_step, 0),
        measures=measures,
    )
