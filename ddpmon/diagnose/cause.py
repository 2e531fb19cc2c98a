"""The cause of a lateness: the verdict on the ranks joined with the evidence of their machine, its strength said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ddpmon.diagnose.alert import SEVERITIES, Alert, Cause, Measures, Severity
from ddpmon.diagnose.alert_book import AlertBook, Life
from ddpmon.diagnose.contention.clashes import Clashes
from ddpmon.diagnose.contention.lifetimes import Clash
from ddpmon.diagnose.explain import Lateness, weigh
from ddpmon.diagnose.kinds import KINDS
from ddpmon.diagnose.late_policy import CAUSE, LATENESS
from ddpmon.diagnose.measure import LateMeasures, is_collecting
from ddpmon.diagnose.tick import Tick

Figure = Literal["throttled", "clock", "cpu_clock", "queue"]
_FIGURES: tuple[Figure, ...] = ("throttled", "clock", "cpu_clock", "queue")  # the first that carries as much is named


@dataclass(frozen=True, slots=True)
class FigureMeasures(Measures):
    """A figure of the late ranks' own that explains their lateness, where no contention is known that would.

    Attributes:
        figure: time that a CPU quota stops them, the clock of their GPU or of their CPU, or time that they wait for a
            CPU.
        carried_ms: how much of a step's excess it explains.
    """

    figure: Figure
    carried_ms: float


class CauseFinder:
    """Finds the contention of a run, and what of it makes ranks or the job late.

    Args:
        book: where the alerts live: a life remembers the causes that were found for it.
    """

    def __init__(self, book: AlertBook) -> None:
        self._book = book
        self._clashes = Clashes(book)

    def __call__(self, tick: Tick, said: Sequence[Alert]) -> list[Alert]:
        """`said` with causes, and the contention behind it."""
        clashes, lives = self._clashes.update(tick.run, said), self._book.lives()
        weighed = weigh(tick.run, tick.steps, self._clashes.figures, said)
        causes = {id(each.finding): _cause(lives[each.finding.id], each, clashes) for each in weighed}
        explained = [replace(alert, cause=causes[id(alert)]) if id(alert) in causes else alert for alert in said]
        return [*explained, *(_of_contention(clash, clashes, weighed) for clash in clashes)]


def _cause(life: Life, lateness: Lateness, clashes: Sequence[Clash]) -> Cause | None:
    """The cause of a lateness; while it fades, the last clear word on it stands."""
    if life.weighed is lateness.finding:
        return life.cause if life.lasts else None
    found = _best(lateness, clashes)
    life.weighed, life.lasts, life.cause = lateness.finding, found is not None, found or life.cause
    life.explained, life.unexplained = life.explained + life.lasts, life.unexplained + (not life.lasts)
    mostly = life.explained >= life.unexplained and not _collected(lateness.finding)
    life.recalled = life.cause if mostly else None
    return found


def _best(lateness: Lateness, clashes: Sequence[Clash]) -> Cause | None:
    causes = [cause for clash in clashes if (cause := _of_clash(lateness, clash, clashes)) is not None]
    if not lateness.whole:
        causes += _of_figures(lateness, causes, clashes)
    best = max(causes, key=lambda each: (each.certain, each.share is not None, each.precedence), default=None)
    collected = _collected(lateness.finding)
    return None if best is None or (collected and (best.share or 0.0) <= collected) else best


def _collected(finding: Alert) -> float:
    """The share of the garbage collector, where that is the cause already."""
    late = finding.measures
    return late.gc_ms / late.excess_ms if isinstance(late, LateMeasures) and is_collecting(late) else 0.0


def _of_clash(lateness: Lateness, clash: Clash, clashes: Sequence[Clash]) -> Cause | None:
    """The clash as a cause: where its figures carry it, or it is only there on these ranks and began with them."""
    sign, share = clash.symptom, lateness.share_of(clash)
    if not lateness.meets(clash, _alike(clash, clashes)):
        return None
    if share is None and not lateness.ranks.issuperset(sign.ranks):
        return None
    certain = share is not None and share >= LATENESS.most_share and sign.kind != "gpu_shared"
    return Cause(sign.measures, sign.ranks, clash.host, certain, share, KINDS[sign.kind].precedence)


def _alike(clash: Clash, clashes: Sequence[Clash]) -> list[Clash]:
    return [other for other in clashes if other.symptom.kind == clash.symptom.kind]


def _of_figures(lateness: Lateness, known: Sequence[Cause], clashes: Sequence[Clash]) -> list[Cause]:
    """What the ranks' own figures carry though no clash is known that would explain it."""
    causes = []
    host = next(iter(lateness.finding.nodes), "")
    held_down = [clash for clash in clashes if clash.symptom.kind == "gpu_throttled"]
    followed = any(
        not lateness.ranks.isdisjoint(clash.symptom.ranks) and not lateness.precedes(clash) for clash in held_down
    )
    named = max((cause.share or 0.0 for cause in known), default=0.0)
    for order, figure in enumerate(_FIGURES):
        share = lateness.shares.get(figure, 0.0)
        if share >= CAUSE.some_share and share > named and not (figure == "clock" and followed):
            carried = FigureMeasures(figure, min(1, share) * lateness.excess_ms)
            causes.append(Cause(carried, lateness.finding.ranks, host, share >= LATENESS.most_share, share, -order))
    return causes


def _of_contention(clash: Clash, clashes: Sequence[Clash], weighed: Sequence[Lateness]) -> Alert:
    """The clash as an alert: as bad as the threat that it is, or as the lateness that it may explain."""
    severity: Severity = clash.symptom.threat
    alike = _alike(clash, clashes)
    for lateness in weighed:
        worse = SEVERITIES.index(lateness.finding.severity) > SEVERITIES.index(severity)
        if worse and lateness.meets(clash, alike):
            severity = lateness.finding.severity
    return clash.life.describe(replace(clash.alert(), severity=severity))
