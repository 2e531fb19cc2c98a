"""Ranks that are late in the same steps, now and then: a host that something disturbs, or some ranks of several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ddpmon.diagnose.blame import Named, blame
from ddpmon.diagnose.cases import Case, Cases
from ddpmon.diagnose.finding import Finding
from ddpmon.diagnose.hits import QUIET_STEPS, STEADY, Hits
from ddpmon.diagnose.ledger import Ledger
from ddpmon.diagnose.measure import Others, cost_of_steps
from ddpmon.diagnose.steps import ends_of_blocks
from ddpmon.diagnose.wording import who
from ddpmon.run.model import Run
from ddpmon.run.rings import I64

WINDOWS = (50, 200)
_EVERY = 5
_LONG = 0.25
_FEWEST = 6
_MOSTLY = 0.7
_SAVED = 0.05
_HOST = 7 / 8
_DESCRIBED = 100
_GROUP = 0


class LateTogether:
    """Follows a group of ranks that hold the others up in the same steps, where no one rank alone does.

    A step is long where its last rank works 25 % longer than the typical one; late in it is who is late by half as much
    as the last. Who is late in 70 % of the long steps, six at least, belongs to the group.
    """

    def __init__(self) -> None:
        self.cases = Cases()
        self._judged = -1
        self._who: tuple[int, ...] = ()

    def update(self, run: Run, ledger: Ledger, *, explained: bool) -> list[Finding]:
        """Judge the steps that have come in; `explained`: somebody in particular is late."""
        steps = ledger.steps
        if len(ledger.who) < 4 or not len(steps):
            return []
        ends = ends_of_blocks(steps, _EVERY, self._judged)
        self._judged = max(self._judged, int(steps[-1]))
        for end in ends.tolist():
            found = () if explained else next(filter(None, (_group(ledger, end, size) for size in WINDOWS)), ())
            self._who = found or self._who
            self.cases.turn(_GROUP, int(steps[end - 1]), high=bool(found), low=False)
            own = _hits(ledger, self._who, end)
            if end - 1 - own.last > own.pause:
                self.cases.clear(_GROUP, int(steps[end - 1]))
        for case in self.cases:
            if case.high:
                case.finding = _described(run, ledger, case, self._who) or case.finding
        return [case.finding for case in self.cases if case.finding is not None]


def _group(ledger: Ledger, end: int, window: int) -> tuple[int, ...]:
    """The ranks that are late together in the window of steps before `end`; empty if there are none."""
    if end < window:
        return ()
    part = slice(end - window, end)
    top, typical = ledger.job("top")[part], ledger.job("typical")[part]
    long = np.flatnonzero(top - typical > _LONG * typical)
    if not _FEWEST <= len(long) <= STEADY * window:
        return ()
    late = _late(ledger, long + end - window)
    rows = np.flatnonzero(late.mean(axis=1) >= _MOSTLY)
    if not 2 <= len(rows) <= len(late) // 2:
        return ()
    rest = np.delete(ledger.work[:, part][:, long], rows, axis=0).max(axis=0)
    saved = np.maximum(0, top[long] - rest).sum() / max(1e-9, ledger.job("duration")[part].sum())
    return tuple(ledger.who[rows].tolist()) if saved >= _SAVED else ()


def _late(ledger: Ledger, at: I64) -> NDArray[np.bool_]:
    """[n, len(at)] who is late by half as much as the last rank, at these places on record."""
    top, typical = ledger.job("top")[at], ledger.job("typical")[at]
    found: NDArray[np.bool_] = ledger.work[:, at] - typical > (top - typical) / 2
    return found


def _hits(ledger: Ledger, ranks: Sequence[int], end: int) -> Hits:
    """The long steps before `end` in which most of these ranks are late."""
    rows = np.flatnonzero(np.isin(ledger.who, ranks))
    if not rows.size:
        return Hits(rows)
    top, typical = ledger.job("top")[:end], ledger.job("typical")[:end]
    long = np.flatnonzero(top - typical > _LONG * typical)
    return Hits(long[_late(ledger, long)[rows].mean(axis=0) >= _MOSTLY])


def _described(run: Run, ledger: Ledger, case: Case, ranks: Sequence[int]) -> Finding | None:
    rows, own = np.flatnonzero(np.isin(ledger.who, ranks)), _hits(ledger, ranks, len(ledger.steps))
    peers = np.delete(ledger.who, rows)
    if not own.at.size or not peers.size:
        return None
    at = own.at[own.at >= own.first][-_DESCRIBED:]
    numbers = Others(run, ledger.steps[at], peers).compare(run, ledger.who[rows])
    span = np.arange(len(ledger.steps)) >= int(at[0])
    numbers["cost_pct"] = cost_of_steps(ledger, rows, rows, numbers["excess_ms"], at, span)
    numbers["hit_steps"], numbers["one_step_in"] = float(len(at)), own.gap
    since = (int(ledger.steps[own.first]), own.first <= own.pause and int(ledger.steps[0]) > QUIET_STEPS)
    found = blame(_named(ledger, rows), case, (tuple(ranks), ""), since, f"in one step of {own.gap:.0f}", numbers)
    hosts = tuple(dict.fromkeys(ledger.hosts[place] for place in ledger.host_of[rows].tolist()))
    plural = "this host" if found.kind == "slow_node" else "these ranks"
    return replace(found, nodes=found.nodes and hosts, advice=found.advice.replace("this rank", plural))


def _named(ledger: Ledger, rows: I64) -> Named:
    """A host, if they are nearly all of its ranks and no others; else the ranks."""
    place = ledger.host_of[rows[0]]
    own = ledger.host_of == place
    if (ledger.host_of[rows] == place).all() and not own.all() and len(rows) >= _HOST * own.sum():
        name = f"{'all' if len(rows) == own.sum() else 'nearly all'} {own.sum()} ranks of {ledger.hosts[place]}"
        return Named("slow_node", name, "work", "are", "them")
    return Named("intermittent_straggler", who(ledger.who[rows].tolist()), "work together", "are together", "them")
