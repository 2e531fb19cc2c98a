"""The cause of a lateness: the verdict on the ranks joined with the evidence of their machine, its strength said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ddpmon.diagnose.alert import Cause as Why
from ddpmon.diagnose.alert import Measures
from ddpmon.diagnose.contention.clashes import Clashes
from ddpmon.diagnose.contention.lifetimes import Clash
from ddpmon.diagnose.explain import MOST, SOME, Lateness, weigh
from ddpmon.diagnose.finding import SEVERITIES, Finding, Severity
from ddpmon.diagnose.kinds import KINDS
from ddpmon.diagnose.step_matrix import StepMatrix
from ddpmon.diagnose.wording import on_host
from ddpmon.format import ms
from ddpmon.run.model import Run

_ALONE = {  # measure -> its words as a cause, what to do, and a command that shows more
    "throttled": (
        "a CPU quota: the limit of its cgroup throttles it",
        "raise the CPU limit of the container or cgroup, or use fewer threads",
        "",
    ),
    "clock": (
        "a throttled GPU: its SM clock is lower than that of the others",
        "see what lowers it",
        "nvidia-smi -q -d CLOCK,POWER,PERFORMANCE",
    ),
    "cpu_clock": (
        "a lower CPU clock: its core runs slower than those of the others",
        "see what lowers it: the governor, a power limit, heat",
        "grep MHz /proc/cpuinfo",
    ),
    "queue": (
        "CPU contention: it waits for a CPU",
        "see what else runs on its cores, also outside the container",
        "top",
    ),
}
Key = tuple[str, tuple[int, ...]]
End = tuple[str, tuple[int, ...], str]


@dataclass(frozen=True, slots=True)
class Cause:
    """What explains a lateness.

    Attributes:
        certain: the numbers carry it; else it is likely.
        share: how much of the excess it carries, None where the figures do not tell.
        precedence: of those that carry as much, the one with the greatest is named.
    """

    because: str
    certain: bool
    share: float | None
    advice: str
    evidence: tuple[tuple[str, float | int | str], ...] = ()
    precedence: int = 0
    why: Why | None = None


@dataclass(frozen=True, slots=True)
class TextCause(Measures):
    """A cause whose words are still made by its rule."""

    because: str
    advice: str
    evidence: tuple[tuple[str, float | int | str], ...]


@dataclass(frozen=True, slots=True)
class Told:
    """What was said of a lateness that lasts.

    Attributes:
        cause: the last that it had. lasts: whether it still had it when it was last described, as `of` tells.
        times, without: in how many ticks it had one, and had none.
    """

    cause: Cause | None
    of: Finding
    lasts: bool
    times: int
    without: int

    def cause_of(self, finding: Finding) -> Cause | None:
        """What it had most of the time, if it is `finding`, which is over, and not one that began behind that."""
        same = (self.of.since_step or 0) <= (finding.cleared_at_step or 0)
        return self.cause if same and self.times >= self.without and not finding.cause else None


class Machines:
    """The clashes of a run as alerts, and the causes that they are of its lateness."""

    def __init__(self) -> None:
        self._clashes = Clashes()
        self._causes: dict[Key, Told] = {}
        self._over: dict[End, Finding] = {}

    @property
    def over(self) -> list[Finding]:
        """The lateness that is over, as it was told when it was first seen to be."""
        return [*self._over.values()]

    @property
    def cleared(self) -> list[Finding]:
        """The last clashes that are over."""
        return self._clashes.lifetimes.cleared

    def update(
        self, run: Run, matrix: StepMatrix, found: Sequence[Finding], cleared: Sequence[Finding]
    ) -> list[Finding]:
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
        told = [_joined(finding, causes.get(id(finding))) for finding in found]
        return [*told, *(_told(clash, clashes, weighed) for clash in clashes)]

    def _recalled(self, finding: Finding) -> Finding:
        """A finding that is newly over, with its cause; the next of its kind and ranks has one of its own."""
        known = self._causes.pop((finding.kind, finding.ranks), None)
        cause = None if known is None else known.cause_of(finding)
        return finding if cause is None else replace(_joined(finding, cause), advice="")

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


def _end(finding: Finding) -> End:
    """What tells a finding that is over from others: when it was, and why, stand in its sentence."""
    return finding.kind, finding.ranks, finding.summary


def _best(lateness: Lateness, clashes: Sequence[Clash]) -> Cause | None:
    causes = [cause for clash in clashes if (cause := _of_clash(lateness, clash, clashes)) is not None]
    if not lateness.whole:
        causes += _of_figures(lateness, causes, clashes)
    best = max(causes, key=lambda each: (each.certain, each.share is not None, each.precedence), default=None)
    collected = _collected(lateness.finding)
    return None if best is None or (collected and (best.share or 0.0) <= collected) else best


def _collected(finding: Finding) -> float:
    """The share of the garbage collector, where that is the cause already."""
    numbers = finding.evidence
    return float(numbers.get("gc_ms", 0)) / max(1e-9, float(numbers.get("excess_ms", 0))) if finding.cause else 0.0


def _of_clash(lateness: Lateness, clash: Clash, clashes: Sequence[Clash]) -> Cause | None:
    """The clash as a cause: where its figures carry it, or it is only there on these ranks and began with them."""
    sign, share = clash.symptom, lateness.share_of(clash)
    if not lateness.meets(clash, _alike(clash, clashes)):
        return None
    if share is None and not lateness.ranks.issuperset(sign.ranks):
        return None
    certain = share is not None and share >= MOST and sign.kind != "gpu_shared"
    why = Why(sign.measures, sign.ranks, clash.host, certain, share, KINDS[sign.kind].precedence)
    return Cause("", certain, share, "", precedence=why.precedence, why=why)


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
    for order, (measure, (because, advice, command)) in enumerate(_ALONE.items()):
        share = lateness.shares.get(measure, 0.0)
        if share >= SOME and share > named and not (measure == "clock" and followed):
            told = f"{because} ({ms(min(1, share) * lateness.excess_ms)} a step)"
            todo = f"{advice}: {on_host(host, command)}" if command else advice
            causes.append(Cause(told, share >= MOST, share, todo, precedence=-order))
    return causes


def _joined(finding: Finding, cause: Cause | None) -> Finding:
    """The finding with its cause in its words."""
    if cause is None:
        return finding
    if type(finding.measures) is not Measures:
        return replace(
            finding,
            why=cause.why
            or Why(TextCause(cause.because, cause.advice, cause.evidence), (), "", cause.certain, cause.share),
        )
    strength = "certain" if cause.certain else "likely"
    head, costs, tail = finding.summary.rpartition(". Costs ")
    words = f", {'' if cause.certain else 'likely '}because of {cause.because}"
    return replace(
        finding,
        summary=f"{head}{words}{costs}{tail}" if costs else f"{finding.summary}{words}",
        cause=f"{cause.because} ({strength})",
        evidence={**finding.evidence, **_evidence(cause)},
        advice=cause.advice,
    )


def _evidence(cause: Cause) -> dict[str, float | int | str]:
    share = {} if cause.share is None else {"cause_share": min(1.0, cause.share)}
    return {**dict(cause.evidence), **share, "cause_strength": "certain" if cause.certain else "likely"}


def _told(clash: Clash, clashes: Sequence[Clash], weighed: Sequence[Lateness]) -> Finding:
    """The clash as an alert: as bad as the threat that it is, or as the lateness that it may explain."""
    severity: Severity = clash.symptom.threat
    alike = _alike(clash, clashes)
    for lateness in weighed:
        worse = SEVERITIES.index(lateness.finding.severity) > SEVERITIES.index(severity)
        if worse and lateness.meets(clash, alike):
            severity = lateness.finding.severity
    clash.told = replace(clash.alert(), severity=severity)
    return clash.told
