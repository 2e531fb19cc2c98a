"""Losses that are not finite: on which rank they began, before the gradients carried them to every other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ddpmon.diagnose.finding import Finding
from ddpmon.diagnose.wording import who
from ddpmon.parts import BadLoss
from ddpmon.run.model import SILENT_S, Run

_WORDS = {"nan": "NaN", "inf": "infinite", "-inf": "minus infinite"}
_ASKED = 8  # ranks whose later losses are looked at
_FRESH_STEPS = 200


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
    return [_finding(run, bad, first, named, since_then)]


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


def _finding(
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
    whose = f"the loss of {who(named)}" if named else "the loss"
    later = {rank: loss.first_step for rank, loss in bad.items() if loss.first_step > since}
    if finite_since is not None:
        passing = f"at step {since:,}" if last == since else f"between steps {since:,} and {last:,}"
        return f"{whose} was {word} {passing}, and has been finite again since step {finite_since:,}"
    text = f"{whose} has been {word} since step {since:,}"
    if not named:
        return f"{text} on {who(first)}: no single rank is to blame"
    if later:
        text += f"; it spread through the gradients to {who(list(later))} from step {min(later.values()):,} on"
    return text


def _advice(named: Sequence[int], since: int, finite_since: int | None) -> str:
    if finite_since is not None:
        return (
            "normal now and then in mixed precision, where the gradient scaler skips such steps; see whether it recurs"
        )
    if named:
        return f"check the batch that {who(named)} read at step {since:,}, then restart from an earlier checkpoint"
    return f"restart from a checkpoint before step {since:,}; check learning rate, gradient clipping and loss scaling"
