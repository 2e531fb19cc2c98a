"""The steps that can be judged, taken out of the Run once as they come in: sliding columns of every rank's steps."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddpmon.diagnose.late_policy import SUSTAINED
from ddpmon.diagnose.own_pace import OwnPaces
from ddpmon.diagnose.sustained import work_ratios
from ddpmon.diagnose.unsuspected import Unsuspected
from ddpmon.parts import NO_HOST
from ddpmon.run.marks import paused_steps
from ddpmon.run.medians import Peers, middles, others_medians, peers, row_medians
from ddpmon.run.model import LOST_S, Run
from ddpmon.run.rings import F32, I64

_SLACK = 8  # a table of T columns is moved to the left after T / 8 new ones: a wider buffer takes more memory
# Steps on record from which on a rank is compared where most have as many: three windows of a steady straggler's
# judgement, so that those that stand are not judged on less once it takes part. Chosen, not measured.
_RECORD = 64
_CHUNK = 64  # steps that are taken out of the rings at once: a bound on memory
_TAKEN = ("work", "wait", "duration", "exposed", "samples")  # the columns that are taken out of the rings
# The names of the job's figures, which `StepMatrix.job` explains.
JOB = ("duration", "typical", "mean", "top", "second", "transfer", "spread", "samples", "noise")
Array = NDArray[Any]


def lost_ranks(run: Run, ages: NDArray[np.float64]) -> NDArray[np.int64]:
    """Ranks that were heard of once and have been silent too long without having said that they end."""
    with np.errstate(invalid="ignore"):
        return np.flatnonzero((ages > LOST_S) & ~run.latest.ended)


def alive(run: Run, ages: NDArray[np.float64]) -> NDArray[np.bool_]:
    """[world] the ranks that take part and are not lost."""
    ranks = run.taking_part()
    ranks[lost_ranks(run, ages)] = False
    return ranks


def ends_of_blocks(steps: I64, every: int, judged: int) -> I64:
    """The places behind the first step on record of each block of `every` steps, for steps above `judged`.

    Not at the multiples alone: these may all be missing, where every fifth step holds an evaluation.
    """
    block = steps // every
    begins = np.diff(block, prepend=block[:1] - 1) > 0
    found: I64 = np.flatnonzero((steps > judged) & begins) + 1
    return found


class NewSteps:
    """Hands out every step once: when all ranks that are compared have a record of it."""

    def __init__(self) -> None:
        self._judged = -1

    def take(self, run: Run, ranks: NDArray[np.bool_]) -> I64:
        """Steps not handed out before, ascending, that all of `ranks` have on record; all of them after a restart."""
        known = ranks & (run.rings.last >= 0)
        last = run.rings.last[known]
        if not last.size:
            return np.empty(0, np.int64)
        if int(last.max()) < self._judged:
            self._judged = -1
        steps = run.finished_after(self._judged, np.flatnonzero(known))
        self._judged = max(self._judged, int(last.min()))
        return steps


class SlidingColumns:
    """A [rows, T] table, T at most `room`, kept in one buffer that is a little wider; a column lies in one piece.

    Args:
        rows: how many.
        room: the columns kept.
        dtype: what a cell is.
    """

    def __init__(self, rows: int, room: int, dtype: Any = np.float32) -> None:
        self._buffer: Array = np.empty((room + max(1, room // _SLACK), rows), dtype)
        self._room = room
        self._end = 0

    def append(self, columns: Array) -> None:
        """Add [rows, m] columns at the right; the oldest leave at the left."""
        columns = columns[:, -self._room :]
        width = columns.shape[1]
        if self._end + width > len(self._buffer):
            kept = self._buffer[self._end - self._room + width : self._end].copy()
            self._buffer[: len(kept)] = kept
            self._end = len(kept)
        self._buffer[self._end : self._end + width] = columns.T
        self._end += width

    @property
    def view(self) -> Array:
        """[rows, T] the columns now; not to be written."""
        return self._buffer[max(0, self._end - self._room) : self._end].T


class StepMatrix:
    """Every usable step of the ranks that are compared.

    A step is usable once all of them have finished it, past the warm-up, outside of evaluations and checkpoints that
    the user marked, and not right behind one (`run.paused`).

    Attributes:
        ranks: [n] the numbers of the ranks compared; the row of a rank is its place here.
        hosts: [g] host names, in order of their first rank; containers may share one. host_of: [n] the place of each
            rank's host there.
        host_keys: [g] what tells hosts apart: name and node number.
        own: the ranks' own pace, where their clock is a device's; None where work is right as it was measured.
        unsuspected: what the ranks work that nobody suspects, step by step.
    """

    def __init__(self) -> None:
        self.ranks: I64 = np.empty(0, np.int64)
        self.hosts: tuple[str, ...] = ()
        self.host_keys: tuple[tuple[str, int], ...] = ()
        self.host_of: I64 = np.empty(0, np.int64)
        self.own: OwnPaces | None = None
        self._looked_at = self._processes_seen = -1
        self._begin(1)

    def _begin(self, room: int) -> None:
        n, g = len(self.ranks), len(self.hosts)
        self.unsuspected = Unsuspected()
        self._steps = SlidingColumns(1, room, np.int64)
        self._top_row = SlidingColumns(1, room, np.int64)
        self._job = SlidingColumns(len(JOB), room, np.float64)
        self._work, self._host_ratios = SlidingColumns(n, room), SlidingColumns(g, room)
        self._others = SlidingColumns(len(Peers._fields), room)
        self._most = self._work if self.own is None else SlidingColumns(n, room)

    @property
    def steps(self) -> I64:
        """[T] the usable steps on record, ascending."""
        view: I64 = self._steps.view[0]
        return view

    @property
    def work(self) -> F32:
        """[n, T] work in ms; of own pace, which may be known within bounds only, the least."""
        return self._work.view

    @property
    def most(self) -> F32:
        """[n, T] the most that own pace may be; where the clock is the host's, the same as `work`."""
        return self._most.view

    @property
    def one_host(self) -> bool:
        """Whether all ranks are known to be on one host."""
        return len(self.hosts) == 1 and self.hosts[0] != NO_HOST

    def ratios(self, part: slice, rows: I64 | slice = slice(None)) -> F32:
        """[rows, k] work of some rows over the median of the others' most, of a part of the steps; n must be >= 2."""
        others = Peers(*self._others.view[:, part])
        return work_ratios(self.work[rows, part], others.medians(self.most[rows, part]))

    @property
    def host_ratios(self) -> F32:
        """[g, T] median work of a host's ranks over the median of the other hosts; NaN with one host."""
        return self._host_ratios.view

    @property
    def top_row(self) -> I64:
        """[T] the row of the rank that worked longest."""
        view: I64 = self._top_row.view[0]
        return view

    def job(self, name: str) -> NDArray[np.float64]:
        """[T] one of the job's figures.

        Of the ranks' `work` the lower median (typical), mean, longest (top), and the longest of the others (second),
        these at their most; the median duration; the least exposed (transfer); the range of waits (spread); the sum of
        samples; the noise of the hosts' time where a rank's own pace is a median of that, which shows none (noise).
        """
        view: NDArray[np.float64] = self._job.view[JOB.index(name)]
        return view

    def update(self, run: Run, ranks: NDArray[np.bool_]) -> None:
        """Take in what has been finished since the last call by `ranks` [world].

        It starts again when these change, or when another host is known of one of them: a rank is compared as soon as
        its history has been read, and its frame, which names its host, may come later.
        """
        who = _with_record(run, np.flatnonzero(ranks & (run.rings.last >= 0)))
        newest = int(run.rings.last[who].min()) if who.size else -1
        of_device = run.rings.of_device and self.own is None
        if of_device:
            self.own = OwnPaces(run.info.world_size, run.rings.capacity)
        if of_device or newest < self._looked_at or not np.array_equal(who, self.ranks) or self._have_moved(run):
            self._restart(run, who)
        if not who.size or newest <= self._looked_at:
            return
        finished = run.finished_after(self._looked_at, who)
        if self.own is not None:
            self.own.feed(run, who, finished)
        steps = self._usable(run, finished)
        self._looked_at = newest
        for start in range(0, len(steps), _CHUNK):
            self._append(run, steps[start : start + _CHUNK])

    def _have_moved(self, run: Run) -> bool:
        """Whether the hosts of the ranks that are compared are others than when it started."""
        if run.latest.processes_seen == self._processes_seen:
            return False
        self._processes_seen = run.latest.processes_seen
        return _host_keys(run, self.ranks) != [self.host_keys[place] for place in self.host_of.tolist()]

    def _restart(self, run: Run, who: I64) -> None:
        keys = _host_keys(run, who)
        places = {key: place for place, key in enumerate(dict.fromkeys(keys))}
        self.ranks, self.host_keys = who, tuple(places)
        self.hosts = tuple(name for name, _ in places)
        self.host_of = np.array([places[key] for key in keys], np.int64)
        self._looked_at = -1
        self._begin(run.rings.capacity)

    def _usable(self, run: Run, steps: I64) -> I64:
        steps = steps[steps >= SUSTAINED.warm_up_steps]
        if not steps.size:
            return steps
        first = int(steps[0]) - 1
        paused = paused_steps(run.rings, np.arange(first, int(steps[-1]) + 1), self.ranks)
        usable: I64 = steps[~(paused[steps - first] | paused[steps - first - 1])]
        return usable

    def _append(self, run: Run, steps: I64) -> None:
        take = dict(zip(_TAKEN, run.rings.takes(_TAKEN, steps, self.ranks), strict=True))
        known = ~np.isnan(take["work"]).any(axis=0)
        if not known.all():  # a rank whose waits are not known cannot be compared at that step
            steps, take = steps[known], {name: table[:, known] for name, table in take.items()}
        work = most = take["work"]
        if self.own is not None:
            work, most, take["noise"] = (self.own.take(name, steps, self.ranks) for name in ("least", "most", "noise"))
            take["work"] = work
            self._most.append(most)
        self._steps.append(steps[None])
        self._work.append(work)
        self._others.append(np.array(peers(most, is_lower=False)))
        by_host = self._by_host(work)
        at_most = by_host if most is work else self._by_host(most)
        others = others_medians(at_most) if len(self.hosts) > 1 else by_host
        self._host_ratios.append(work_ratios(by_host, others))
        self._top_row.append(work.argmax(axis=0)[None])
        self._job.append(_figures(take, most))

    def _by_host(self, work: F32) -> F32:
        """[g, T] the median of each host's ranks; NaN with one host."""
        if len(self.hosts) < 2:
            return np.full((len(self.hosts), work.shape[1]), np.nan, np.float32)
        counts = np.bincount(self.host_of, minlength=len(self.hosts))
        order, starts = np.argsort(self.host_of, kind="stable"), np.cumsum(counts) - counts
        medians = np.empty((len(self.hosts), work.shape[1]), np.float32)
        for count in np.unique(counts).tolist():  # hosts of one size together
            alike = np.flatnonzero(counts == count)
            medians[alike] = middles(work[order[starts[alike][:, None] + np.arange(count)]].swapaxes(1, 2))
        return medians


def _host_keys(run: Run, who: I64) -> list[tuple[str, int]]:
    """What tells the hosts of these ranks apart; the same for all ranks that no frame has come of."""
    return [(run.latest.host[rank], run.latest.node[rank]) for rank in who.tolist()]


def _with_record(run: Run, who: I64) -> I64:
    """Those of `who` that have told of a step before the last `_RECORD` ones, if most have; else all.

    The others have just come back. With them the steps that all have on record would be too few for a verdict on
    anybody, although the rest have long been compared.
    """
    newest = int(run.rings.last[who].min(initial=1 << 62))
    before = np.arange(max(newest - 2 * _RECORD, 0), max(newest - _RECORD, 0))
    if not who.size or run.rings.present(before[-1:], who).all():  # the usual case, for which one step is enough
        return who
    told = run.rings.present(before, who).any(axis=1)
    return who[told] if 2 * np.count_nonzero(told) > len(who) else who


def _figures(take: dict[str, F32], most: F32) -> Array:
    work, wait = take["work"].astype(np.float64), take["wait"].astype(np.float64)
    ordered = np.sort(np.array(take["work"].T, order="C"), axis=1)  # a quarter of what np.partition for three takes
    n = len(work)
    figures = {
        "duration": row_medians(take["duration"].T.astype(np.float64)),
        "typical": ordered[:, (n - 1) // 2],
        "mean": work.mean(axis=0),
        "top": ordered[:, n - 1],
        "second": ordered[:, max(n - 2, 0)],
        "transfer": take["exposed"].min(axis=0),
        "spread": wait.max(axis=0) - wait.min(axis=0),
        "samples": np.nansum(take["samples"], axis=0),
        "noise": take["noise"].max(axis=0) if "noise" in take else np.zeros(work.shape[1]),
    }
    if most is not take["work"]:
        figures |= _within_bounds(work, most.astype(np.float64))
    return np.array([figures[name] for name in JOB], np.float64)


def _within_bounds(work: Array, most: Array) -> dict[str, Array]:
    """Where work has bounds the others are at their most; nobody is then longer than the longest."""
    top, holder = work.max(axis=0), work.argmax(axis=0)
    others = most.copy()
    others[holder, np.arange(work.shape[1])] = 0.0
    bounded = np.minimum(most, top)
    return {
        "typical": np.sort(bounded, axis=0)[(len(work) - 1) // 2],
        "mean": bounded.mean(axis=0),
        "second": np.minimum(others.max(axis=0), top),
    }
