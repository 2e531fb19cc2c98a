"""The cause of a lateness: the verdict on the ranks joined with the evidence of their machine, its strength said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec.structs import replace

from ddpmon.diagnose.alert import SEVERITIES, Alert, Cause, Measures, Severity
from ddpmon.diagnose.alert_book import AlertBook, CauseRecord
from ddpmon.diagnose.contention.contention_finder import ContentionFinder
from ddpmon.diagnose.contention.contention_lives import Contention
from ddpmon.diagnose.explain import Lateness, weigh
from ddpmon.diagnose.kinds import KINDS
from ddpmon.diagnose.late_policy import CAUSE, LATENESS
from ddpmon.diagnose.measure import LateMeasures, is_collecting
from ddpmon.diagnose.tick import Tick

Figure = Literal["throttled", "clock", "cpu_clock", "queue"]
_FIGURES: tuple[Figure, ...] = ("throttled", "clock", "cpu_clock", "queue")  # the first that carries as much is named


class FigureMeasures(Measures, frozen=True):
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
        self._contention = ContentionFinder(book)

    @property
    def pending(self) -> list[Contention]:
        """The contention that is not confirmed."""
        return self._contention.lives.pending

    def begin_again(self, newest: int) -> None:
        """The run counts its steps from the beginning and has finished step `newest`."""
        self._contention.lives.begin_again(newest)

    def __call__(self, tick: Tick, said: Sequence[Alert]) -> list[Alert]:
        """`said` with causes, and the contention behind it."""
        contentions, lives = self._contention.update(tick.run, said), self._book.lives()
        weighed = weigh(tick.run, tick.steps, self._contention.figures, said)
        known = [(each, life) for each in weighed if (life := lives.get(each.alert.id)) is not None]
        causes = {id(each.alert): _cause(life.causes, each, contentions) for each, life in known}
        explained = [replace(alert, cause=causes[id(alert)]) if id(alert) in causes else alert for alert in said]
        return [*explained, *(_of_contention(contention, contentions, weighed) for contention in contentions)]


def _cause(record: CauseRecord, lateness: Lateness, contentions: Sequence[Contention]) -> Cause | None:
    """The cause of a lateness; while it fades, the last clear word on it stands."""
    if record.weighed is lateness.alert:
        return record.cause if record.lasts else None
    found = _best(lateness, contentions)
    record.weighed, record.lasts, record.cause = lateness.alert, found is not None, found or record.cause
    record.explained += record.lasts
    record.unexplained += not record.lasts
    mostly = record.explained >= record.unexplained and not _collected(lateness.alert)
    record.recalled = record.cause if mostly else None
    return found


def _best(lateness: Lateness, contentions: Sequence[Contention]) -> Cause | None:
    causes = [
        cause for contention in contentions if (cause := _cause_of(lateness, contention, contentions)) is not None
    ]
    if not lateness.whole:
        causes += _of_figures(lateness, causes, contentions)
    best = max(causes, key=lambda each: (each.certain, each.share is not None, each.precedence), default=None)
    collected = _collected(lateness.alert)
    return None if best is None or (collected and (best.share or 0.0) <= collected) else best


def _collected(alert: Alert) -> float:
    """The share of the garbage collector, where that is the cause already."""
    late = alert.measures
    return late.gc_ms / late.excess_ms if isinstance(late, LateMeasures) and is_collecting(late) else 0.0


def _cause_of(lateness: Lateness, contention: Contention, contentions: Sequence[Contention]) -> Cause | None:
    """The contention as a cause: where its figures carry it, or it is only there on these ranks and began with them."""
    sign, share = contention.symptom, lateness.share_of(contention)
    if not lateness.meets(contention, _alike(contention, contentions)):
        return None
    if share is None and not lateness.ranks.issuperset(sign.ranks):
        return None
    certain = share is not None and share >= LATENESS.most_share and sign.kind != "gpu_shared"
    return Cause(sign.measures, sign.ranks, contention.host, certain, share, KINDS[sign.kind].precedence)


def _alike(contention: Contention, contentions: Sequence[Contention]) -> list[Contention]:
    return [other for other in contentions if other.symptom.kind == contention.symptom.kind]


def _of_figures(lateness: Lateness, known: Sequence[Cause], contentions: Sequence[Contention]) -> list[Cause]:
    """What the ranks' own figures carry though no contention is known that would explain it."""
    causes = []
    host = next(iter(lateness.alert.nodes), "")
    held_down = [contention for contention in contentions if contention.symptom.kind == "gpu_throttled"]
    followed = any(
        not lateness.ranks.isdisjoint(contention.symptom.ranks) and not lateness.precedes(contention)
        for contention in held_down
    )
    named = max((cause.share or 0.0 for cause in known), default=0.0)
    for order, figure in enumerate(_FIGURES):
        share = lateness.shares.get(figure, 0.0)
        if share >= CAUSE.some_share and share > named and not (figure == "clock" and followed):
            carried = FigureMeasures(figure, min(1, share) * lateness.excess_ms)
            causes.append(Cause(carried, lateness.alert.ranks, host, share >= LATENESS.most_share, share, -order))
    return causes


def _of_contention(contention: Contention, contentions: Sequence[Contention], weighed: Sequence[Lateness]) -> Alert:
    """The contention as an alert: as bad as the threat that it is, or as the lateness that it may explain."""
    severity: Severity = contention.symptom.threat
    alike = _alike(contention, contentions)
    for lateness in weighed:
        worse = SEVERITIES.index(lateness.alert.severity) > SEVERITIES.index(severity)
        if worse and lateness.meets(contention, alike):
            severity = lateness.alert.severity
    return contention.life.describe(replace(contention.alert(), severity=severity))
