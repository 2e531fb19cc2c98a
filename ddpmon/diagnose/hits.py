"""The steps in which somebody who comes and goes held the others up, and what they tell of its rhythm."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ddpmon.run.rings import I64

QUIET_STEPS = 30
_GAPS = 6  # over, or begun, where nothing is seen for so many times the mean gap: chance itself leaves four
_GAPS_KEPT = 30
STEADY = 0.6  # of the steps: that is rule A's to name


@dataclass(frozen=True, slots=True)
class Hits:
    """Steps (their places on record, ascending) in which one rank, or some together, held the others up."""

    at: I64

    @property
    def last(self) -> int:
        """The newest, -1 without any."""
        return int(self.at[-1]) if self.at.size else -1

    @property
    def gap(self) -> float:
        """The mean number of steps from one to the next."""
        gaps = np.diff(self.at[-_GAPS_KEPT:])
        return float(gaps.mean()) if gaps.size else 1.0

    @property
    def pause(self) -> float:
        """After so many steps without one it is over."""
        return max(QUIET_STEPS, _GAPS * self.gap)

    @property
    def first(self) -> int:
        """The first of the present stretch."""
        breaks = np.flatnonzero(np.diff(self.at) > self.pause)
        return int(self.at[breaks[-1] + 1] if breaks.size else self.at[0])

    @property
    def steady(self) -> bool:
        """Whether the present stretch is of nearly all steps."""
        stretch = self.at[self.at >= self.first]
        return len(stretch) >= STEADY * (self.last + 1 - self.first)

    def fresh(self, end: int) -> bool:
        """Whether the newest is no further behind `end` than usual."""
        return end - self.last <= max(QUIET_STEPS, self.gap)
