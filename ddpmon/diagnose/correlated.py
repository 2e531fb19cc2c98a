"""Ranks that are late in the same steps, now and then: a host that something disturbs, or some ranks of several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from ddpmon.diagnose.alert import Alert
from ddpmon.diagnose.alert_book import AlertBook, Life
from ddpmon.diagnose.blame import blame
from ddpmon.diagnose.intermittent import Hits, said_since
from ddpmon.diagnose.kinds import KINDS
from ddpmon.diagnose.late_policy import INTERMITTENT, STRAGGLER, SUSTAINED, TOGETHER
from ddpmon.diagnose.measure import Others, Whom, cost_of_steps
from ddpmon.diagnose.step_matrix import StepMatrix, ends_of_blocks
from ddpmon.diagnose.tick import Tick
from ddpmon.run.model import Run
from ddpmon.run.rings import I64

_GROUP = 0  # the key of the one life: at most one group is followed


class LateTogether:
    """Follows a group of ranks that hold the others up in the same steps, where no one rank alone does.

    A step is long where its last rank works 25 % longer than the typical one. The group is a host, or who is late in
    70 % of the long steps by half as much as the last; its steps are those in which 70 % of it work 25 % longer.
    """

    def __init__(self, book: AlertBook) -> None:
        self.lives = book.group("late together")
        self._judged = -1
        self._who: tuple[int, ...] = ()

    def __call__(self, tick: Tick, said: Sequence[Alert]) -> list[Alert]:
        """Judge the steps that have come in, unless somebody in particular is late."""
        run, matrix, steps = tick.run, tick.steps, tick.steps.steps
        explained = any(KINDS[alert.kind].late and alert.severity != "info" for alert in said)
        if len(matrix.ranks) < TOGETHER.least_ranks or not len(steps):
            return []
        ends = ends_of_blocks(steps, INTERMITTENT.every_steps, self._judged)
        self._judged = max(self._judged, int(steps[-1]))
        for end in ends.tolist():
            groups = (_group(matrix, end, size) for size in TOGETHER.windows_steps)
            found = () if explained else next(filter(None, groups), ())
            self._who = found or self._who
            self.lives.observe(_GROUP, int(steps[end - 1]), high=bool(found), low=False)
            if _GROUP in self.lives:
                own = _hits(matrix, self._who, end)
                if end - 1 - own.last > own.pause:
                    self.lives.resolve(_GROUP, int(steps[own.last + 1]))
        for life in self.lives:
            if life.high:
                self._describe(run, matrix, life)
        return self.lives.firing

    def _describe(self, run: Run, matrix: StepMatrix, life: Life) -> None:
        alert = _described(run, matrix, life, self._who)
        if alert is not None:
            life.describe(alert)


def _group(matrix: StepMatrix, end: int, window: int) -> tuple[int, ...]:
    """The ranks that are late together in the window of steps before `end`; empty if there are none."""
    if end < window:
        return ()
    part = slice(end - window, end)
    for rows in _candidates(matrix, part):
        if 2 <= len(rows) <= len(matrix.ranks) // 2 and _saved(matrix, rows, part) >= INTERMITTENT.saved_share:
            return tuple(matrix.ranks[rows].tolist())
    return ()


def _saved(matrix: StepMatrix, rows: I64, part: slice) -> float:
    """What part of its time the job would save if these rows were as late as the next; 0 where they are so too rarely.

    And where they are so in most steps: those are rule A's to name.
    """
    at = _late_steps(matrix, rows, part)
    if not INTERMITTENT.fewest_steps <= len(at) <= SUSTAINED.steady_share * (part.stop - part.start):
        return 0.0
    rest = np.delete(matrix.most[:, at], rows, axis=0).max(axis=0)
    saved = np.maximum(0, matrix.job("top")[at] - rest).sum()
    return float(saved / max(1e-9, matrix.job("duration")[part].sum()))


def _candidates(matrix: StepMatrix, part: slice) -> Iterator[I64]:
    """Rows: the host that is long most often, and whoever is late in most of the long steps."""
    if len(matrix.hosts) > 1:
        often = (matrix.host_ratios[:, part] > 1 + TOGETHER.long_share).sum(axis=1)
        yield np.flatnonzero(matrix.host_of == often.argmax())
    top, typical = matrix.job("top")[part], matrix.job("typical")[part]
    long = np.flatnonzero(top - typical > TOGETHER.long_share * typical)
    if len(long) >= INTERMITTENT.fewest_steps:
        late = matrix.work[:, part][:, long] - typical[long] > TOGETHER.as_late_share * (top - typical)[long]
        yield np.flatnonzero(late.mean(axis=1) >= TOGETHER.mostly_share)


def _late_steps(matrix: StepMatrix, rows: I64, part: slice) -> I64:
    """The places on record, within `part`, of the steps in which most of these rows are late."""
    late = matrix.work[rows, part] > (1 + TOGETHER.long_share) * matrix.job("typical")[part]
    found: I64 = np.flatnonzero(late.mean(axis=0) >= TOGETHER.mostly_share) + (part.start or 0)
    return found


def _hits(matrix: StepMatrix, ranks: Sequence[int], end: int) -> Hits:
    rows = np.flatnonzero(np.isin(matrix.ranks, ranks))
    return Hits(_late_steps(matrix, rows, slice(0, end)) if rows.size else rows)


def _described(run: Run, matrix: StepMatrix, life: Life, ranks: Sequence[int]) -> Alert | None:
    rows, own = np.flatnonzero(np.isin(matrix.ranks, ranks)), _hits(matrix, ranks, len(matrix.steps))
    peers = np.delete(matrix.ranks, rows)
    if not own.at.size or not peers.size:
        return None
    at = own.at[own.at >= own.first][-INTERMITTENT.described_steps :]
    whom, span = _whom(matrix, rows), np.arange(len(matrix.steps)) >= int(at[0])
    late = replace(
        Others(run, matrix.steps[at], peers, own=matrix.own).compare(run, whom),
        cost_pct=cost_of_steps(matrix, rows, rows, at, span),
        hit_steps=len(at),
        one_step_in=own.gap,
    )
    since = own.since(matrix.steps, said_since(life), INTERMITTENT.quiet_steps)
    hosts = tuple(dict.fromkeys(matrix.hosts[place] for place in matrix.host_of[rows].tolist()))
    return blame("slow_node" if whom.of_host else "intermittent_straggler", life, hosts, since, late)


def _whom(matrix: StepMatrix, rows: I64) -> Whom:
    """A host, if they are nearly all of its ranks and no others; else the ranks."""
    ranks, place = tuple(matrix.ranks[rows].tolist()), matrix.host_of[rows[0]]
    own = matrix.host_of == place
    if (matrix.host_of[rows] == place).all() and not own.all() and len(rows) >= STRAGGLER.host_share * own.sum():
        return Whom(ranks, matrix.hosts[place], int(own.sum()))
    return Whom(ranks, "")
