"""What a run is and how it is set up, as named sections of names and values: the view of the run, and reports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ddpmon.format import UNKNOWN, clock, count, figure, known, local_time, pct, plural, size
from ddpmon.report.cost import (
    OVERLAP,
    UNLIKE_WAITING,
    WAITING_MORE,
    hour_unit,
    hours_a_day,
    hours_words,
    lost_a_day,
    lost_hours,
    lost_words,
    together_words,
)
from ddpmon.report.finding_rows import what, who
from ddpmon.report.past import how_ended
from ddpmon.report.verdicts import firing, is_past, is_standing_still, stops_job
from ddpmon.report.wording import last_steps
from ddpmon.schema import RunInfo
from ddpmon.snapshot import Finding, RunView, Snapshot

Pairs = Sequence[tuple[str, str]]
FEW_BUCKETS = 4  # that are listed one by one
VERSIONS = ("torch", "cuda", "nccl", "driver", "python", "ddpmon")
_NAMES = {"cuda": "CUDA", "nccl": "NCCL", "python": "Python"}


@dataclass(frozen=True, slots=True)
class Section:
    """Names and values that belong together; not cleaned."""

    name: str
    pairs: Pairs


def about(snapshot: Snapshot, findings: Sequence[Finding] | None = None) -> list[Section]:
    """All that is known of how a run was set up, and what it and its watching take; empty before one was read.

    Hours are told by cause of these findings, without any of all.
    """
    run = snapshot.run
    if run is None:
        return []
    info = run.info
    sections = [
        Section("run", list(_run(snapshot))),
        Section("versions", [] if info is None else versions(info)),
        Section("model", [] if info is None else model(info)),
        Section("DDP", [] if info is None else list(settings(info, run))),
        Section("store and watching", list(_watching(snapshot))),
        Section(f"{hour_unit(snapshot)} used and lost", list(_hours(snapshot, findings))),
    ]
    return [section for section in sections if section.pairs]


def _run(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    run = snapshot.run
    assert run is not None
    info = run.info
    yield "name", run.name
    yield "id", run.id
    if info is not None:
        yield "command", info.command or UNKNOWN
        yield "started", local_time(info.started_at)
        yield _lasted(snapshot, run, info)
        if ended := how_ended(snapshot):
            yield "ended", ended
        yield "rank 0", f"pid {info.pid} on {info.host}"
    yield "ranks", f"{run.world_size:,} on {plural(len(run.nodes), 'host')}"
    yield "backend", ", ".join(dict.fromkeys([run.backend, *([] if info is None else [info.device])]))
    yield "parallel", run.parallel
    if run.launch:
        most = "" if run.max_restarts is None else f" of {run.max_restarts}"
        yield "launch", f"{run.launch}, restart {run.restart}{most}"
    yield "loss from", (run.loss_from or "monitor.log") if _has_loss(snapshot) else "no rank has logged one"


def _lasted(snapshot: Snapshot, run: RunView, info: RunInfo) -> tuple[str, str]:
    """Say for how long it has run, or when a run that may go on unseen was last heard."""
    long = clock(run.elapsed_s, UNKNOWN)
    if _goes_on(snapshot):
        return "running for", long
    if run.state not in ("running", "stalled", "lost") or snapshot.replay is not None:
        return "ran for", long
    heard = UNKNOWN if run.elapsed_s is None else local_time(info.started_at + run.elapsed_s)
    return "last heard", f"{heard}, {long} after the start"


def _goes_on(snapshot: Snapshot) -> bool:
    """Whether the run is known to go on now."""
    run = snapshot.run
    is_alive = run is not None and run.state in ("running", "stalled")
    return is_alive and snapshot.link.state == "live" and snapshot.replay is None


def _has_loss(snapshot: Snapshot) -> bool:
    """Whether a loss is known of any step."""
    series = snapshot.series
    return known(snapshot.job.loss) or (series is not None and bool(np.isfinite(series.loss).any()))


def versions(info: RunInfo) -> Pairs:
    """Of the software that rank 0 runs, in an order of interest."""
    first = [(name, info.versions[name]) for name in VERSIONS if name in info.versions]
    rest = [(name, version) for name, version in sorted(info.versions.items()) if name not in VERSIONS]
    return [(_NAMES.get(name, name), version) for name, version in [*first, *rest]]


def model(info: RunInfo) -> Pairs:
    """Its size."""
    pairs = [("parameters", count(info.parameters)), ("gradients per step", size(info.gradient_bytes))]
    return [*pairs, ("gradient dtype", info.settings.gradient_dtype or UNKNOWN)]


def is_simulated(info: RunInfo) -> bool:
    """Whether `ddpmon simulate` publishes the run."""
    return "simulated" in info.versions


def settings(info: RunInfo, run: RunView | None = None) -> Iterator[tuple[str, str]]:
    """How DDP was set up, and its buckets where the run is known; what is not known is left out."""
    own = info.settings
    if own.bucket_cap_bytes is not None:
        yield "bucket cap", size(own.bucket_cap_bytes)
    if run is not None:
        yield from _buckets(info, run)
    off = "none in this simulated run" if is_simulated(info) else "off (DDPMON_BUCKETS=1 turns it on)"
    yield "bucket detail", "on" if info.bucket_detail else off
    flags = ("find_unused_parameters", "static_graph", "gradient_as_bucket_view")
    for name in flags:
        value = getattr(own, name)
        if value is not None:
            yield name, "yes" if value else "no"
    yield "communication hook", own.comm_hook or "none"


def _buckets(info: RunInfo, run: RunView) -> Iterator[tuple[str, str]]:
    """How many there are and how large, as DDP tells, and whether it has rebuilt them."""
    sizes = run.bucket_sizes
    if sizes:
        told = ", ".join(size(each) for each in sizes)
        ends = f"first {size(sizes[0])}, last {size(sizes[-1])}, largest {size(max(sizes))}"
        yield "buckets", f"{len(sizes):,}: {told if len(sizes) <= FEW_BUCKETS else ends}"
    elif run.buckets:
        average = f", {size(info.gradient_bytes / run.buckets)} each on average" if info.gradient_bytes else ""
        yield "buckets", f"{run.buckets:,}{average}"
    if run.buckets_rebuilt is not None:
        yield "buckets rebuilt", "yes, in the order in which gradients become ready" if run.buckets_rebuilt else "no"


def _watching(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    run, job, series = snapshot.run, snapshot.job, snapshot.series
    assert run is not None
    yield "store", run.source
    yield "link", snapshot.link.state
    if snapshot.replay is not None:
        yield "recorded", clock(snapshot.replay.length)
    if series is not None and len(series.step):
        last = max(int(series.step[-1]), (run.step or 0) if is_past(snapshot) else 0)
        yield "history", f"steps {int(series.step[0]):,} to {last:,}"
    yield "probe", f"{figure(job.monitor_us)} µs a step" + (f", {job.dropped:,} dropped" if job.dropped else "")
    costs = [node.cost_pct for node in snapshot.nodes[:64] if known(node.cost_pct)]
    if costs:
        yield "sensors", f"at most {max(cost or 0.0 for cost in costs):.1f} % of a core per host"


def _hours(snapshot: Snapshot, findings: Sequence[Finding] | None) -> Iterator[tuple[str, str]]:
    """Used so far, lost to waiting now, and lost to each trouble; of a run that has ended in all."""
    run, job = snapshot.run, snapshot.job
    assert run is not None
    ended, unit = is_past(snapshot), hour_unit(snapshot)
    if run.elapsed_s is not None:
        yield "used", f"{hours_words(run.elapsed_s / 3600 * run.world_size)} {unit}"
    if is_standing_still(snapshot):
        yield "lost to waiting", "unknown while no step finishes"
    elif known(job.lost_to_waiting_pct):
        share = job.lost_to_waiting_pct or 0.0
        a_day = hours_words(hours_a_day(share, run.world_size))
        goes_on = "" if ended else f", {a_day} {unit} a day"
        yield "lost to waiting", f"{pct(share)} % of the time of all ranks over the {last_steps(run.step)}{goes_on}"
    whole = lost_by_cause(snapshot)
    lost = [each for each in whole if findings is None or each[0] in findings]
    for finding, hours in lost:
        cause = f", {finding.cause}" if finding.cause else ""
        a_day = f"{hours_words(lost_a_day(finding, run.world_size))} {unit} a day"
        often = f", {a_day}" if known(finding.cost_pct) and not ended else ""
        when = _span(finding, ended=ended)
        words = lost_words(hours, unit, is_bound=finding.since_is_bound, is_exact=stops_job(finding))
        yield f"lost: {who(finding)}", f"{words}{when}{often}: {what(finding)}{cause}"
    are_bounds = any(finding.since_is_bound for finding, _ in lost)
    if together := together_words([hours for _, hours in lost], unit, are_bounds=are_bounds):
        yield "lost together", f"{together}; {OVERLAP}"
    if note := _note(snapshot, [finding.cost_pct or 0.0 for finding, _ in whole]):
        yield "note", note


def _note(snapshot: Snapshot, costs_pct: Sequence[float]) -> str:
    """Why what is lost to waiting is not what the findings lose, where the figures that are shown differ."""
    waiting = snapshot.job.lost_to_waiting_pct
    if waiting is None or not known(waiting) or not costs_pct or is_standing_still(snapshot):
        return ""
    if max(costs_pct) > waiting:
        return UNLIKE_WAITING
    return WAITING_MORE if round(waiting) > round(sum(costs_pct)) else ""


def _span(finding: Finding, *, ended: bool) -> str:
    """` since step 812`: the time that a loss is of; where that is no step's ` so far`, or ` in all` once it ended."""
    if finding.since_step is None:
        return " in all" if ended else " so far"
    return f" since {'before ' if finding.since_is_bound else ''}step {count(finding.since_step)}"


def lost_by_cause(snapshot: Snapshot) -> list[tuple[Finding, float]]:
    """The lasting troubles whose cost in hours is known, the dearest first."""
    costs = [(finding, lost_hours(finding, snapshot)) for finding in firing(snapshot.findings)]
    found = [(finding, hours) for finding, hours in costs if hours is not None and hours > 0]
    return sorted(found, key=lambda each: -each[1])
