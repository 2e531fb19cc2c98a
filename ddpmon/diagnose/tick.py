"""What the rules judge at one tick, and the form that all of them have."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ddpmon.diagnose.alert import Alert
from ddpmon.diagnose.kinds import KINDS
from ddpmon.diagnose.step_matrix import StepMatrix, alive
from ddpmon.run.model import Run


class Tick(Struct, frozen=True, dict=True):
    """What a rule judges.

    Attributes:
        run: all that is known of the run.
        ages: [world] how long each rank has been silent while the store could be read, in s, which is the age of its
            newest frame if there was no outage; NaN for a rank never heard of.
        steps: the usable steps on record.
    """

    run: Run
    ages: NDArray[np.float64]
    steps: StepMatrix

    @cached_property
    def alive(self) -> NDArray[np.bool_]:
        """[world] the ranks that take part and are not lost; not to be written."""
        return alive(self.run, self.ages)


class Rule(Protocol):
    """Judges one kind of trouble, in numbers; it may remember what it needs from tick to tick.

    Two rules know each other besides, `Stragglers` and `CostlyRanks`: a rank that one of them has confirmed is left
    alone by the other.
    """

    def __call__(self, tick: Tick, said: Sequence[Alert], /) -> Sequence[Alert]:
        """The alerts of this rule now.

        Args:
            tick: what to judge.
            said: what the rules before it say at this tick.
        """


def late_of(said: Sequence[Alert]) -> list[Alert]:
    """Those of the alerts that are on late ranks, also where these are late by design."""
    return [alert for alert in said if KINDS[alert.kind].late or alert.kind == "uneven_work"]
