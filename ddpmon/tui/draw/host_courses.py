"""What the ranks of one host did over the last steps: their lateness by rank and step, and one of them in plots."""

from __future__ import annotations

from ddpmon.report.verdicts import marked_ranks
from ddpmon.snapshot import Finding, NodeView, Snapshot
from ddpmon.tui.draw.bands import FRAME
from ddpmon.tui.draw.courses import LEAST_ROWS, Metric, grid, offered
from ddpmon.tui.draw.heat import TALLEST, heat_lines
from ddpmon.tui.draw.panel import title
from ddpmon.tui.lines import Line
from ddpmon.tui.view_state import ViewState

MACHINE = (  # the order in which they are plotted: the machine first
    "gpu_power_w", "cpu_pct", "lateness", "gpu_clock_mhz", "runqueue_pct", "work", "gpu_utilization_pct", "rss_bytes",
    "wait",
)  # fmt: skip
HEAT_MOST = 9  # lines of the map: few ranks get several each


def plotted_rank(snapshot: Snapshot, number: int) -> int | None:
    """The rank of a host that is plotted: the first that a finding names, else its first."""
    node = _node(snapshot, number)
    if node is None or not node.ranks:
        return None
    marked = marked_ranks(snapshot.findings, "info")
    return next((rank for rank in node.ranks if rank in marked), node.ranks[0])


def has_plots(snapshot: Snapshot, number: int, height: int) -> bool:
    """Whether so many lines have room for plots of a rank of the host, so that its detail is worth reading."""
    node = _node(snapshot, number)
    return node is not None and height - _heat_height(snapshot, node) - 1 >= LEAST_ROWS


def host_courses(picture: ViewState, number: int, width: int, height: int) -> list[Line]:
    """The map of the host's ranks, and plots of the rank that the picture has in detail; empty without room."""
    snapshot, look = picture.snapshot, picture.look
    node = _node(snapshot, number)
    tall = 0 if node is None else _heat_height(snapshot, node)
    if node is None or height < tall:
        return []
    lines = heat_lines(picture, width, tall, " ".join(map(str, node.ranks))) if tall else []
    detail = snapshot.detail
    if detail is None or detail.rank not in node.ranks or not has_plots(snapshot, number, height):
        return lines
    found = marked_ranks(snapshot.findings, "info").get(detail.rank)
    lines.append(title(f"rank {detail.rank} and its machine", "shaded: nine in ten of the others", width, look))
    return [*lines, *grid(detail, _metrics(offered(detail)), width, height - len(lines), look, _since(found))]


def _since(finding: Finding | None) -> int | None:
    return None if finding is None else finding.since_step


def _metrics(known: list[Metric]) -> list[Metric]:
    return sorted((metric for metric in known if metric.key in MACHINE), key=lambda each: MACHINE.index(each.key))


def _node(snapshot: Snapshot, number: int) -> NodeView | None:
    return next((node for node in snapshot.nodes if node.node == number), None)


def _heat_height(snapshot: Snapshot, node: NodeView) -> int:
    """Lines of the map; 0 without one."""
    if snapshot.heat is None or not snapshot.heat.values.size or not node.ranks:
        return 0
    return FRAME + len(node.ranks) * max(1, min(TALLEST, HEAT_MOST // len(node.ranks)))
