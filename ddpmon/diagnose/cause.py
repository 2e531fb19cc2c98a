"""The cause of a lateness: the verdict on the ranks joined with the evidence of their machine, its strength said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ddpmon.diagnose.alert import SEVERITIES, Alert, Cause, Measures, Severity
from ddpmon.diagnose.contention.clashes import Clashes
from ddpmon.diagnose.contention.lifetimes import Clash
from ddpmon.diagnose.explain import MOST, SOME, Lateness, weigh
from ddpmon.diagnose.kinds import KINDS
from ddpmon.diagnose.measure import LateMeasures, is_collecting
from ddpmon.diagnose.step_matrix import StepMatrix
from ddpmon.run.model import Run

Figure = Literal["throttled", "clock", "cpu_clock", "queue"]
_FIGURES: tuple[Figure, ...] = ("throttled", "clock", "cpu_clock", "queue")  # the first that carries as much is named
Key = tuple[str, tuple[int, ...]]
End = tuple[str, tuple[int, ...], int | None, int | None]


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


@dataclass(frozen=True, slots=True)
class Told:
    """What was said of a lateness that lasts.

    Attributes:
        cause: the last that it had. lasts: whether it still had it when it was last described, as `of` tells.
        times, without: in how many ticks it had one, and had none.
    """

    cause: Cause | None
    of: Alert
    lasts: bool
    times: int
    without: int

    def cause_of(self, finding: Alert) -> Cause | None:
        """What it had most of the time, if it is `finding`, which is over, and not one that began behind that."""
        same = (self.of.since_step or 0) <= (finding.cleared_at_step or 0)
        return self.cause if same and self.times >= self.without and not _collected(finding) else None


class Machines:
    """The clashes of a run as alerts, and the causes that they are of its lateness."""

    def __init__(self) -> None:
        self._clashes = Clashes()
        self._causes: dict[Key, Told] = {}
        self._over: dict[End, Alert] = {}

    @property
    def over(self) -> list[Alert]:
        """The lateness that is over, as it was told when it was first seen to be."""
        return [*self._over.values()]

    @property
    def cleared(self) -> list[Alert]:
        """The last clashes that are over."""
        return self._clashes.lifetimes.cleared

    def update(self, run: Run, matrix: StepMatrix, found: Sequence[Alert], cleared: Sequence[Alert]) -> list[Alert]:
        """`found`, which tells of the ranks' work, with causes; and the clashes behind it.

        Args:
            run: the run.
            matrix: its steps.
            found: what lasts.
            cleared: what is over, each as long as it is to be shown.
        """
        clashes = self._clashes.update(run, found)
        self._over = {_end(finding): self._over.get(_end(finding)) or self._recalled(finding) for finding in cleared}
        weighed = weigh(run, matrix, self._clashes.figures, found)
        causes = {id(each.finding): self._cause(each, clashes) for each in weighed}
        lasting = {(finding.kind, finding.ranks) for finding in found}
        self._causes = {key: told for key, told in self._causes.items() if key in lasting}
        told = [replace(finding, cause=causes.get(id(finding))) for finding in found]
        return [*told, *(_told(clash, clashes, weighed) for clash in clashes)]

    def _recalled(self, finding: Alert) -> Alert:
        """A finding that is newly over, with its cause; the next of its kind and ranks has one of its own."""
        known = self._causes.pop((finding.kind, finding.ranks), None)
        cause = None if known is None else known.cause_of(finding)
        return replace(finding, cause=cause)

    def _cause(self, lateness: Lateness, clashes: Sequence[Clash]) -> Cause | None:
        finding = lateness.finding
        key = (finding.kind, finding.ranks)
        known = self._causes.get(key) or Told(None, finding, False, 0, 0)
        if key in self._causes and known.of is finding:
            return known.cause if known.lasts else None  # it fades: the last clear word on it stands
        found = _best(lateness, clashes)
        has = found is not None
        self._causes[key] = Told(found or known.cause, finding, has, known.times + has, known.without + (not has))
        return found


def _end(finding: Alert) -> End:
    """What tells an alert that is over from others."""
    return finding.kind, finding.ranks, finding.since_step, finding.cleared_at_step


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
    certain = share is not None and share >= MOST and sign.kind != "gpu_shared"
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
        if share >= SOME and share > named and not (figure == "clock" and followed):
            carried = FigureMeasures(figure, min(1, share) * lateness.excess_ms)
            causes.append(Cause(carried, lateness.finding.ranks, host, share >= MOST, share, -order))
    return causes


def _told(clash: Clash, clashes: Sequence[Clash], weighed: Sequence[Lateness]) -> Alert:
    """The clash as an alert: as bad as the threat that it is, or as the lateness that it may explain."""
    severity: Severity = clash.symptom.threat
    alike = _alike(clash, clashes)
    for lateness in weighed:
        worse = SEVERITIES.index(lateness.finding.severity) > SEVERITIES.index(severity)
        if worse and lateness.meets(clash, alike):
            severity = lateness.finding.severity
    clash.told = replace(clash.alert(), severity=severity)
    return clash.told
