"""Phases that the user named (`with monitor.phase("checkpoint")`), and which ranks are in one now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ddpmon.run.rings import F32, I64, Rings
from ddpmon.schema import Mark

_NAMES = 32
MOST_PAUSES = 64  # steps in which a phase of one name was, the newest
_RECENT_STEPS, _OFTEN, _MORE, _SMALL = 64, 0.4, 3.0, 0.05


@dataclass(slots=True)
class Pause:
    """One named phase in one step: the longest that any rank spent in it (ms), that rank, and how many had it."""

    ms: float
    rank: int
    ranks: int = 1


@dataclass(slots=True)
class Marks:
    """The named phases of all ranks, merged by step.

    Attributes:
        pauses: name -> step -> Pause; the newest 64 steps of the first 32 names.
        since: the first step whose names are known: histories have none. A high number before the first frame.
    """

    pauses: dict[str, dict[int, Pause]] = field(default_factory=dict)
    since: int = 1 << 62

    def add(self, rank: int, marks: Sequence[Mark], seen: int) -> int:
        """Take in what `rank` says of steps above `seen`; returns the newest step that it has now spoken of.

        All marks of a step arrive together, and frames repeat them for some seconds.
        """
        spent: dict[tuple[str, int], float] = {}
        for mark in marks:
            if mark.step > seen and mark.ms >= 0:
                spent[mark.name, mark.step] = spent.get((mark.name, mark.step), 0.0) + mark.ms
        for (name, step), ms in spent.items():
            self._merge(rank, name, step, ms)
        return max((step for _, step in spent), default=seen)

    def _merge(self, rank: int, name: str, step: int, ms: float) -> None:
        if name not in self.pauses and len(self.pauses) >= _NAMES:
            return
        steps = self.pauses.setdefault(name, {})
        known = steps.get(step)
        if known is None:
            steps[step] = Pause(ms, rank)
            if len(steps) > MOST_PAUSES:
                del steps[min(steps)]
            return
        known.ranks += 1
        if ms > known.ms:
            known.ms, known.rank = ms, rank

    def longest_s(self, name: str) -> float:
        """The longest pause of this name on record, in seconds; 0 without any."""
        return max((pause.ms for pause in self.pauses.get(name, {}).values()), default=0.0) / 1e3


def paused(marked: F32) -> NDArray[np.bool_]:
    """[T] whether a pause lies in each step, by `marked` [3, T] as `marked_in` has it.

    What takes less than 5 % of the step is none. A phase that the typical rank has in four steps of ten or more (a
    rollout) is part of the work: then a pause is what takes three times as long.
    """
    longest, typical, duration = marked
    known = typical[~np.isnan(typical)]
    often = known.size and (known > 0).mean() >= _OFTEN
    usual = float(np.quantile(known, 1 - _OFTEN / 2)) if often else 0.0
    least = np.maximum(_MORE * usual, _SMALL * np.nan_to_num(duration))
    found: NDArray[np.bool_] = np.nan_to_num(longest) > least
    return found


def paused_steps(rings: Rings, steps: I64, who: I64) -> NDArray[np.bool_]:
    """[T] the same of `steps` (ascending), by what the ranks in `who` say of them and of the 64 steps before."""
    if not steps.size or not who.size or rings.is_nothing("marked"):
        return np.zeros(len(steps), np.bool_)
    around = np.arange(max(0, int(steps[0]) - _RECENT_STEPS), int(steps[-1]) + 1)
    found: NDArray[np.bool_] = paused(marked_in(rings, around, who))[steps - around[0]]
    return found


def marked_in(rings: Rings, steps: I64, who: I64 | None = None) -> F32:
    """[3, T] in ms: the most that any of `who` (all, by default) spent in marked phases, the median, and the step.

    NaN where nobody tells. Of the median only what `other` holds: marked phases are part of it.
    """
    marked, found = rings.take("marked", steps, who), np.full((3, len(steps)), np.nan, np.float32)
    if not len(marked):
        return found
    found[0] = np.fmax.reduce(marked, axis=0)
    if not (found[0] > 0).any():  # the usual case: nothing is marked
        found[1] = found[0]
    else:
        held = np.fmin(marked, rings.take("other", steps, who))
        found[1] = np.partition(held, len(held) // 2, axis=0)[len(held) // 2]  # NaN sorts last
        found[2] = np.fmax.reduce(rings.take("duration", steps, who), axis=0)
    return found
