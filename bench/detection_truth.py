"""What should be said of a run, what was said of it, and how the two compare."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from ddpmon.diagnose.alert import at_or_above
from ddpmon.diagnose.kinds import KINDS, KindName
from ddpmon.snapshot import Finding

GRACE_STEPS = 60  # a verdict may come, and linger, so long after its fault is over
LEAST_COST_PCT = 1.0  # below, an error in percent of it says nothing


@dataclass(frozen=True)
class Episode:
    """One fault.

    Attributes:
        kinds: the verdicts that name it, the best one first.
        on: the first faulty step.
        off: the first step after it.
        ranks: whom the verdict must name; empty for nobody in particular.
        phases: the phases that it may name; empty: not scored.
        also: kinds that are true beside the verdict, if they name no one else.
        required: False where silence is right too.
        node: the host it must name.
        cost: (first, last step) -> percent of the job's time; None: not scored.
    """

    kinds: tuple[KindName, ...]
    on: int
    off: int
    ranks: frozenset[int] = frozenset()
    phases: tuple[str, ...] = ()
    also: tuple[KindName, ...] = ("job_slower", "uneven_work")
    required: bool = True
    node: str | None = None
    cost: Callable[[int, int], float] | None = None

    def covers(self, step: int) -> bool:
        """Whether a verdict that first comes at `step` can be about this fault."""
        return self.on <= step < self.off + GRACE_STEPS


@dataclass(frozen=True)
class Tick:
    """What the watcher said at one moment; `step` is the newest step that it had of all ranks then."""

    seconds: float
    step: int
    findings: tuple[Finding, ...]


@dataclass
class Report:
    """One verdict for as long as it stood without a pause: its words, tick by tick."""

    key: tuple[object, ...]
    words: list[tuple[Tick, Finding]] = field(default_factory=list)
    ended_at: int | None = None

    @property
    def first(self) -> Tick:
        """When it was raised."""
        return self.words[0][0]

    @property
    def finding(self) -> Finding:
        """Its first word."""
        return self.words[0][1]

    @property
    def alarming(self) -> bool:
        """Whether it ever was a warning or worse."""
        return any(at_or_above(finding.severity, "warning") for _, finding in self.words)

    def last_word_until(self, step: int) -> tuple[Tick, Finding]:
        """Its newest word at `step`, or its first if that came later."""
        before = [word for word in self.words if word[0].step <= step]
        return before[-1] if before else self.words[0]


@dataclass(frozen=True)
class Found:
    """How one fault was met; None where a figure does not apply."""

    required: bool
    hit: bool
    best_kind: bool | None = None
    rank: bool | None = None
    phase: bool | None = None
    onset_error: float | None = None
    latency_steps: float | None = None
    latency_s: float | None = None
    clear_steps: float | None = None
    cost_error: float | None = None


@dataclass(frozen=True)
class Outcome:
    """One run's score; false ones are (step, kind, ranks)."""

    steps: int
    true_alarms: int
    false_alarms: list[tuple[int, KindName, tuple[int, ...]]]
    false_infos: list[tuple[int, KindName, tuple[int, ...]]]
    found: list[Found]


def reports_of(ticks: Sequence[Tick]) -> list[Report]:
    """The verdicts of a run in the order in which they were raised."""
    done: list[Report] = []
    standing: dict[tuple[object, ...], Report] = {}
    for tick in ticks:
        now = {_key(finding): finding for finding in tick.findings if finding.cleared_at_step is None}
        for key in [key for key in standing if key not in now]:
            standing.pop(key).ended_at = tick.step
        for key, finding in now.items():
            if key not in standing:
                standing[key] = Report(key)
                done.append(standing[key])
            standing[key].words.append((tick, finding))
    return done


def _key(finding: Finding) -> tuple[object, ...]:
    by_rank = KINDS[finding.kind].subject in ("rank", "host")
    who = (tuple(sorted(finding.ranks)), finding.nodes) if by_rank else ()
    return (finding.kind, *who)


def score(
    ticks: Sequence[Tick], episodes: Sequence[Episode], natural: Iterable[KindName], seconds_at: Sequence[float]
) -> Outcome:
    """Compare what was said with what happened; `seconds_at` is when each step ended on the watcher's clock."""
    reports, natural = reports_of(ticks), {*natural, "advice"}  # advice accuses nobody
    false = [
        report
        for report in reports
        if report.finding.kind not in natural and not any(_true_of(report, episode) for episode in episodes)
    ]
    named = [(r.first.step, r.finding.kind, r.finding.ranks) for r in false if r.alarming]
    quiet = [(r.first.step, r.finding.kind, r.finding.ranks) for r in false if not r.alarming]
    right = sum(r.alarming and any(hits(r, e) for e in episodes) for r in reports)
    attached = max(0, ticks[0].step) if ticks else 0
    found = [_met(episode, reports, episodes, seconds_at, attached) for episode in episodes]
    return Outcome(ticks[-1].step + 1 if ticks else 0, right, named, quiet, found)


def hits(report: Report, episode: Episode) -> bool:
    """Whether the report is the verdict that the episode calls for."""
    finding = report.finding
    if finding.kind not in episode.kinds or not episode.covers(report.first.step):
        return False
    if episode.node is not None:
        return episode.node in finding.nodes
    return not episode.ranks or frozenset(finding.ranks) == episode.ranks


def _true_of(report: Report, episode: Episode) -> bool:
    beside = report.finding.kind in episode.also and episode.covers(report.first.step)
    return hits(report, episode) or (
        beside and (not episode.ranks or frozenset(report.finding.ranks) <= episode.ranks or _key_free(report))
    )


def _key_free(report: Report) -> bool:
    return len(report.key) == 1


def _met(
    episode: Episode,
    reports: Sequence[Report],
    episodes: Sequence[Episode],
    seconds_at: Sequence[float],
    attached: int,
) -> Found:
    """How one fault was met; latencies count from its first step, or from the watcher's coming."""
    rank = _first_named(episode, reports, episodes)
    report = next((report for report in reports if hits(report, episode)), None)
    if report is None:
        return Found(episode.required, hit=False, rank=rank)
    tick, word = report.last_word_until(episode.off - 1)
    began = max(episode.on, attached)
    ended = [r.ended_at for r in reports if hits(r, episode)][-1]
    return Found(
        episode.required,
        hit=True,
        best_kind=word.kind == episode.kinds[0],
        rank=rank,
        phase=word.phase in episode.phases if episode.phases else None,
        onset_error=_onset_error(word, episode),
        latency_steps=report.first.step - began,
        latency_s=report.first.seconds - (seconds_at[min(began, len(seconds_at)) - 1] if began else 0.0),
        clear_steps=None if ended is None else ended - episode.off,
        cost_error=_cost_error(word, episode, min(tick.step, episode.off - 1)),
    )


def _first_named(episode: Episode, reports: Sequence[Report], episodes: Sequence[Episode]) -> bool | None:
    """Whether the first rank or host named in the episode is its own; the culprits of others do not count."""
    if not episode.ranks:
        return None
    others = [other for other in episodes if other is not episode]
    for report in reports:
        mine = KINDS[report.finding.kind].late and report.finding.ranks and episode.covers(report.first.step)
        if mine and not any(_true_of(report, other) for other in others):
            return frozenset(report.finding.ranks) <= episode.ranks
    return None


def _onset_error(word: Finding, episode: Episode) -> float | None:
    if word.since_step is None:
        return None
    if word.since_is_bound and word.since_step >= episode.on:
        return 0.0
    return float(abs(word.since_step - episode.on))


def _cost_error(word: Finding, episode: Episode, last: int) -> float | None:
    if word.cost_pct is None or episode.cost is None or last <= episode.on:
        return None
    true = episode.cost(episode.on, last)
    return abs(word.cost_pct - true) / true if true >= LEAST_COST_PCT else None
