"""What the ranks of one host did over the last steps: their lateness by rank and step, and one of them in plots."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddpmon.report.leak import leak_of
from ddpmon.report.verdicts import marked_ranks
from ddpmon.snapshot import NodeView, RankDetail, Snapshot
from ddpmon.tui.draw.courses import LEAST_ROWS, Metric, plottable, rank_plots, reading_line
from ddpmon.tui.draw.heat import ranks_lines
from ddpmon.tui.draw.panel import title
from ddpmon.tui.lines import Line
from ddpmon.tui.view_state import ViewState, fills_room

MACHINE = (  # the order in which they are plotted: a memory that grows, then the machine
    "gpu_power_w", "cpu_pct", "lateness", "gpu_clock_mhz", "runqueue_pct", "work", "gpu_utilization_pct", "rss_bytes",
    "gpu_allocated", "wait",
)  # fmt: skip
FEW = 20  # ranks, of which one in ten is not to be left out
PLOTS_LEAST = 1 + LEAST_ROWS  # lines of the plots with their title


def plotted_rank(snapshot: Snapshot, number: int) -> int | None:
    """The rank of a host that is plotted: the first that a finding names, else its first."""
    node = _node(snapshot, number)
    if node is None or not node.ranks:
        return None
    marked = marked_ranks(snapshot.findings, "info")
    return next((rank for rank in node.ranks if rank in marked), node.ranks[0])


def has_plots(picture: ViewState, number: int, height: int) -> bool:
    """Whether so many lines have room for plots of a rank of the host, so that its detail is worth reading."""
    node = _node(picture.snapshot, number)
    return node is not None and bool(node.ranks) and height >= PLOTS_LEAST and fills_room(picture)


def host_courses(picture: ViewState, number: int, width: int, height: int) -> list[Line]:
    """The map of the host's ranks, and plots of the rank that the picture has in detail; empty without room."""
    snapshot, look = picture.snapshot, picture.look
    node, detail = _node(snapshot, number), snapshot.detail
    if node is None or not fills_room(picture):
        return []
    plots = has_plots(picture, number, height)
    lines = ranks_lines(picture, node.ranks, width, max(height - PLOTS_LEAST, height // 3) if plots else height)
    if not plots:
        return lines
    if detail is None or detail.rank not in node.ranks:
        wanted = plotted_rank(snapshot, number)
        return lines if wanted is None else [*lines, reading_line(picture, wanted)]
    named = marked_ranks(snapshot.findings).get(detail.rank)
    leak = None if named is None else leak_of([named], detail.rank)
    metrics = plottable(detail, sorted(MACHINE, key=lambda key: leak is None or key != leak.key))
    lines.append(title(f"rank {detail.rank} and its machine", _shaded(snapshot, detail, metrics), width, look))
    drawn = rank_plots(picture, detail, [] if named is None else [named])
    return [*lines, *drawn.grid(metrics, width, height - len(lines))]


def _shaded(snapshot: Snapshot, detail: RankDetail, metrics: Sequence[Metric]) -> str:
    """What is shaded in the plots of these metrics; empty where nothing is, as of a rank that restarted alone."""
    if not any(np.isfinite(detail.courses[metric.key].others).any() for metric in metrics):
        return ""
    few = snapshot.ranks is None or len(snapshot.ranks) <= FEW
    return "shaded: the others" if few else "shaded: nine in ten of the others"


def _node(snapshot: Snapshot, number: int) -> NodeView | None:
    return next((node for node in snapshot.nodes if node.node == number), None)
