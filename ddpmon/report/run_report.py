"""What a report on a run consists of: the last picture, what the run says of itself, and what was said of it when."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from ddpmon.diagnose.alert import SEVERITIES, Severity, at_or_above
from ddpmon.diagnose.kinds import KINDS
from ddpmon.format import UNKNOWN, clean, clock, count, figure, known, local_time, loss_words, pct, plural
from ddpmon.report import attempt_sentences
from ddpmon.report.cost import OVERLAP, hour_unit, hours_within, hours_words, lost_words, together_words
from ddpmon.report.job_progress import throughput_unit
from ddpmon.report.past import asks, how_ended, kill_of
from ddpmon.report.run_about import model, settings, versions
from ddpmon.report.verdicts import calm_sentence, headline
from ddpmon.report.wording import last_steps, run_share
from ddpmon.schema import RunInfo
from ddpmon.shell_command import advice_text
from ddpmon.snapshot import Snapshot

_LEAST_HOURS = 0.01  # less is not told
MOST_EVENTS = 60  # in a report: the dearest; a run that restarts all night has thousands


@dataclass(frozen=True, slots=True)
class Event:
    """One trouble from its first word to its last, described as it was said last.

    Attributes:
        kind, severity, summary, advice, cause, phase, evidence: as `Finding` has them; the severity is the worst.
        ranks, nodes: whom it names. since_step, since_is_bound, cost_pct: as `Finding` has them.
        began_at: when it began, as Unix time; None where that is not known, or only a bound.
        first_at, last_at: when it was said first and last, as Unix time; None where that was not recorded.
        first_step, last_step: the run's step when it was said first and last. lasts: whether it lasted to the end.
        times: how often it came, where several of one kind on the same ranks are told as one.
        hours: what it has cost over all ranks, as `lost_hours` tells of its finding; None where the times tell.
        began_before_report: whether it began before what the report covers, so that its hours count from there on.
        finding_id: as `Finding.id`; None where that was not recorded.
    """

    kind: str
    severity: Severity
    summary: str
    advice: str = ""
    cause: str | None = None
    phase: str | None = None
    ranks: Sequence[int] = ()
    nodes: Sequence[str] = ()
    since_step: int | None = None
    since_is_bound: bool = False
    cost_pct: float | None = None
    evidence: Mapping[str, float | int | str] = field(default_factory=dict)
    began_at: float | None = None
    first_at: float | None = None
    last_at: float | None = None
    first_step: int | None = None
    last_step: int | None = None
    lasts: bool = True
    times: int = 1
    hours: float | None = None
    began_before_report: bool = False
    finding_id: int | None = None

    @property
    def to_do(self) -> str:
        """What there is to do about it; empty where it has passed."""
        return self.advice if asks(self.kind, is_over=not self.lasts) else ""


@dataclass(frozen=True, slots=True)
class RunReport:
    """Everything that a report says.

    Attributes:
        snapshot: the last picture. info: what the run says of itself.
        events: what was said of it, in the order in which it was said first.
        began_at, ended_at: what the report covers, as Unix time. source: the file or the address.
        notes: what is damaged or missing. covers: since when the report covers the run.
    """

    snapshot: Snapshot
    info: RunInfo
    events: Sequence[Event]
    began_at: float
    ended_at: float
    source: str
    notes: Sequence[str] = ()
    covers: Literal["since the recording began", "since the run began"] = "since the recording began"

    @property
    def troubles(self) -> list[Event]:
        """What is worth a section of its own: what stopped the run, and then the worst and dearest first."""
        alike: dict[tuple[object, ...], list[Event]] = {}
        for each in self.events:
            if each.kind != "advice":
                alike.setdefault((each.kind, tuple(each.ranks), tuple(each.nodes)), []).append(each)
        told = [_as_one(events, self) for events in alike.values()]
        return sorted(told, key=_weight, reverse=True)[:MOST_EVENTS]

    @property
    def preface(self) -> list[str]:
        """What is said before the troubles: how the attempts ended, what to do about a kill, whether there are any."""
        attempts, kill = attempt_sentences.of_run(self.info), kill_of(self.snapshot)
        killed = [] if kill is None else [advice_text(kill.advice)]
        none = (
            []
            if self.troubles or how_ended(self.snapshot)
            else [f"no trouble was found{' in this attempt' if attempts else ''}"]
        )
        return [f"{said[:1].upper()}{said[1:]}." for said in (*attempts, *killed, *none)]

    @property
    def advice(self) -> list[Event]:
        """Settings that may make the run faster."""
        return [each for each in self.events if each.kind == "advice" and each.lasts][:MOST_EVENTS]

    @property
    def title(self) -> str:
        """What the run is called."""
        return clean(self.info.name)

    @property
    def verdict(self) -> str:
        """What a dashboard has on top at the end: how the run ended if it did not finish, and the worst finding."""
        worst, ended = headline(self.snapshot.findings), how_ended(self.snapshot)
        said = worst.summary if worst else "" if ended else calm_sentence(self.snapshot)
        return clean("; ".join(filter(None, [ended, said])))

    @property
    def device_hours(self) -> tuple[float, str]:
        """What the reported time took in all, and in which unit: GPU-h, or rank-h without GPUs."""
        hours = max(0.0, self.ended_at - self.began_at) / 3600 * self.info.world_size
        return hours, hour_unit(self.snapshot)


def _as_one(events: Sequence[Event], report: RunReport) -> Event:
    """Troubles of one kind on the same ranks, in their order, as the last of them: from the first on."""
    first, last = events[0], events[-1]
    worst = max((each.severity for each in events), key=SEVERITIES.index)
    return replace(
        last,
        severity=worst,
        since_step=first.since_step,
        since_is_bound=first.since_is_bound,
        began_at=first.began_at,
        first_at=first.first_at,
        first_step=first.first_step,
        times=len(events),
        hours=sum(_hours(each, report) for each in events),
        began_before_report=any(each.began_before_report for each in events),
    )


def _hours(event: Event, report: RunReport) -> float:
    """What a trouble has cost over all ranks; without a finding from its onset to when it was said last."""
    known_since = event.first_at if event.began_at is None else event.began_at
    began = report.began_at if event.began_before_report else known_since
    if event.hours is not None or began is None or event.last_at is None:
        return event.hours or 0.0
    return hours_within(
        max(0.0, event.last_at - max(began, report.began_at)), event.cost_pct or 0.0, report.info.world_size
    )


def _weight(event: Event) -> tuple[bool, bool, bool, int, float]:
    return (
        event.lasts and _stops_job(event),
        event.severity != "info",
        event.lasts,
        SEVERITIES.index(event.severity),
        event.cost_pct or 0.0,
    )


def _stops_job(event: Event) -> bool:
    """As `verdicts.stops_job` of its finding."""
    known = KINDS.get(event.kind)  # type: ignore[call-overload]
    floor = None if known is None else known.stops_job
    return floor is not None and at_or_above(event.severity, floor)


def cost_words(event: Event, report: RunReport) -> str:
    """`16 % of the run's time, about 1.2 GPU-h`; empty where it is not known.

    It says since when the hours are counted where that is not the onset.
    """
    if event.cost_pct is None or event.kind not in KINDS:
        return ""
    words = run_share(f"{pct(event.cost_pct)} %", is_over=not event.lasts)
    hours, since = _hours(event, report), f" {report.covers}" if event.began_before_report else ""
    is_bound = event.since_is_bound and not event.began_before_report
    lost = lost_words(hours, report.device_hours[1], is_bound=is_bound, is_exact=_stops_job(event))
    return f"{words}, {lost}{since}" if hours >= _LEAST_HOURS else words


def together(report: RunReport) -> str:
    """What all troubles have cost together, and that they overlap; empty where fewer than two have a cost in hours."""
    lost = [(found, event) for event in report.troubles if (found := _hours(event, report)) >= _LEAST_HOURS]
    are_bounds = any(event.since_is_bound and not event.began_before_report for _, event in lost)
    words = together_words([hours for hours, _ in lost], report.device_hours[1], are_bounds=are_bounds)
    return f"{words}; {OVERLAP}" if words else ""


def when_words(event: Event) -> str:
    """`3 times; began 2026-11-23 03:11:58; seen 2026-11-23 03:12:10 to 03:40:02`: it is seen some steps later."""
    parts = [f"{event.times} times"] if event.times > 1 else []
    if event.began_at is not None:
        parts.append(f"began {local_time(event.began_at)}")
    if event.first_at is not None:
        end = "the end" if event.lasts or event.last_at is None else local_time(event.last_at)[11:]
        parts.append(f"seen {local_time(event.first_at)} to {end}")
    return "; ".join(parts)


def facts(report: RunReport) -> Iterator[tuple[str, str]]:
    """The figures at the head of a report: name and value."""
    run, job, info = report.snapshot.run, report.snapshot.job, report.info
    hours, unit = report.device_hours
    hosts = plural(len(run.nodes), "host") if run else "–"
    yield "state", run.state if run else "unknown"
    yield "ranks", f"{info.world_size:,} on {hosts}"
    yield "reported", f"{local_time(report.began_at)} to {local_time(report.ended_at)[11:]}"
    yield "time", f"{clock(report.ended_at - report.began_at)} {report.covers} ({hours_words(hours)} {unit})"
    yield "step", count(run.step if run else None)
    yield "step time", f"{figure(job.step_ms)} ms"
    yield "throughput", f"{figure(job.throughput)} {clean(throughput_unit(job))}"
    yield "loss", loss_words(job.loss)
    waiting = (
        f"{figure(job.lost_to_waiting_pct)} % of the time of all ranks over the {last_steps(run.step if run else None)}"
    )
    yield "lost to waiting", waiting if known(job.lost_to_waiting_pct) else UNKNOWN
    if lost := together(report):
        yield "lost by all findings", lost


def configuration(report: RunReport) -> Iterator[tuple[str, str]]:
    """What the run says of itself: name and value, cleaned."""
    info = report.info
    yield "run", clean(info.run_id)
    yield "read from", clean(report.source)
    yield "command", clean(info.command or "–")
    yield "started", local_time(info.started_at)
    yield "backend, device", f"{clean(info.backend)}, {clean(info.device)}"
    yield "rank 0", f"pid {info.pid} on {clean(info.host)}"
    for name, value in (*model(info), *settings(info, report.snapshot.run), *versions(info)):
        yield clean(name), clean(value)
