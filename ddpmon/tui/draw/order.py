"""Which ranks and hosts the tables show, and in what order."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ddpmon.report.verdicts import firing, marked_hosts, marked_ranks
from ddpmon.snapshot import Finding, Ints, Ranks, Snapshot
from ddpmon.tui.draw.columns import BY_KEY

TROUBLE = {"failed": 0, "lost": 1, "stalled": 2}
CALM_SHARE = 0.05  # lateness is sorted in steps of this share of a step, so that calm rows do not jump


def ordered(snapshot: Snapshot, sort: str, reverse: bool, wanted: str) -> Ints:
    """The rank numbers to show, first row first."""
    ranks = snapshot.ranks
    if ranks is None or len(ranks) == 0:
        return np.zeros(0, dtype=np.int64)
    order = _worst(snapshot, ranks) if sort == "worst" else _by_column(ranks, sort)
    if reverse:
        order = order[::-1]
    return order[matching(snapshot, wanted)[order]]


def ordered_hosts(snapshot: Snapshot, sort: str, reverse: bool) -> Ints:
    """The node numbers, first row first: those that findings name in the findings' order, or all in node order."""
    marked = marked_hosts(snapshot.findings, snapshot.nodes) if sort == "worst" else {}
    rest = [node.node for node in snapshot.nodes if node.node not in marked]
    return np.array([*marked, *rest][:: -1 if reverse else 1], dtype=np.int64)


def _worst(snapshot: Snapshot, ranks: Ranks) -> Ints:
    """Broken ranks, then named ones in the findings' order, then by lateness; equals in rank order."""
    state = np.full(len(ranks), 9)
    if not TROUBLE.keys().isdisjoint(ranks.state):
        state = np.array([TROUBLE.get(state, 9) for state in ranks.state])
    named = np.full(len(ranks), 1 << 30)
    for place, rank in enumerate(marked_ranks(snapshot.findings)):
        if 0 <= rank < len(ranks):
            named[rank] = place
    step = snapshot.job.step_ms or _typical(ranks)
    late = np.where(np.isnan(ranks.lateness_ms), -np.inf, np.maximum(ranks.lateness_ms, 0.0))
    bucket = np.floor(late / max(step * CALM_SHARE, 1e-6))
    return np.lexsort((np.arange(len(ranks)), -bucket, named, state)).astype(np.int64)


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


def matching(snapshot: Snapshot, wanted: str) -> NDArray[np.bool_]:
    """Ranks that any of the words match.

    A word is a number, a range such as 3-7, part of a host name, the beginning of a state, or of the kind of a finding
    that names the rank (or its host, where it names no rank).
    """
    ranks, words = snapshot.ranks, wanted.lower().replace(",", " ").split()
    if ranks is None or not words:
        return np.ones(0 if ranks is None else len(ranks), dtype=np.bool_)
    mask = np.zeros(len(ranks), dtype=np.bool_)
    for word in words:
        if re.fullmatch(r"[0-9]+(-[0-9]*)?", word):
            mask |= _numbered(word, len(ranks))
        else:
            mask |= _worded(word, ranks) | _found(word, snapshot.findings, ranks)
    return mask


def _found(word: str, findings: Sequence[Finding], ranks: Ranks) -> NDArray[np.bool_]:
    mask = np.zeros(len(ranks), dtype=np.bool_)
    for finding in firing(findings):
        if finding.kind.startswith(word.replace("-", "_")):
            mask[[rank for rank in finding.ranks if 0 <= rank < len(ranks)]] = True
            if not finding.ranks and finding.nodes:
                mask |= np.isin(np.array(ranks.host), finding.nodes)
    return mask


def _numbered(word: str, total: int) -> NDArray[np.bool_]:
    first, dash, last = word.partition("-")
    low = min(int(first[:9]), total)
    high = low if not dash else min(int(last[:9]), total) if last else total
    number = np.arange(total)
    return (number >= low) & (number <= high)


def _worded(word: str, ranks: Ranks) -> NDArray[np.bool_]:
    return np.array([word in host.lower() or state.startswith(word) for host, state in _who(ranks)], dtype=np.bool_)


def _who(ranks: Ranks) -> zip[tuple[str, str]]:
    return zip(ranks.host, ranks.state, strict=True)
