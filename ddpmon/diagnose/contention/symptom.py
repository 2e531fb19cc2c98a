"""What one look at a host shows of one clash, and the words for whose doing it is."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from ddpmon.diagnose.finding import Severity
from ddpmon.diagnose.kinds import KindName
from ddpmon.diagnose.wording import clean, named
from ddpmon.machine import Process

LOOKS = 3  # frames of a host that must show a clash: one sudden value is none
Evidence = dict[str, float | int | str]
Source = tuple[str, str]  # a sensor of a host and what it reads: ("host", "processes"), ("disk", "/work")


@dataclass(frozen=True, slots=True)
class Symptom:
    """One clash as one frame of a host shows it.

    Attributes:
        about: what tells it from others of its kind on the same host.
        ranks: whom it hurts, worst first.
        summary: one sentence.
        because: what follows "because of" where it is a cause: its name as a noun, then the details.
        threat: how bad it is even if nobody is late.
        looks: how many frames in a row must show it.
        source: whose readings it rests on, None where every frame brings a new one: what is only told again is no news.
    """

    kind: KindName
    about: Hashable
    ranks: tuple[int, ...]
    summary: str
    because: str
    evidence: Evidence
    advice: str
    threat: Severity = "info"
    looks: int = LOOKS
    source: Source | None = None


def labels(processes: Sequence[Process]) -> str:
    """The first of them, and how many more: pid 8123 (bob, python x.py) and 2 more."""
    more = len(processes) - 1
    return named(processes[0]) + (f" and {more} more" if more > 0 else "")


def culprit(processes: Sequence[Process]) -> Evidence:
    """Whose doing it is, as evidence: the first one whole, and everybody's number."""
    first = processes[0]
    evidence: Evidence = {"pid": first.pid}
    if first.user:
        evidence["user"] = clean(first.user, 32)
    if first.command:
        evidence["command"] = clean(first.command)
    if len(processes) > 1:
        evidence["pids"] = ", ".join(str(process.pid) for process in processes[:16])
    return evidence
