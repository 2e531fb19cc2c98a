"""The tables of the views as CSV; an unknown figure is an empty cell. docs/screen.md explains their columns."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Literal

import numpy as np

from ddpmon.format import clean
from ddpmon.machine import GpuFigures
from ddpmon.report.host_gpus import gpu_states, number_span
from ddpmon.report.host_summary import latest, received, sent
from ddpmon.report.peers import Row, as_shown, compare, now_and_then, rhythms
from ddpmon.report.run_about import about
from ddpmon.report.step_clock import wall_of
from ddpmon.report.verdicts import firing, marked_hosts
from ddpmon.snapshot import Finding, Floats, NodeView, Ranks, Snapshot, Timeline
from ddpmon.tui.draw.columns import COLUMNS
from ddpmon.tui.draw.peer_table import blaming

TableName = Literal["ranks", "rank", "compare", "hosts", "timeline", "findings", "run"]
TABLES: Mapping[TableName, str] = {  # what the line that asks for a form calls each
    "ranks": "the rank table",
    "rank": "the rank beside the others",
    "compare": "the compared ranks",
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
Rhythms = Mapping[int, float]  # of the ranks that are late now and then, in one step of how many


def ranks_csv(snapshot: Snapshot, order: Sequence[int]) -> str:
    """The rank table with all its columns, whichever of them are shown; `order` are its ranks."""
    ranks, often = as_shown(snapshot), rhythms(snapshot)
    here = np.array([rank for rank in order if ranks is not None and rank < len(ranks)], np.int64)
    columns = [column for column in COLUMNS[1:] if column.key != "late"]
    heads = ["rank", "host", "state", "late", "one_step_in", *(column.heading for column in columns)]
    if ranks is None:
        return _written(heads, ())
    values = np.stack([column.values(ranks, here) for column in columns], axis=1).tolist()
    late = ranks.lateness_ms.tolist()
    named = ([rank, ranks.host[rank], ranks.state[rank], late[rank], often.get(rank)] for rank in here.tolist())
    return _written(heads, ([*first, *figures] for first, figures in zip(named, values, strict=True)))


def rank_csv(snapshot: Snapshot, rank: int) -> str:
    """A row for each figure of a rank that is known: its own, the median of the others, and the difference."""
    heads = ["rank", "figure", "unit", "this", "others", "diff", "one_step_in"]
    findings = firing(snapshot.findings)
    rows = (
        [one, *_of_quantity(row), row.own[0], row.others, *_excess(row, one, findings)]
        for one in _there(snapshot, [rank])
        for row in compare(snapshot, [one]).rows
    )
    return _written(heads, rows)


def compare_csv(snapshot: Snapshot, ranks: Sequence[int]) -> str:
    """A row for each figure of some ranks that is known: each one's, with the difference from that of the first one."""
    here, findings = _there(snapshot, ranks), firing(snapshot.findings)
    heads = [f"rank_{rank}{end}" for rank in here for end in ("", "_diff", "_one_step_in")]
    rows = (
        [*_of_quantity(row), *chain(*_beside(row, here, findings)), row.others] for row in compare(snapshot, here).rows
    )
    return _written(["figure", "unit", *heads, "others"], rows)


def _there(snapshot: Snapshot, ranks: Sequence[int]) -> list[int]:
    """Those of these ranks that the run has."""
    return [rank for rank in ranks if snapshot.ranks is not None and 0 <= rank < len(snapshot.ranks)]


def _of_quantity(row: Row) -> list[Value]:
    return [row.quantity.name, row.quantity.unit]


def _beside(row: Row, ranks: Sequence[int], findings: Sequence[Finding]) -> Iterator[tuple[Value, ...]]:
    """A figure of each of some ranks, by how much it exceeds that of the first, and how often the rank is late in it.

    The first rank has no difference.
    """
    for place, (rank, own) in enumerate(zip(ranks, row.own, strict=True)):
        rare = _rare(row, rank, findings)
        yield own, row.difference_from_first(place) if place else None, None if rare is None else rare[1]


def _excess(row: Row, rank: int, findings: Sequence[Finding]) -> tuple[float, float | None]:
    """Return by how much a rank's figure exceeds that of the others, and if it is late now and then how often."""
    return _rare(row, rank, findings) or (row.difference(), None)


def _rare(row: Row, rank: int, findings: Sequence[Finding]) -> tuple[float, float] | None:
    """Return by how many ms a rank is late now and then in this phase, and in one step of how many; else None."""
    finding = blaming(row, rank, findings)
    return None if finding is None else now_and_then(finding)


def hosts_csv(snapshot: Snapshot, order: Sequence[int]) -> str:
    """A row for each GPU of each host and rank on it, with the host's figures; `order` are the hosts' numbers."""
    heads = ["node", "host", "ranks", "age_s", "late_ms", "one_step_in", *_HOST, "received_bytes_s", "sent_bytes_s"]
    heads += ["finding", "gpu", "gpu_uuid", *(f"gpu_{name}" for name in _GPU)]
    heads += ["rank", "rank_late_ms", "rank_one_step_in"]
    nodes = {node.node: node for node in snapshot.nodes}
    marked = marked_hosts(snapshot.findings, snapshot.nodes)
    ranks, often = as_shown(snapshot), rhythms(snapshot)
    rows = (
        [*_of_host(ranks, often, nodes[number], marked.get(number)), *rest]
        for number in order
        if number in nodes
        for rest in _on_host(ranks, often, nodes[number])
    )
    return _written(heads, rows)


def _of_host(ranks: Ranks | None, often: Rhythms, node: NodeView, finding: Finding | None) -> list[Value]:
    figures, late = node.figures, latest(node, ranks)
    rare = [rank for rank in node.ranks if rank in often and ranks is not None and ranks.lateness_ms[rank] == late]
    first = [node.node, node.host, number_span(node.ranks), node.age_s, late, often[rare[0]] if rare else None]
    rates = [received(figures), sent(figures)]
    return [*first, *(getattr(figures, name) for name in _HOST), *rates, None if finding is None else finding.kind]


def _on_host(ranks: Ranks | None, often: Rhythms, node: NodeView) -> Iterator[list[Value]]:
    """The GPUs with their ranks, then the ranks on none of them; a host without either has one empty row."""
    states = gpu_states(ranks, node)
    placed = {rank for state in states for rank in state.ranks}
    pairs: list[tuple[GpuFigures | None, int | None]]
    pairs = [(state.gpu, rank) for state in states for rank in state.ranks or (None,)]
    pairs += [(None, rank) for rank in node.ranks if rank not in placed]
    for gpu, rank in pairs or [(None, None)]:
        figures = [None] * len(_GPU) if gpu is None else [getattr(gpu, name) for name in _GPU]
        named = [None, None] if gpu is None else [gpu.index, gpu.uuid]
        late = None if ranks is None or rank is None or rank >= len(ranks) else float(ranks.lateness_ms[rank])
        yield [*named, *figures, rank, late, None if rank is None else often.get(rank)]


def timeline_csv(snapshot: Snapshot, timeline: Timeline | None) -> str:
    """A row a step of the timeline, which may be a part of the snapshot's."""
    heads = ["step", "unix_s", "step_ms", "late_pct", "late_ms", "late_rank", "allreduce_ms", "busbw_gb_s", "loss"]
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


def run_csv(snapshot: Snapshot, findings: Sequence[Finding] | None = None) -> str:
    """A row for each name and value of the view of the run; the hours lost by cause are of these findings or of all."""
    pairs = ((section.name, key, value) for section in about(snapshot, findings) for key, value in section.pairs)
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
