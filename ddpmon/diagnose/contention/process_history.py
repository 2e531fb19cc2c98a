"""Every rank's process metrics over time, the last seconds whole and the last minutes thinned; memory that leaks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ddpmon.diagnose.contention_policy import GROWTH, HISTORY
from ddpmon.diagnose.late_policy import SUSTAINED
from ddpmon.figures import PLACE
from ddpmon.run.medians import row_medians
from ddpmon.run.model import LOST_S, Run
from ddpmon.schema import NodeFrame

COLUMNS = ("at", "step", "queue", "queue_all", "throttled", "rss", "room", "kills", "full", "mhz")
_FIGURES = ("step", "runqueue_pct", "runqueue_all_pct", "throttled_pct", "rss_bytes", "memory_limit", "oom_kills",
            "memory_used", "cpu_mhz")  # fmt: skip
_PLACES = [PLACE[name] for name in _FIGURES]  # as they come, what is made of them is in `COLUMNS` from "step" on
_LONG = ("at", "step", "queue", "throttled", "rss", "room")  # the columns that are kept for minutes
_RECENT = (*_LONG, "mhz")  # the columns that are kept for seconds; of the others only the newest round is asked for
_LONG_PLACES, _RECENT_PLACES = ([COLUMNS.index(name) for name in names] for names in (_LONG, _RECENT))
_ASKED = 64  # ranks whose median pace stands for that of all; it bounds the time, and is chosen, not measured
_ALL = slice(None)
Floats = NDArray[np.float64]


class ProcessHistory:
    """Rounds of a second: one row of all ranks each.

    Attributes:
        now: column -> [world], NaN where unknown.
        rounds: how many there have been.
    """

    def __init__(self) -> None:
        self._begin(0)

    def _begin(self, world: int) -> None:
        # All ranks' values of a column lie beside each other, since whole columns are what is asked for.
        self._rows = np.full((len(COLUMNS), world), np.nan).T
        self._recent = np.full((HISTORY.recent_rounds, len(_RECENT), world), np.nan).swapaxes(1, 2)
        self._long = np.full((HISTORY.long_rows, len(_LONG), world), np.nan, np.float32).swapaxes(1, 2)
        self._began = float("nan")
        self._last = -np.inf
        self._restarts = np.zeros(world, np.int64)
        self.rounds = 0
        self.now: dict[str, Floats] = {name: np.full(world, np.nan) for name in COLUMNS}

    def update(self, run: Run, room: Mapping[int, float], node_of: NDArray[np.int64]) -> bool:
        """Take a round, if a second has gone by; `room` is the memory left on each host, `node_of` [world] its place.

        Args:
            run: the run.
            room: node -> bytes of its memory that are not used.
            node_of: [world] the node of each rank, -1 where unknown.
        """
        if len(self.now["at"]) != len(run.ranks):
            self._begin(len(run.ranks))
        self._forget_restarted(run)
        news = np.flatnonzero(run.latest.known & (run.latest.heard_at != self._rows[:, 0]))
        if news.size:
            self._rows[news, 0] = run.latest.heard_at[news]
            self._rows[news, 1:] = run.latest.figures[:, _PLACES][news]
        table = self._rows.copy("K")
        newest = float(np.fmax.reduce(table[:, 0], initial=-np.inf))
        if newest < self._last + HISTORY.round_gap_s:
            return False
        self._last = newest
        if np.isnan(self._began):
            self._began = newest
        table[table[:, 0] < newest - LOST_S] = np.nan
        table[:, 0] -= self._began
        limit, used = table[:, 6].copy(), table[:, 8].copy()
        table[:, 6] = np.fmin(np.maximum(limit - used, 0), _room(room, node_of))
        with np.errstate(invalid="ignore", divide="ignore"):
            table[:, 8] = np.where(limit > 0, used / limit, np.nan)
        self._take(table)
        return True

    def _forget_restarted(self, run: Run) -> None:
        """Forget the rounds of ranks that have restarted since the last update: they belong to other processes."""
        ranks = np.flatnonzero(run.latest.restarts > self._restarts)
        if ranks.size:
            self._recent[:, ranks], self._long[:, ranks] = np.nan, np.nan
            self._restarts[ranks] = run.latest.restarts[ranks]

    def _take(self, table: Floats) -> None:
        self._recent[self.rounds % HISTORY.recent_rounds] = table[:, _RECENT_PLACES]
        if self.rounds % HISTORY.stride_rounds == 0:
            self._long[self.rounds // HISTORY.stride_rounds % HISTORY.long_rows] = table[:, _LONG_PLACES]
        self.rounds += 1
        self.now = {name: table[:, place] for place, name in enumerate(COLUMNS)}

    def recent(self, name: str, count: int = HISTORY.recent_rounds) -> Floats:
        """[n, world] the last rounds, oldest first, at most `count`; `name` is one of `_RECENT`."""
        return self._recent[self._order(count), :, _RECENT.index(name)]

    def _order(self, count: int) -> NDArray[np.int64]:
        """The places of the last rounds, oldest first."""
        kept = HISTORY.recent_rounds
        return (self.rounds + np.arange(-min(count, self.rounds, kept), 0)) % kept

    def long(self, name: str) -> NDArray[np.float32]:
        """[n, world] the rounds of the last minutes that are kept, oldest first; `name` is one of `_LONG`."""
        taken, kept = -(-self.rounds // HISTORY.stride_rounds), HISTORY.long_rows
        order = (taken + np.arange(-min(taken, kept), 0)) % kept
        return self._long[order, :, _LONG.index(name)]

    def mean(self, name: str, who: NDArray[np.int64], since: float) -> Floats:
        """[len(who)] means of the last rounds, of those after step `since` where there are any."""
        at = (self._order(HISTORY.recent_rounds)[:, None], who)
        values, steps = self._recent[(*at, _RECENT.index(name))], self._recent[(*at, _RECENT.index("step"))]
        after = np.where(steps > since, values, np.nan)
        return _means(np.where(np.isnan(after).all(axis=0), values, after))

    def usual(self, name: str, who: NDArray[np.int64] | slice = _ALL, until: float = np.inf) -> Floats:
        """[who] medians of the rounds that were over at step `until`, NaN where there is none on record.

        Of these only some, whose steps were fastest: a trouble that has been is no measure for the next.
        """
        steps = self.long("step")[:, who]
        some = slice(None, None, max(1, steps.shape[1] // _ASKED))
        before = steps <= until
        with np.errstate(invalid="ignore", divide="ignore"):
            pace = row_medians(np.diff(self.long("at")[:, who][:, some], axis=0) / np.diff(steps[:, some], axis=0))
        pace = np.where(before.any(axis=1), np.concatenate([pace[:1], pace]) if len(pace) else 0.0, np.nan)
        known = np.sort(pace[np.isfinite(pace)])
        rows = before & (pace <= known[int(HISTORY.fastest_share * len(known))])[:, None] if len(known) else before
        values = np.where(np.where(rows.any(axis=0), rows, before), self.long(name)[:, who], np.float32(np.nan))
        return row_medians(values.T.astype(np.float64))

    @property
    def at_long(self) -> bool:
        """Whether the last round was one of those kept for minutes."""
        return self.rounds % HISTORY.stride_rounds == 1


def free_memory(frame: NodeFrame) -> float:
    """Bytes of the host's memory that are not used, NaN where unknown."""
    used, total = frame.figures.memory_used, frame.figures.memory_total
    return float(max(0, total - used)) if used is not None and total else float("nan")


def _room(room: Mapping[int, float], node_of: NDArray[np.int64]) -> Floats:
    left = np.full(int(node_of.max(initial=-1)) + 2, np.nan)
    for node, free in room.items():
        if node < len(left) - 1:
            left[node] = free
    return left[node_of]


def _means(values: Floats) -> Floats:
    known = ~np.isnan(values)
    counts = known.sum(axis=0)
    return np.where(counts > 0, np.where(known, values, 0).sum(axis=0) / np.maximum(counts, 1), np.nan)


class Leak(Struct, frozen=True):
    """One rank's growth: bytes a second, and the seconds until nothing is left at what the machine loses."""

    bytes_s: float
    left_s: float


class Leaks:
    """Follows all ranks; a rise must show both in the rank and in what is left, which page cache does not touch."""

    def __init__(self) -> None:
        self._slow: dict[int, Leak] = {}

    def update(self, figures: ProcessHistory) -> dict[int, Leak]:
        """The ranks that grow, after a new round."""
        if figures.at_long:
            self._slow = _slow(figures)
        return {**self._slow, **_quick(figures)}


def _quick(figures: ProcessHistory) -> dict[int, Leak]:
    """Growth in each of the last seconds that leaves little time."""
    rounds = GROWTH.quick_rounds
    if figures.rounds < rounds:
        return {}
    rss, room = figures.recent("rss", rounds), figures.recent("room", rounds)
    with np.errstate(invalid="ignore"):
        who = np.flatnonzero((rss[-1] - rss[0] >= GROWTH.quick_rise_bytes) & (room[0] > room[-1]))
    if not who.size:
        return {}
    at, step = figures.recent("at", rounds)[:, who], figures.recent("step", rounds)[0, who]
    rss, room = rss[:, who], room[:, who]
    steady = (
        (np.diff(rss, axis=0) > 0).all(axis=0)
        & (np.diff(room, axis=0) < 0).all(axis=0)
        & (step >= SUSTAINED.warm_up_steps)
    )
    return _leaks(who[steady], at[:, steady], rss[:, steady], room[:, steady], GROWTH.quick_left_s)


def _slow(figures: ProcessHistory) -> dict[int, Leak]:
    """Growth over minutes, alike in each part of them, that fills the memory soon."""
    if figures.rounds < GROWTH.slow_rows * HISTORY.stride_rounds:
        return {}
    rss, room = (figures.long(name).astype(np.float64) for name in ("rss", "room"))
    at, step = figures.long("at").astype(np.float64), figures.long("step")
    first = int(np.argmax((step >= SUSTAINED.warm_up_steps).any(axis=1)))
    at, rss, room = at[first:], rss[first:], room[first:]
    if len(at) < GROWTH.slow_rows:
        return {}
    with np.errstate(invalid="ignore"):
        rises = (rss[-1] - rss[0] >= GROWTH.slow_rise_bytes) & (room[0] > room[-1])
        who = np.flatnonzero(rises & (step[first] >= SUSTAINED.warm_up_steps))
    at, rss, room = at[:, who], rss[:, who], room[:, who]
    steady = _evenly(rss) & _evenly(-room)
    return _leaks(who[steady], at[:, steady], rss[:, steady], room[:, steady], GROWTH.slow_left_s)


def _evenly(values: Floats) -> NDArray[np.bool_]:
    """Whether it rises from part to part, each time by much of the mean rise."""
    parts = np.array([part.mean(axis=0) for part in np.array_split(values, GROWTH.slow_parts)])
    rises = np.diff(parts, axis=0)
    even = rises >= GROWTH.least_rise_share * rises.mean(axis=0)
    found: NDArray[np.bool_] = (rises > 0).all(axis=0) & even.all(axis=0)
    return found


def _leaks(who: NDArray[np.int64], at: Floats, rss: Floats, room: Floats, most_s: float) -> dict[int, Leak]:
    seconds = np.maximum(at[-1] - at[0], 1e-3)
    grows, lost = (rss[-1] - rss[0]) / seconds, (room[0] - room[-1]) / seconds
    left = room[-1] / np.maximum(lost, 1e-9)
    return {
        int(rank): Leak(float(grows[place]), float(left[place]))
        for place, rank in enumerate(who)
        if left[place] <= most_s
    }
