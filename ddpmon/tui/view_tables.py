"""The tables of the views as CSV; an unknown figure is an empty cell. docs/screen.md explains their columns."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import numpy as np

from ddpmon.format import clean
from ddpmon.machine import GpuFigures
from ddpmon.report.host_gpus import gpu_states, number_span
from ddpmon.report.host_summary import latest, received, sent
from ddpmon.report.run_about import about
from ddpmon.report.step_clock import wall_of
from ddpmon.report.verdicts import marked_hosts
from ddpmon.snapshot import Finding, Floats, NodeView, Snapshot, Timeline
from ddpmon.tui.draw.columns import COLUMNS

TableName = Literal["ranks", "hosts", "timeline", "findings", "run"]
TABLES: Mapping[TableName, str] = {  # what the line that asks for a form calls each
    "ranks": "the rank table",
    "hosts": "the hosts and GPUs",
    "timeline": "the steps",
    "findings": "the findings",
    "run": "the run",
}
Value = float | int | str | None

_HOST = (
    "cpu_pct", "cpu_count", "load_1m", "steal_pct", "memory_used", "memory_total", "swap_used", "swap_in_bytes_s",
    "retransmits_per_1000",
)  # fmt: skip
_GPU = (
    "utilization_pct", "power_w", "power_limit_w", "memory_used", "memory_total", "temperature_c", "sm_clock_mhz",
    "sm_clock_max_mhz",
)  # fmt: skip


def ranks_csv(snapshot: Snapshot, order: Sequence[int]) -> str:
    """The rank table with all its columns, whichever of them are shown; `order` are its ranks."""
    ranks = snapshot.ranks
    here = np.array([rank for rank in order if ranks is not None and rank < len(ranks)], np.int64)
    heads = ["rank", "host", "state", *(column.heading for column in COLUMNS[1:])]
    if ranks is None:
        return _written(heads, ())
    values = np.stack([column.values(ranks, here) for column in COLUMNS[1:]], axis=1).tolist()
    rows = zip(here.tolist(), values, strict=True)
    return _written(heads, ([rank, ranks.host[rank], ranks.state[rank], *figures] for rank, figures in rows))


def hosts_csv(snapshot: Snapshot, order: Sequence[int]) -> str:
    """A row for each GPU of each host and rank on it, with the host's figures; `order` are the hosts' numbers."""
    heads = ["node", "host", "ranks", "age_s", "late_ms", *_HOST, "received_bytes_s", "sent_bytes_s", "finding"]
    heads += ["gpu", "gpu_uuid", *(f"gpu_{name}" for name in _GPU), "rank", "rank_late_ms"]
    nodes = {node.node: node for node in snapshot.nodes}
    marked = marked_hosts(snapshot.findings, snapshot.nodes)
    rows = (
        [*_of_host(snapshot, nodes[number], marked.get(number)), *rest]
        for number in order
        if number in nodes
        for rest in _on_host(snapshot, nodes[number])
    )
    return _written(heads, rows)


def _of_host(snapshot: Snapshot, node: NodeView, finding: Finding | None) -> list[Value]:
    figures = node.figures
    first = [node.node, node.host, number_span(node.ranks), node.age_s, latest(node, snapshot.ranks)]
    rates = [received(figures), sent(figures)]
    return [*first, *(getattr(figures, name) for name in _HOST), *rates, None if finding is None else finding.kind]


def _on_host(snapshot: Snapshot, node: NodeView) -> Iterator[list[Value]]:
    """The GPUs with their ranks, then the ranks on none of them; a host without either has one empty row."""
    states = gpu_states(snapshot.ranks, node)
    placed = {rank for state in states for rank in state.ranks}
    pairs: list[tuple[GpuFigures | None, int | None]]
    pairs = [(state.gpu, rank) for state in states for rank in state.ranks or (None,)]
    pairs += [(None, rank) for rank in node.ranks if rank not in placed]
    for gpu, rank in pairs or [(None, None)]:
        figures = [None] * len(_GPU) if gpu is None else [getattr(gpu, name) for name in _GPU]
        named = [None, None] if gpu is None else [gpu.index, gpu.uuid]
        known = snapshot.ranks is not None and rank is not None and rank < len(snapshot.ranks)
        late = float(snapshot.ranks.lateness_ms[rank]) if known and snapshot.ranks is not None else None
        yield [*named, *figures, rank, late]


def timeline_csv(snapshot: Snapshot) -> str:
    """A row a step."""
    heads = ["step", "unix_s", "step_ms", "late_pct", "late_ms", "late_rank", "allreduce_ms", "busbw_gb_s", "loss"]
    timeline = snapshot.timeline
    if timeline is None:
        return _written(heads, ())
    late_ms = timeline.late_pct / 100 * _base_ms(snapshot, timeline)
    ranks = np.where(timeline.late_rank >= 0, timeline.late_rank, np.nan)
    columns = (timeline.step_ms, timeline.late_pct, late_ms, ranks, timeline.allreduce_ms, timeline.busbw_gb_s)
    values = np.stack([*columns, timeline.loss], axis=1).tolist()
    steps = zip(timeline.step.tolist(), values, strict=True)
    return _written(heads, ([step, _unix(wall_of(snapshot, step)), *figures] for step, figures in steps))


def _base_ms(snapshot: Snapshot, timeline: Timeline) -> Floats:
    """[W] the base step of each step, NaN where it is not on record."""
    base, heat = np.full(len(timeline.step), np.nan), snapshot.heat
    if heat is not None and len(heat.step):
        at = timeline.step - int(heat.step[0])
        inside = (at >= 0) & (at < len(heat.step))
        base[inside] = heat.base_ms[at[inside]]
    return base


def findings_csv(snapshot: Snapshot, findings: Sequence[Finding]) -> str:
    """A row a finding."""
    heads = ["kind", "severity", "state", "ranks", "hosts", "phase", "excess_ms", "one_step_in", "since_step"]
    heads += ["since_is_bound", "since_unix_s", "cleared_at_step", "cost_pct", "cause", "summary"]
    return _written(heads, (_of_finding(snapshot, finding) for finding in findings))


def _of_finding(snapshot: Snapshot, finding: Finding) -> list[Value]:
    since, over = finding.since_step, finding.cleared_at_step
    return [
        finding.kind, finding.severity, "lasts" if over is None else "over", " ".join(map(str, finding.ranks)),
        " ".join(finding.nodes), finding.phase, finding.evidence.get("excess_ms"), finding.evidence.get("one_step_in"),
        since, str(finding.since_is_bound).lower(), None if since is None else _unix(wall_of(snapshot, since)), over,
        finding.cost_pct, finding.cause, finding.summary,
    ]  # fmt: skip


def run_csv(snapshot: Snapshot) -> str:
    """A row for each name and value of the view of the run."""
    pairs = ((section.name, key, value) for section in about(snapshot) for key, value in section.pairs)
    return _written(["section", "key", "value"], pairs)


def _unix(wall: float | None) -> str | None:
    """Unix seconds, to the millisecond."""
    return None if wall is None else f"{wall:.3f}"


def _written(heads: Sequence[str], rows: Iterable[Sequence[Value]]) -> str:
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(heads)
    lines.writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue()


def _cell(value: Value) -> str:
    if isinstance(value, float) and value.is_integer():
        return f"{value:.0f}"  # all digits of a step
    if isinstance(value, float):
        return f"{value:.6g}" if math.isfinite(value) else ""
    return "" if value is None else clean(str(value))
