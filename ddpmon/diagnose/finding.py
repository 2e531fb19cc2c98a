"""What a verdict looks like, whoever draws it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["info", "warning", "critical"]
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "critical")


@dataclass(frozen=True, slots=True)
class Finding:
    """One verdict: what, who, in which phase, since when, at what cost, and what to do.

    Attributes:
        kind: one of the kinds in docs/findings.md, such as "straggler" or "rank_lost".
        severity: "info", "warning" or "critical".
        ranks: the ranks it names, worst first; empty when nobody in particular.
        nodes: the hosts it names.
        phase: input, forward, backward, optimizer, other, work, or None.
        cause: what on that rank's machine explains it, or None.
        since_step: the first step of the trouble, None when steps do not apply.
        since_is_bound: the trouble began at or before `since_step`, which is the oldest step on record.
        cost_pct: percent of the job's time that it costs, None when unknown.
        evidence: the numbers that it rests on.
        summary: one sentence a tired person understands.
        advice: what to do or look at next.
        cleared_at_step: about the first step without it, None while it lasts.
    """

    kind: str
    severity: Severity
    summary: str
    ranks: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()
    phase: str | None = None
    cause: str | None = None
    since_step: int | None = None
    since_is_bound: bool = False
    cost_pct: float | None = None
    evidence: Mapping[str, float | int | str] = field(default_factory=dict)
    advice: str = ""
    cleared_at_step: int | None = None


def at_or_above(severity: Severity, floor: Severity) -> bool:
    """Whether `severity` is `floor` or worse."""
    return SEVERITIES.index(severity) >= SEVERITIES.index(floor)
