"""The measures of an alert, by the class that a test expects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from ddpmon.diagnose.alert import Alert, Measures
from ddpmon.diagnose.hang import Hang, MismatchMeasures, SilentMeasures, StuckMeasures, UnattributedMeasures

M = TypeVar("M", bound=Measures)


def only(found: Sequence[Alert]) -> Alert:
    """The one alert that there is."""
    (alert,) = found
    return alert


def measured(alert: Alert, kind: type[M]) -> M:
    """Its measures, which are of this class."""
    assert isinstance(alert.measures, kind)
    return alert.measures


def hang(alert: Alert) -> Hang:
    """What is known of a hang, whichever it is."""
    measures = alert.measures
    assert isinstance(measures, SilentMeasures | MismatchMeasures | StuckMeasures | UnattributedMeasures)
    return measures.hang


def waiting(alert: Alert) -> tuple[int, ...]:
    """The ranks that wait in a hang."""
    waiters = hang(alert).waiters
    return () if waiters is None else waiters.ranks
