"""What the sentences on contention have in common: the host, and the processes whose doing it is."""

from __future__ import annotations

from collections.abc import Sequence

from ddpmon.diagnose.alert import Alert
from ddpmon.diagnose.contention.symptom import MOST_CULPRITS, Culprit
from ddpmon.report.wording import clean, named
from ddpmon.report.words import Evidence


def host_of(alert: Alert) -> str:
    """The host as its frame names it, for commands; "" if the alert names none."""
    return next(iter(alert.nodes), "")


def host_name(alert: Alert) -> str:
    """The host's name, made harmless."""
    return clean(host_of(alert), 60)


def culprit_names(culprits: Sequence[Culprit]) -> str:
    """The first of them, and how many more: pid 8123 (bob, python x.py) and 2 more."""
    more = len(culprits) - 1
    return named(culprits[0]) + (f" and {more} more" if more > 0 else "")


def culprit_evidence(culprits: Sequence[Culprit]) -> Evidence:
    """The first one whole, and everybody's number; nothing where none is known."""
    if not culprits:
        return {}
    first = culprits[0]
    evidence: dict[str, float | int | str] = {"pid": first.pid}
    if first.user:
        evidence["user"] = clean(first.user, 32)
    if first.command:
        evidence["command"] = clean(first.command)
    if len(culprits) > 1:
        evidence["pids"] = ", ".join(str(culprit.pid) for culprit in culprits[:MOST_CULPRITS])
    return evidence
