"""Phases that the user named (`with monitor.phase("checkpoint")`), as the ranks' frames tell of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ddpmon.schema import Mark

_NAMES = 32
_STEPS = 64


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
    """

    pauses: dict[str, dict[int, Pause]] = field(default_factory=dict)

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
            if len(steps) > _STEPS:
                del steps[min(steps)]
            return
        known.ranks += 1
        if ms > known.ms:
            known.ms, known.rank = ms, rank

    def longest_s(self, name: str) -> float:
        """The longest pause of this name on record, in seconds; 0 without any."""
        return max((pause.ms for pause in self.pauses.get(name, {}).values()), default=0.0) / 1e3
