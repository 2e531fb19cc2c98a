"""A verdict as data: which trouble, on whom, since when, at what cost, and the measures that it rests on."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ddpmon.diagnose.kinds import KindName

Severity = Literal["info", "warning", "critical"]
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "critical")


class Measures(Struct, frozen=True):
    """What a rule has measured, in numbers and names. Each rule has a class of its own, without any sentence.

    The sentence on a class of measures is written in `ddpmon.report`.
    """


class Cause(Struct, frozen=True):
    """What explains a lateness.

    Attributes:
        measures: those of the contention, or of the figure, that explains it.
        ranks: the ranks that it acts on.
        host: where it is, "" for none in particular.
        certain: the numbers carry it; else it is likely.
        share: how much of the excess it carries, None where the figures do not tell.
        precedence: of causes that carry as much, the one with the greatest is named.
    """

    measures: Measures
    ranks: tuple[int, ...]
    host: str
    certain: bool
    share: float | None
    precedence: int = 0


class Alert(Struct, frozen=True):
    """One verdict: what, who, in which phase, since when, at what cost.

    Attributes:
        kind: which of the table of kinds, such as "straggler" or "rank_lost".
        severity: "info", "warning" or "critical".
        measures: what the rule measured.
        ranks: the ranks it names, worst first; empty when nobody in particular.
        nodes: the hosts it names.
        phase: input, forward, backward, optimizer, other, work, or None.
        cause: what on that rank's machine explains it, or None.
        since_step: the first step of the trouble, None when steps do not apply.
        since_is_bound: the trouble began at or before `since_step`; nothing on record shows when.
        cost_pct: percent of the job's time that it costs, None when unknown.
        cleared_at_step: about the first step without it, None while it lasts.
        id: the number of its life in the book of alerts; 0 for an alert of a rule that keeps no lives.
    """

    kind: KindName
    severity: Severity
    measures: Measures
    ranks: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()
    phase: str | None = None
    cause: Cause | None = None
    since_step: int | None = None
    since_is_bound: bool = False
    cost_pct: float | None = None
    cleared_at_step: int | None = None
    id: int = 0


def at_or_above(severity: Severity, floor: Severity) -> bool:
    """Whether `severity` is `floor` or worse."""
    return SEVERITIES.index(severity) >= SEVERITIES.index(floor)
