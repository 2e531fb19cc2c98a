"""A snapshot as metrics of Prometheus: base units, names as docs/alerts.md lists them, a bounded number of series.

What is not known is left out and never 0. While the store does not answer, or no step finishes, only what still holds
is there.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

import numpy as np
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from ddpmon.report.verdicts import figures_now, firing, is_standing_still
from ddpmon.schema import PHASES
from ddpmon.snapshot import Finding, Ranks, RunState, RunView, Snapshot

EACH_RANK = 256  # up to so many ranks each one has series of its own
WORST_RANKS = 16  # of more ranks, the latest have
MOST_HOSTS = 1024  # of which a run of more ranks has series, the latest
MOST_FINDINGS = 64
_MS = 1e-3

Row = tuple[Sequence[str], float | None]


class Metrics:
    """What Prometheus reads.

    Attributes:
        snapshot: the newest picture; one thread writes it, others read.
    """

    def __init__(self) -> None:
        self.snapshot: Snapshot | None = None

    def collect(self) -> Iterator[Any]:
        """The metrics of the newest picture; Prometheus's library calls this for each scrape."""
        snapshot = self.snapshot
        if snapshot is None or snapshot.run is None:
            return
        run, live = snapshot.run, snapshot.link.state == "live"
        yield from _of_run(snapshot, run)
        if live:
            yield from _of_job(snapshot, run)
            yield from _of_findings(snapshot.findings, run)
        if live and snapshot.ranks is not None and not is_standing_still(snapshot):
            many = len(snapshot.ranks) > EACH_RANK
            yield from _of_ranks(snapshot.ranks, run, _latest(snapshot.ranks) if many else range(len(snapshot.ranks)))
            if many:
                yield from _of_hosts(snapshot.ranks, run)


def _gauge(name: str, text: str, labels: Sequence[str], rows: Iterable[Row], *, counter: bool = False) -> Iterator[Any]:
    """One metric with all its series; none where nothing is known."""
    kind = CounterMetricFamily if counter else GaugeMetricFamily
    metric, some = kind(f"ddpmon_{name}", text, labels=["run", *labels]), False
    for values, value in rows:
        if value is not None and math.isfinite(value):
            metric.add_metric([str(each) for each in values], value)
            some = True
    if some:
        yield metric


def _of_run(snapshot: Snapshot, run: RunView) -> Iterator[Any]:
    facts = (run.id, run.name, str(run.world_size), run.backend)
    yield from _gauge("run_info", "1, with what the run is.", ["name", "world_size", "backend"], [(facts, 1.0)])
    states = [((run.id, state), float(run.state == state)) for state in get_args(RunState)]
    yield from _gauge("run_state", "1 for the state that the run is in.", ["state"], states)
    is_live = float(snapshot.link.state == "live")
    yield from _gauge("store_up", "1 while the run's store answers.", [], [((run.id,), is_live)])
    ended = None if run.step_age_s is None else snapshot.taken_at - run.step_age_s
    yield from _gauge("last_step_timestamp_seconds", "When a rank last finished a step.", [], [((run.id,), ended)])
    steps = None if run.step is None else run.step + 1.0
    yield from _gauge("steps", "Steps that the run has finished.", [], [((run.id,), steps)], counter=True)


def _of_job(snapshot: Snapshot, run: RunView) -> Iterator[Any]:
    job, ranks, coverage = figures_now(snapshot), snapshot.ranks, snapshot.coverage
    is_known = ranks is not None and not is_standing_still(snapshot)
    transfer = None if ranks is None or not is_known else float(np.fmin.reduce(ranks.exposed_ms, initial=math.inf))
    samples = job.throughput if job.throughput_unit == "samples/s" else None
    figures: Sequence[tuple[str, str, float | None]] = (
        ("step_seconds", "Duration of a step, median of the last 20.", _scaled(job.step_ms)),
        ("transfer_seconds", "What the reduction takes once all ranks have come.", _scaled(transfer)),
        ("samples_per_second", "Samples in a second of the ranks that go on together.", samples),
        ("waiting_ratio", "Share of the ranks' time that is lost to waiting.", _scaled(job.lost_to_waiting_pct, 0.01)),
        ("loss", "The newest loss, median over ranks.", job.loss),
        ("monitor_seconds_per_step", "What the probe takes of the training thread.", _scaled(job.monitor_us, 1e-6)),
        ("ranks_expected", "Ranks of the run.", float(run.world_size)),
        ("ranks_reporting", "Ranks heard of lately.", None if coverage is None else float(coverage.reporting)),
    )
    for name, text, value in figures:
        yield from _gauge(name, text, [], [((run.id,), value)])


def _of_findings(findings: Sequence[Finding], run: RunView) -> Iterator[Any]:
    """The lasting findings, each with the first rank or host that it names."""
    labels, said = ["kind", "severity", "rank", "node"], dict[tuple[str, ...], Finding]()
    for finding in firing(findings)[:MOST_FINDINGS]:
        rank = str(finding.ranks[0]) if finding.ranks else ""
        node = finding.nodes[0] if finding.nodes else ""
        said.setdefault((run.id, finding.kind, finding.severity, rank, node), finding)
    yield from _gauge("finding", "1 for each finding that lasts.", labels, [(row, 1.0) for row in said])
    costs: list[Row] = [(row, _scaled(finding.cost_pct, 0.01)) for row, finding in said.items()]
    yield from _gauge("finding_cost_ratio", "Share of the run's time that a finding costs.", labels, costs)


def _of_ranks(ranks: Ranks, run: RunView, shown: Sequence[int]) -> Iterator[Any]:
    names = {rank: (run.id, str(rank), ranks.host[rank]) for rank in shown}
    work: list[Row] = [
        ((*names[rank], phase), _scaled(ranks.column(f"{phase}_ms")[rank])) for rank in shown for phase in PHASES
    ]
    labels = ["rank", "node"]
    yield from _gauge("rank_work_seconds", "Work of a rank in a step, by phase.", [*labels, "phase"], work)
    for name, text, column in (
        ("rank_wait_seconds", "What a rank waits for the others in a step.", ranks.wait_ms),
        (
            "rank_lateness_seconds",
            "Work of the rank minus the median work of the others; as a finding on it alone measures it.",
            ranks.lateness_ms,
        ),
    ):
        yield from _gauge(name, text, labels, [(names[rank], _scaled(column[rank])) for rank in shown])


def _of_hosts(ranks: Ranks, run: RunView) -> Iterator[Any]:
    """Medians over the ranks of a host; of its lateness the greatest."""
    members: Mapping[str, list[int]] = defaultdict(list)
    for rank, host in enumerate(ranks.host):
        members[host].append(rank)
    late = {host: float(np.fmax.reduce(ranks.lateness_ms[own], initial=-math.inf)) for host, own in members.items()}
    shown = sorted(late, key=lambda host: late[host], reverse=True)[:MOST_HOSTS]
    work: list[Row] = [
        ((run.id, host, phase), _scaled(_median(ranks.column(f"{phase}_ms")[members[host]])))
        for host in shown
        for phase in PHASES
    ]
    yield from _gauge("node_work_seconds", "Work of a host's ranks in a step, by phase.", ["node", "phase"], work)
    waits: list[Row] = [((run.id, host), _scaled(_median(ranks.wait_ms[members[host]]))) for host in shown]
    yield from _gauge("node_wait_seconds", "What a host's ranks wait for the others in a step.", ["node"], waits)
    latest: list[Row] = [((run.id, host), _scaled(late[host])) for host in shown]
    yield from _gauge("node_lateness_seconds", "The lateness of a host's latest rank.", ["node"], latest)


def _latest(ranks: Ranks) -> list[int]:
    """The ranks that the others wait for most."""
    lateness = np.nan_to_num(ranks.lateness_ms, nan=-math.inf)
    return sorted(np.argsort(-lateness, kind="stable")[:WORST_RANKS].tolist())


def _median(values: Any) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if known.size else math.nan


def _scaled(value: float | None, factor: float = _MS) -> float | None:
    return None if value is None else float(value) * factor
