"""From a recording to its report: the last picture, and the lives of all alerts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from ddpmon.diagnose.alert import SEVERITIES
from ddpmon.parts import RankNumber
from ddpmon.recording.layout import RecordingError
from ddpmon.recording.looks import DamageError
from ddpmon.recording.reader import Place, Recording
from ddpmon.recording.travel import Replay
from ddpmon.report.cost import loses_since, lost_hours
from ddpmon.report.last_word import known_until
from ddpmon.report.run_report import Event, RunReport
from ddpmon.report.silence import is_explained_by_end
from ddpmon.report.step_clock import wall_of
from ddpmon.schema import RunInfo
from ddpmon.shell_command import advice_text
from ddpmon.snapshot import Finding, Snapshot

N = TypeVar("N", int, float)
_COLUMNS = (
    "kind", "worst", "summary", "advice", "cause", "phase", "ranks", "nodes", "since_step", "cost_pct", "evidence",
    "first_at", "last_at", "first_step", "last_step", "ended_at",
    "finding_id",
)  # fmt: skip
_LIFE = ("first_at", "last_at", "first_step", "last_step", "lasts", "finding_id")
_ranks = msgspec.json.Decoder(Annotated[list[RankNumber], Meta(max_length=1 << 17)])
_nodes = msgspec.json.Decoder(list[str])
_evidence = msgspec.json.Decoder(dict[str, float | int | str])


def report_of_file(path: Path) -> RunReport:
    """The report on the newest run of a recording.

    Raises:
        RecordingError: the file is no recording, or nothing of a run can be read.
    """
    replay = Replay(path)
    try:
        snapshot = replay.tick()
        return report_of(replay.travel.recording, snapshot, str(path), replay.travel.until)
    finally:
        replay.close()


def report_of(recording: Recording, snapshot: Snapshot, source: str, until: float = math.inf) -> RunReport:
    """The report on the run that `snapshot` shows, with what was said of it up to a Unix time.

    Raises:
        RecordingError: nothing of the run can be read.
    """
    run, info = _recorded(recording, snapshot, source)
    began = next((wall for (wall,) in recording.rows("SELECT first_at FROM runs WHERE run = ?", run)), None)
    began_at = float(began) if isinstance(began, (int, float)) and math.isfinite(began) else recording.chunks[0].wall
    state = "" if snapshot.run is None else snapshot.run.state
    told = (
        event
        for event in events_of(recording, run, until)
        if not (event.lasts and is_explained_by_end(event.kind, event.evidence, state))
    )
    events = tuple(_with_onset(_said_then(event, snapshot, began_at), snapshot, began_at) for event in told)
    ended_at, notes = known_until(snapshot), tuple(recording.notes)
    return RunReport(snapshot, info, events, began_at, ended_at, source, notes)


def _recorded(recording: Recording, snapshot: Snapshot, source: str) -> tuple[int, RunInfo]:
    """The number in the recording of the run that `snapshot` shows, and what it says of itself."""
    why = snapshot.link.message
    for run in dict.fromkeys(chunk.run for chunk in reversed(recording.chunks)):
        try:
            info = recording.info(run)
        except DamageError as error:
            why = str(error)
        else:
            if snapshot.run is not None and info.run_id == snapshot.run.id:
                return run, info
    raise RecordingError(f"{source} holds no run that can be read: {why}")


def events_of(recording: Recording, run: int, until: float = math.inf) -> Iterator[Event]:
    """What was said of a run up to a Unix time, in the order in which it was said first."""
    known = recording.columns("alerts")
    names = [name for name in _COLUMNS if name in known or name != "finding_id"]  # version 1 of the tables has none
    query = f"SELECT {', '.join(names)} FROM alerts WHERE run = ? AND last_at NOT NULL ORDER BY first_at, id"
    for row in recording.rows(query, run):
        values = dict(zip(names, row, strict=True))
        try:
            if (event := _as_of(_event(values), _number(values["ended_at"], float), until)) is not None:
                yield event
        except (msgspec.MsgspecError, TypeError, ValueError) as error:
            recording.note(f"an alert cannot be read ({error})")


def begun_at(
    recording: Recording, place: Place | None, wall: float | None, findings: Sequence[Finding]
) -> Finding | None:
    """The first of the findings at a look that was said for the first time at this Unix time."""
    if place is None or wall is None:
        return None
    run = next((chunk.run for chunk in recording.chunks if chunk.number == place.chunk), -1)
    begun = [event for event in events_of(recording, run, wall) if event.first_at == wall]
    return next((finding for finding in findings if any(_is_of(finding, event) for event in begun)), None)


def _as_of(event: Event, ended_at: float | None, until: float) -> Event | None:
    """The event as it stood at a Unix time; None if it came later."""
    if event.first_at is not None and event.first_at > until:
        return None
    if event.last_at is None or event.last_at <= until:
        return replace(event, lasts=ended_at is None or ended_at > until)
    return replace(event, last_at=until, last_step=None, lasts=True)


def _with_onset(event: Event, snapshot: Snapshot, began_at: float) -> Event:
    """The event with the time of its onset, and whether that was before the report begins, at the Unix time `began_at`.

    Neither is known where its step is one of another life of the run. The onset may be a bound, which has no time: a
    recording does not tell a bound from an onset; the findings that last at its end do.
    """
    wall = None if event.since_step is None else wall_of(snapshot, event.since_step)
    if wall is None or (event.first_at is not None and wall > event.first_at):
        return event
    is_onset = event.lasts and not event.since_is_bound
    return replace(
        event,
        began_at=wall if is_onset else None,
        began_before_report=event.began_before_report or wall < began_at,
    )


def _said_then(event: Event, snapshot: Snapshot, began_at: float) -> Event:
    """The event as the findings of the picture describe it, so that a report has one number for one thing.

    What it has cost is counted from the Unix time `began_at` on, as the time that the run has taken.

    A recording keeps the description of its last look alone, and that without the commands that name a process.
    """
    for finding in snapshot.findings if event.lasts else ():
        if _is_of(finding, event):
            return replace(_event_of(finding, snapshot, began_at), **{name: getattr(event, name) for name in _LIFE})
    return event


def _is_of(finding: Finding, event: Event) -> bool:
    """Whether a finding describes this event: by its id, or, where a rule gives none, by its kind and whom it names."""
    if event.finding_id is not None and (event.finding_id or finding.id):
        return (finding.kind, finding.id) == (event.kind, event.finding_id)
    return (finding.kind, [*finding.ranks], [*finding.nodes]) == (event.kind, [*event.ranks], [*event.nodes])


def _event(values: dict[str, Any]) -> Event:
    if values["worst"] not in SEVERITIES:
        raise ValueError(f"{values['worst']!r} is no severity")
    return Event(
        kind=str(values["kind"]),
        severity=values["worst"],
        summary=str(values["summary"] or ""),
        advice=str(values["advice"] or ""),
        cause=_text(values["cause"]),
        phase=_text(values["phase"]),
        ranks=_ranks.decode(values["ranks"]),
        nodes=_nodes.decode(values["nodes"]),
        since_step=_number(values["since_step"], int),
        cost_pct=_number(values["cost_pct"], float),
        evidence=_evidence.decode(values["evidence"]),
        first_at=_number(values["first_at"], float),
        last_at=_number(values["last_at"], float),
        first_step=_number(values["first_step"], int),
        last_step=_number(values["last_step"], int),
        lasts=True,
        finding_id=_number(values.get("finding_id"), int),
    )


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _number(value: Any, kind: type[N]) -> N | None:
    """A number of this kind, None where there is none; ValueError for what is no number, or not a finite one."""
    if value is None:
        return None
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"{value!r:.40} is no finite number")
    return kind(value)


def report_of_snapshot(snapshot: Snapshot, info: RunInfo, source: str) -> RunReport:
    """The report on a live run that nobody has recorded: what can be seen of it now."""
    began_at, findings = info.started_at, snapshot.findings
    events = tuple(_with_onset(_event_of(finding, snapshot, began_at), snapshot, began_at) for finding in findings)
    return RunReport(snapshot, info, events, began_at, known_until(snapshot), source, covers="since the run began")


def _event_of(finding: Finding, snapshot: Snapshot, began_at: float) -> Event:
    since = loses_since(finding, snapshot)
    return Event(
        kind=finding.kind,
        severity=finding.severity,
        summary=finding.summary,
        advice=advice_text(finding.advice),
        cause=finding.cause,
        phase=finding.phase,
        ranks=finding.ranks,
        nodes=finding.nodes,
        since_step=finding.since_step,
        since_is_bound=finding.since_is_bound,
        cost_pct=finding.cost_pct,
        evidence=finding.evidence,
        last_step=finding.cleared_at_step,
        lasts=finding.cleared_at_step is None,
        hours=lost_hours(finding, snapshot, began_at) if finding.cleared_at_step is None else None,
        began_before_report=since is not None and since < began_at,
    )
