"""Which ranks, hosts and findings a filter fits: one tree, looked at in three ways."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce

import numpy as np
from numpy.typing import NDArray

from ddpmon.report.base_step import base_step_ms, of_base
from ddpmon.report.peers import as_shown
from ddpmon.report.verdicts import firing
from ddpmon.snapshot import Finding, Ints, Ranks, Snapshot
from ddpmon.tui.draw.host_labels import host_labels
from ddpmon.tui.filter.filter_fields import NUMBERS, STATES, TEXTS, finding_words
from ddpmon.tui.filter.parse import parse
from ddpmon.tui.filter.terms import near_field
from ddpmon.tui.filter.tree import Either, Every, FilterError, Interval, Like, Node, Not, Word

Mask = NDArray[np.bool_]
_HOSTS_NAMED, _KINDS_NAMED = 2, 3  # where an unknown word is answered with what there is: it has to fit a line
_OF_FINDINGS = ("finding", "severity")


def fitting_ranks(snapshot: Snapshot, wanted: str) -> Mask:
    """[world size] whether the filter `wanted` fits each rank; an empty one fits all.

    Raises:
        FilterError: the filter is not understood.
    """
    ranks, tree = snapshot.ranks, parse(wanted)
    if ranks is None or tree is None:
        return np.ones(0 if ranks is None else len(ranks), dtype=np.bool_)
    return _walk(tree, lambda leaf: _ranks_of(leaf, snapshot, ranks))


def fitting_hosts(snapshot: Snapshot, wanted: str) -> set[int]:
    """The numbers of the hosts with a rank that the filter fits.

    Raises:
        FilterError: the filter is not understood.
    """
    if not wanted or snapshot.ranks is None:
        return {node.node for node in snapshot.nodes}
    fitting = set(np.flatnonzero(fitting_ranks(snapshot, wanted)).tolist())
    return {node.node for node in snapshot.nodes if not fitting.isdisjoint(node.ranks)}


def fitting_findings(snapshot: Snapshot, wanted: str) -> tuple[Finding, ...]:
    """The findings that the filter fits together with a rank that they concern.

    A finding concerns the ranks that it names. One that names no rank concerns those of the hosts that it names, and
    one that names neither concerns all ranks of the run.

    Raises:
        FilterError: the filter is not understood.
    """
    tree, findings, ranks = parse(wanted), snapshot.findings, snapshot.ranks
    if tree is None or ranks is None or not findings:
        return findings
    pairs = _Pairs.of(findings, ranks)
    mask = _walk(tree, lambda leaf: _pairs_of(leaf, snapshot, ranks, pairs))
    fitting = set(pairs.finding[mask].tolist())
    return tuple(finding for place, finding in enumerate(findings) if place in fitting)


def complaint(snapshot: Snapshot, wanted: str) -> str:
    """What of a filter is not understood, in one sentence; empty if all of it is."""
    try:
        tree = parse(wanted)
    except FilterError as error:
        return str(error)
    unknown = [] if tree is None else [word for word in _words(tree) if not _is_known(word, snapshot)]
    if not unknown:
        return ""
    return f"no host, state or finding is called {unknown[0].text!r}{_hint(unknown[0].text, snapshot)}"


def _hint(unknown: str, snapshot: Snapshot) -> str:
    """What to write instead of an unknown word."""
    if any(letter in "^$[]*+?\\" for letter in unknown):
        return "; a regular expression follows a ~, as in host~^n[0-3]$"
    field = near_field(unknown.lower())
    if field:
        return f": did you mean {field}? A field needs a comparison, as in late>10"
    hosts = snapshot.run.nodes if snapshot.run else ()
    named = itertools.chain.from_iterable(map(finding_words, snapshot.findings))
    kinds = dict.fromkeys([*named] or TEXTS["finding"].words)
    known = (*STATES, *dict.fromkeys(hosts[:_HOSTS_NAMED]), *itertools.islice(kinds, _KINDS_NAMED))
    return f": there are {', '.join(known)}; a field needs a comparison, as in late>10"


def _words(node: Node) -> list[Word]:
    if isinstance(node, Word):
        return [node]
    parts = node.parts if isinstance(node, Every | Either) else (node.part,) if isinstance(node, Not) else ()
    return [word for part in parts for word in _words(part)]


def _is_known(word: Word, snapshot: Snapshot) -> bool:
    """Whether a host, a state or a kind of finding is called so, whatever the ranks are at now."""
    hosts = {*(snapshot.run.nodes if snapshot.run else ()), *(snapshot.ranks.host if snapshot.ranks else ())}
    known = {"state": STATES, "finding": TEXTS["finding"].words}
    return any(
        bool(_hosts_like(part, hosts)) if part.field == "host" else any(map(part.pattern.search, known[part.field]))
        for part in word.parts
    )


def _walk(node: Node, leaf: Callable[[Interval | Like], Mask]) -> Mask:
    if isinstance(node, Not):
        return ~_walk(node.part, leaf)
    if isinstance(node, Every | Either | Word):
        joined = np.logical_and if isinstance(node, Every) else np.logical_or
        masks: list[Mask] = [_walk(part, leaf) for part in node.parts]
        return reduce(joined, masks)
    return leaf(node)


def _ranks_of(leaf: Interval | Like, snapshot: Snapshot, ranks: Ranks) -> Mask:
    if isinstance(leaf, Interval):
        return _within(leaf, snapshot, ranks)
    if leaf.field in _OF_FINDINGS:
        named = [finding for finding in firing(snapshot.findings) if _is_like(leaf, finding)]
        return _named_by(named, ranks)
    values = TEXTS[leaf.field].values
    assert values is not None
    return _like(leaf, values(ranks), TEXTS[leaf.field].spellings)


def _within(leaf: Interval, snapshot: Snapshot, ranks: Ranks) -> Mask:
    shown = as_shown(snapshot) if leaf.field == "late" else ranks
    values = NUMBERS[leaf.field].values(shown or ranks)
    if leaf.of_step:
        values = of_base(values, base_step_ms(snapshot) or np.nan)
    with np.errstate(invalid="ignore"):
        above = values >= leaf.low if leaf.with_low else values > leaf.low
        below = values <= leaf.high if leaf.with_high else values < leaf.high
    return above & below


def _like(leaf: Like, values: Sequence[str], spellings: Callable[[str], Sequence[str]]) -> Mask:
    """Each word is looked at once, however many ranks have it."""
    different, search = set(values), leaf.pattern.search
    spelled = (word for word in different if any(map(search, spellings(word))))
    fits = _hosts_like(leaf, different) if leaf.field == "host" else set(spelled)
    return np.fromiter(map(fits.__contains__, values), np.bool_, len(values))


def _hosts_like(leaf: Like, names: Collection[str]) -> set[str]:
    """Those of these hosts whose name is like that, or if there is none, whose label at the heat-map is it."""
    found = set(filter(leaf.pattern.search, names))
    return found or {name for name, label in _labels(frozenset(names)) if leaf.pattern.fullmatch(label)}


@lru_cache(maxsize=4)
def _labels(names: frozenset[str]) -> list[tuple[str, str]]:
    """Each name with its label; with thousands of hosts that takes milliseconds."""
    ordered = sorted(names)
    return list(zip(ordered, host_labels(ordered)[0], strict=True)) if len(ordered) > 1 else []


def _is_like(leaf: Like, finding: Finding) -> bool:
    words = finding_words(finding) if leaf.field == "finding" else (finding.severity,)
    return any(map(leaf.pattern.search, words))


def _named_by(findings: Sequence[Finding], ranks: Ranks) -> Mask:
    """The ranks that any of these findings names, or those of its hosts if it names no rank."""
    mask = np.zeros(len(ranks), dtype=np.bool_)
    hosts = {host for finding in findings if not finding.ranks for host in finding.nodes}
    if hosts:
        mask |= np.fromiter(map(hosts.__contains__, ranks.host), np.bool_, len(ranks))
    for finding in findings:
        mask[[rank for rank in finding.ranks if 0 <= rank < len(ranks)]] = True
    return mask


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Each finding with each rank that it concerns.

    Attributes:
        finding: [pairs] the place of the finding.
        rank: [pairs] the rank; -1 in the only pair of a finding on hosts without a known rank.
    """

    finding: Ints
    rank: Ints

    @classmethod
    def of(cls, findings: Sequence[Finding], ranks: Ranks) -> _Pairs:
        everybody = np.arange(len(ranks))
        named = [
            np.flatnonzero(_named_by([each], ranks)) if each.ranks or each.nodes else everybody for each in findings
        ]
        named = [each if each.size else np.array([-1]) for each in named]
        return cls(np.repeat(np.arange(len(named)), list(map(len, named))), np.concatenate(named))


def _pairs_of(leaf: Interval | Like, snapshot: Snapshot, ranks: Ranks, pairs: _Pairs) -> Mask:
    """[pairs] whether a leaf fits: a word of findings the finding, all others the rank, and nobody none of them."""
    if isinstance(leaf, Like) and leaf.field in _OF_FINDINGS:
        fits = np.array([_is_like(leaf, finding) for finding in snapshot.findings], dtype=np.bool_)
        return fits[pairs.finding]
    return np.append(_ranks_of(leaf, snapshot, ranks), False)[pairs.rank]
