"""Which ranks and hosts the tables show, and in what order."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from ddpmon.report.base_step import NOTABLE_SHARE, base_step_ms
from ddpmon.report.host_summary import host_words, known_sum, latest, memory_pct, received, sent
from ddpmon.report.peers import as_shown
from ddpmon.report.silence import silent_hosts, silent_ranks
from ddpmon.report.verdicts import headline, is_past, marked_hosts, marked_ranks, restarted_alone
from ddpmon.snapshot import Ints, NodeView, Ranks, Snapshot
from ddpmon.tui.draw.columns import BY_KEY
from ddpmon.tui.draw.host_cells import METRICS, metric_of, oddness
from ddpmon.tui.filter.fits import fitting_hosts, fitting_ranks

TROUBLE = {"failed": 0, "lost": 1, "stalled": 2}
SILENT, CALM = 3, 9  # behind these the ranks that are silent and not yet lost
STAYS_S = 60.0  # that a host stays in front: what is near a threshold stands out now and then. Chosen.


def ordered(snapshot: Snapshot, sort: str, reverse: bool, wanted: str) -> Ints:
    """The rank numbers to show, first row first.

    Raises:
        FilterError: the filter `wanted` is not understood.
    """
    ranks = snapshot.ranks
    if ranks is None or len(ranks) == 0:
        return np.zeros(0, dtype=np.int64)
    shown = as_shown(snapshot) if sort == "late" else ranks
    order = _worst(snapshot, ranks) if sort == "worst" else _by_column(shown or ranks, sort)
    if reverse:
        order = order[::-1]
    return order[fitting_ranks(snapshot, wanted)[order]]


ODD = "odd"  # the order by what the cells of the hosts show
HOST_SORTS: Mapping[str, Callable[[NodeView, Ranks | None], float | None] | None] = {  # by a heading of the host table
    "worst": None,
    "host": None,
    "late": latest,
    "cpu%": lambda node, _ranks: node.figures.cpu_pct,
    "mem%": lambda node, _ranks: memory_pct(node.figures),
    "load": lambda node, _ranks: node.figures.load_1m,
    "net/s": lambda node, _ranks: known_sum([received(node.figures), sent(node.figures)]),
    ODD: None,
}
HOST_LETTERS = {  # shift and this letter sorts
    "H": "host", "L": "late", "C": "cpu%", "M": "mem%", "D": "load", "T": "net/s", "V": ODD,
}  # fmt: skip
HOST_MEANINGS = {  # what a column shows, with its unit
    "host": "the host's name",
    "late": "lateness of its most late rank, ms of a step",
    "cpu%": "CPU of the host, % of all cores together",
    "mem%": "memory of the host, or of its container, % used",
    "load": "load of the last minute, processes",
    "net/s": "received and sent, bytes a second",
    ODD: "of what the cells show; v changes it",
}


class StandingOut:
    """Remembers for a minute on which hosts something stood out, so that rows do not jump at a threshold."""

    def __init__(self) -> None:
        self._seen_at: dict[int, float] = {}  # node -> Unix time

    def hosts(self, snapshot: Snapshot) -> frozenset[int]:
        """The node numbers of those on which something stands out, or did in the minute before the picture."""
        now = snapshot.taken_at
        self._seen_at |= {node.node: now for node in snapshot.nodes if host_words(node.figures)}
        self._seen_at = {node: at for node, at in self._seen_at.items() if now - STAYS_S <= at <= now}
        return frozenset(self._seen_at)


def ordered_hosts(
    snapshot: Snapshot,
    sort: str,
    reverse: bool,
    wanted: str = "",
    metric: str = METRICS[0].key,
    standing_out: StandingOut | None = None,
) -> Ints:
    """The node numbers, first row first: named ones in the findings' order, or by a figure, all others in node order.

    Behind the named ones come those that are silent or have a silent rank, then those on which something stands out: of
    a hundred hosts a small screen shows ten.

    Args:
        snapshot: what is known.
        sort: the order.
        reverse: whether it is turned round.
        wanted: the filter.
        metric: the key of what the cells show.
        standing_out: remembers hosts on which something stood out before; None: those of this picture count alone.

    Raises:
        FilterError: the filter `wanted` is not understood.
    """
    marked = marked_hosts(snapshot.findings, snapshot.nodes) if sort == "worst" else {}
    value, nodes = HOST_SORTS[sort], snapshot.nodes
    ranks = as_shown(snapshot) if sort in ("late", ODD) else snapshot.ranks
    if value is not None:
        nodes = tuple(sorted(nodes, key=lambda node: _largest_first(value(node, ranks))))
    elif sort == ODD:
        odd = oddness(metric_of(snapshot, metric), snapshot, ranks)
        nodes = [nodes[place] for place in np.argsort(-np.nan_to_num(odd, nan=-np.inf), kind="stable").tolist()]
    if sort == "worst":
        ahead = (standing_out or StandingOut()).hosts(snapshot)
        silent = set() if is_past(snapshot) else silent_hosts(snapshot)
        nodes = tuple(sorted(nodes, key=lambda node: (node.node not in silent, node.node not in ahead)))
    rest = [node.node for node in nodes if node.node not in marked]
    shown = fitting_hosts(snapshot, wanted)
    return np.array([node for node in [*marked, *rest][:: -1 if reverse else 1] if node in shown], dtype=np.int64)


def _largest_first(value: float | None) -> float:
    """Unknown last."""
    return math.inf if value is None or not math.isfinite(value) else -value


def _worst(snapshot: Snapshot, ranks: Ranks) -> Ints:
    """The headline's ranks, then broken and silent ones, then those that a warning names in the findings' order.

    Then come those that have restarted alone, and all others by lateness. Equals are in rank order.
    """
    worst = headline(snapshot.findings)
    told = np.isin(np.arange(len(ranks)), () if worst is None or worst.severity == "info" else worst.ranks)
    state = np.full(len(ranks), CALM)
    if not TROUBLE.keys().isdisjoint(ranks.state):
        state = np.array([TROUBLE.get(state, CALM) for state in ranks.state])
    if not is_past(snapshot):
        state[silent_ranks(ranks) & (state == CALM)] = SILENT
    named = np.full(len(ranks), 1 << 30)
    named[[rank for rank in restarted_alone(snapshot.findings) if rank < len(ranks)]] = len(ranks)
    for place, rank in enumerate(marked_ranks(snapshot.findings, "warning")):
        if 0 <= rank < len(ranks):
            named[rank] = place
    step = base_step_ms(snapshot) or _typical(ranks)
    late = np.where(np.isnan(ranks.lateness_ms), -np.inf, np.maximum(ranks.lateness_ms, 0.0))
    bucket = np.floor(late / max(step * NOTABLE_SHARE, 1e-6))  # in steps, so that calm rows do not jump
    return np.lexsort((-bucket, named, state, ~told)).astype(np.int64)  # it keeps equals in rank order


def _typical(ranks: Ranks) -> float:
    seen = ranks.step_ms[np.isfinite(ranks.step_ms)]
    return float(np.median(seen)) if seen.size else 1.0


def _by_column(ranks: Ranks, sort: str) -> Ints:
    """Largest first (rank and node: smallest first); unknown last."""
    number = np.arange(len(ranks))
    if sort == "rank":
        return number.astype(np.int64)
    if sort == "node":
        return np.lexsort((number, np.array(ranks.host), ranks.node)).astype(np.int64)
    return np.lexsort((number, -np.nan_to_num(BY_KEY[sort].values(ranks, number), nan=-np.inf))).astype(np.int64)
