"""Alerts of contention made by hand, for the tables of their sentences."""

from __future__ import annotations

from ddpmon.diagnose.alert import Alert, Measures
from ddpmon.diagnose.kinds import KindName
from ddpmon.report.sentences import SENTENCES

Row = tuple[str, Alert, str, str, str]  # its name, the alert, and its summary, advice and "because of"


def contention(kind: KindName, measures: Measures, ranks: tuple[int, ...] = (2,), host: str = "node0") -> Alert:
    """A contention on one host."""
    return Alert(kind, "info", ranks=ranks, nodes=(host,), measures=measures)


def because(alert: Alert) -> str:
    """What follows "because of" where this contention is the cause of a lateness."""
    return SENTENCES[type(alert.measures)](alert.measures, alert).because
