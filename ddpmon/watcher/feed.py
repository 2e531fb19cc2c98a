"""What a watcher reads of one run: which keys a tick asks for, and how their frames come into the `Run`.

A tick reads the host frames first, and whole frames only of ranks that no new host frame tells of, or of which figures
do not say it all. Of many of these, it reads a part in turn, so that it stays cheap. What the ranks remember is read
once: before anything else, or of many ranks behind the newest frames, over some ticks.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from msgspec.structs import force_setattr
from numpy.typing import NDArray

from ddpmon.codec import decode
from ddpmon.run.host_rows import HostRows, gather
from ddpmon.run.model import LOST_S, Run
from ddpmon.schema import (
    F,
    FrameError,
    HistoryFrame,
    HostFrame,
    NodeFrame,
    RankFrame,
    RunInfo,
    StepColumns,
)
from ddpmon.store.base import MOST_ANSWER_BYTES, MOST_VALUE_BYTES, history_key, host_key, node_key, rank_key
from ddpmon.store.signed import CheckedStore
from ddpmon.watcher.pace import Pace
from ddpmon.watcher.tap import Tap

RANKS_AT_ONCE = 2048  # that every tick reads
HOSTS_AT_ONCE = 96
# After which a rank that a host frame reported is read itself: they come once a second. Chosen, not measured.
_TOLD_S = 0.9
# After which a rank that brought nothing at the last turn is read before the next: its host's writer may have died.
_OVERDUE_S = 1.5  # more than the second between two of its frames. Chosen, not measured.
# Ticks at most until each has been read: no rank and no host may look silent because it was not asked, which a view
# says of a host after `LATE_HOST_S`.
RANK_TURNS, HOST_TURNS = 2, 6
_KEYS_AT_ONCE = 64  # that one answer brings: of frames with bucket detail, 50 kB each, 3 MB
_LARGE_AT_ONCE = MOST_ANSWER_BYTES // MOST_VALUE_BYTES  # of host frames (162 kB measured) and histories (to 0.4 MB)
_TOGETHER_BYTES = 1 << 20  # of host frames that are taken in as one table; those of 512 hosts have 4 MB
_HISTORIES_FIRST = 256  # ranks, whose histories take a quarter of a second: of more, the first picture does not wait
_HISTORIES_S = 0.5  # of a tick, so that pictures go on coming once a second. Chosen, not measured.
_SANE_OFFSET_S = (-2.0, 5.0)  # a host whose newest frame is so far from our clock has the same clock
_TAKEN = StepColumns()
_BEGINNING = 384  # bytes; longer than a run's id, and what else comes before `sent_at`


class RoundRobin:
    """Deals numbers out over a few ticks.

    Args:
        numbers: of the ranks or hosts.
        at_once: how many a tick may read.
        most: turns at most, however many numbers there are.
    """

    def __init__(self, numbers: Sequence[int], at_once: int, most: int) -> None:
        self._turns = min(most, max(1, -(-len(numbers) // at_once)))
        self._parts = [numbers[turn :: self._turns] for turn in range(self._turns)]
        self._all = numbers
        self._turn = -1

    @property
    def is_complete(self) -> bool:
        """Whether every number has been dealt since this was true last."""
        return self._turn % self._turns == 0

    def next(self, also: int | None = None) -> list[int]:
        """The numbers to ask now, ascending: the first time all, then a part in turn, and `also`."""
        self._turn += 1
        if self._turn == 0 or self._turns == 1:
            return list(self._all)
        part = self._parts[self._turn % self._turns]
        return list(part) if also is None else sorted({*part, also})


class Feed:
    """Reads the frames of one run into its `Run`; belongs to the watcher's reader thread.

    Args:
        info: what the run says of itself.
        tap: what else is given all that is read.

    Attributes:
        run: all that has been read.
        read_at: when it was read last, on the monotonic clock in seconds.
        is_complete: whether every rank has been read since this was true last; of many ranks as often as `Pace` says.
            It is false until all histories have been read: a verdict would not know the past.
        unread_histories: the ranks of which no history has been read yet.
    """

    def __init__(self, info: RunInfo, tap: Tap | None = None) -> None:
        self.run = Run(info)
        self.read_at = 0.0
        self._tap = tap
        if tap is not None:
            tap.begin(self.run)
        self._ranks = RoundRobin(range(info.world_size), RANKS_AT_ONCE, RANK_TURNS)
        self._hosts = RoundRobin(info.node_keys, HOSTS_AT_ONCE, HOST_TURNS)
        self._seen: dict[str, int] = {}  # key -> hash of the beginning of what was read there last
        self._rejected: dict[str, int] = {}  # key -> hash of what could not be read there
        self._told_at = np.full(info.world_size, -np.inf)  # when a host frame brought new figures of each rank
        self._asked_at = np.full(info.world_size, -np.inf)  # when each rank was read last, new or not
        self._writers: set[int] = set()  # whose host frames have been seen
        self._turned_at = np.inf  # when all host frames were read last
        self._ended = self._ticks = 0
        self._pace = Pace() if info.world_size > RANKS_AT_ONCE else None
        self._is_turn = True
        self.unread_histories = info.world_size
        self.is_complete = False

    @property
    def reads_in_parts(self) -> bool:
        """Whether the run has so many ranks that only some ticks read all of them."""
        return self._pace is not None

    @property
    def all_read_since(self) -> float:
        """The time since which every rank has been read, on the monotonic clock; -inf before all were read once."""
        return float(self._asked_at.min())

    def read(self, store: CheckedStore, focus: int | None = None, *, told_ages: bool) -> None:
        """Read the newest frames of the ranks and hosts whose turn it is.

        Args:
            store: the run's.
            focus: a rank that is read at every tick; None for none.
            told_ages: whether the store knows how old a frame is that this watcher sees for the first time.

        Raises:
            StoreUnavailable: the store does not answer, or it has ended.
        """
        run, is_usual = self.run, not self.unread_histories
        if self._ticks or run.info.world_size <= _HISTORIES_FIRST:
            self._read_histories(store)
        self._ticks += 1
        self._is_turn = self._pace is None or self._pace.is_turn(counts=is_usual)
        writers = self._due_writers(focus)
        self.read_at = time.monotonic()
        waiting = [*self._host_rows(store, writers)]
        self._take_whole(store, self._wanted(waiting, writers, focus), told_ages=told_ages)
        for rows in waiting:
            self._add_rows(rows)
        if new := _writers(run) - self._writers:
            for rows in self._host_rows(store, new):
                self._add_rows(rows)
        self._writers = _writers(run)
        if int(run.latest.ended.sum()) > self._ended:  # others may have ended, too, and their writer with them
            self._take_whole(store, np.flatnonzero(~run.latest.ended).tolist(), told_ages=told_ages)
        self._ended = int(run.latest.ended.sum())
        self._take_nodes(store, told_ages=told_ages)
        run.refused = store.checks.refused.total()
        if self.unread_histories:
            self.is_complete = False
        else:
            run.settle(self.read_at)

    def _host_rows(self, store: CheckedStore, writers: Iterable[int]) -> Iterator[HostRows]:
        """Take in what the new host frames of these ranks say; those that cannot be true are counted.

        Yields:
            Those with figures that belong to whole frames which must be read first; the others are in the run by then.
        """
        run = self.run
        for frames in self._host_frames(store, [*writers]):
            rows, bad = gather(frames, lambda writer: writer not in self._writers, run.info.world_size)
            for place in bad:
                key = host_key(run.info.run_id, frames[place].rank)
                run.reject(f"{key}: rows with figures or ranks out of their bounds"[:200])
            self._told_at[rows.ranks[rows.column("seq") > run.latest.column("seq")[rows.ranks]]] = self.read_at
            if run.missing_whole(rows).any():
                yield rows
            else:
                self._add_rows(rows)

    def _add_rows(self, rows: HostRows) -> None:
        if self._tap is not None:
            self._tap.rows(self.run, rows)
        self.run.add_rows(rows, self.read_at)

    def _host_frames(self, store: CheckedStore, writers: Sequence[int]) -> Iterator[list[HostFrame]]:
        """The new host frames of these ranks: as many together as take no more memory than one answer may."""
        frames: list[HostFrame] = []
        size = 0
        for start in range(0, len(writers), _LARGE_AT_ONCE):
            part = self._new(store, host_key, writers[start : start + _LARGE_AT_ONCE], HostFrame)
            frames += part
            size += sum(len(frame.figures) + sum(len(rows.values) for rows in frame.steps) for frame in part)
            if size >= _TOGETHER_BYTES:
                yield frames
                frames, size = [], 0
        if frames:
            yield frames

    def _due_writers(self, focus: int | None) -> list[int]:
        """The ranks whose host frames are read now: all, of many ranks in turns, and between these that of `focus`.

        All at once, so that what is drawn of all of them is worked out in turns, too.
        """
        known = _writers(self.run)
        if self._is_turn:
            self._turned_at = time.monotonic()
        else:
            known &= set() if focus is None else {int(self.run.latest.writer[focus])}
        return sorted(known)

    def _wanted(self, waiting: Sequence[HostRows], writers: Sequence[int], focus: int | None) -> list[int]:
        """The ranks whose whole frames are read now.

        Rank 0 is among them: it may host the store, and then its end is that of the store.

        Args:
            waiting: what new host frames say that belongs to whole frames which are not known.
            writers: the ranks whose host frames have been read just now.
            focus: a rank that is read at every tick; None for none.
        """
        writer = self.run.latest.writer
        is_carried = np.isin(writer, writers)
        self._asked_at[is_carried] = self.read_at
        due = (self.read_at - self._told_at > _TOLD_S) & (is_carried | (writer < 0))
        due |= self._overdue()
        for rows in waiting:
            due[rows.ranks[self.run.missing_whole(rows)]] = True
        due[0] = True
        wanted: list[int] = np.flatnonzero(due).tolist()
        if len(wanted) <= RANKS_AT_ONCE:
            self.is_complete = self._is_turn
        else:
            wanted = [rank for rank in self._ranks.next(focus) if due[rank]]
            self.is_complete = self._ranks.is_complete
        self._asked_at[wanted] = self.read_at
        return wanted

    def _overdue(self) -> NDArray[np.bool_]:
        """[world] the ranks that brought nothing new at the last turn, and have not ended or been lost."""
        latest, silent_s = self.run.latest, self.run.ages(self.read_at)
        is_due = (silent_s > _OVERDUE_S) & (silent_s <= LOST_S)
        brought = np.fmax(latest.heard_at, self._told_at)  # what a host frame has told may wait for a whole frame
        found: NDArray[np.bool_] = is_due & (brought < self._turned_at) & ~latest.ended
        return found

    def _take_whole(self, store: CheckedStore, ranks: Sequence[int], *, told_ages: bool) -> None:
        """Read the whole frames of these ranks."""
        for start in range(0, len(ranks), _KEYS_AT_ONCE):
            self._take_part(store, ranks[start : start + _KEYS_AT_ONCE], told_ages=told_ages)

    def _take_part(self, store: CheckedStore, ranks: Sequence[int], *, told_ages: bool) -> None:
        run = self.run
        frames = self._new(store, rank_key, ranks, RankFrame)
        then = time.time() - (time.monotonic() - self.read_at)  # what was asked then may have come seconds later
        ages = _first_ages(run, frames, then, one_clock=_has_one_clock(run))
        if told_ages:
            ages |= self._ages(store, rank_key, [frame.rank for frame in frames if run.ranks[frame.rank] is None])
        if self._tap is not None:
            self._tap.ranks(run, frames, ages)
        run.add_ranks(frames, self.read_at, ages)
        for frame in frames:  # their steps and buckets are in the run by now: do not keep them twice
            force_setattr(frame, "steps", _TAKEN)
            force_setattr(frame, "buckets", None)

    def _take_nodes(self, store: CheckedStore, *, told_ages: bool) -> None:
        """Read the hosts whose turn it is."""
        run = self.run
        nodes = self._new(store, node_key, self._hosts.next(), NodeFrame)
        ages: dict[int, float] = {}
        if told_ages:
            ages = self._ages(store, node_key, [node.node for node in nodes if node.node not in run.nodes])
        if self._tap is not None:
            self._tap.nodes(run, nodes, ages)
        for node in nodes:
            run.add_node(node, self.read_at - ages.get(node.node, 0.0))

    def _read_histories(self, store: CheckedStore) -> None:
        """Read what ranks remember of the time before this watcher, as many as one tick has time for.

        They are read in parts, for together they may be a hundred megabytes.
        """
        until, world = time.monotonic() + _HISTORIES_S, self.run.info.world_size
        while self.unread_histories:
            first = world - self.unread_histories
            end = min(world, first + _HISTORIES_FIRST)
            parts = (range(start, min(end, start + _LARGE_AT_ONCE)) for start in range(first, end, _LARGE_AT_ONCE))
            frames = [frame for part in parts for frame in self._new(store, history_key, part, HistoryFrame)]
            self.unread_histories = world - end
            if self._tap is not None:
                self._tap.histories(self.run, frames, are_last=not self.unread_histories)
            self.run.add_history(frames, are_last=not self.unread_histories)
            if world > _HISTORIES_FIRST and time.monotonic() >= until:
                return

    def _ages(self, store: CheckedStore, key_of: Callable[[str, int], str], numbers: Sequence[int]) -> dict[int, float]:
        """How old the frames of these ranks or hosts are, as far as the store can tell."""
        if not numbers:
            return {}
        ages = store.ages([key_of(self.run.info.run_id, number) for number in numbers])
        return {number: age for number, age in zip(numbers, ages, strict=True) if age is not None}

    def _new(
        self, store: CheckedStore, key_of: Callable[[str, int], str], numbers: Sequence[int], kind: type[F]
    ) -> list[F]:
        """The new frames of one kind that can be read; those that cannot are counted with the reason.

        A frame is new if its beginning, which holds its number and the time when it was sent, is not that of the last.
        """
        run_id, seen = self.run.info.run_id, self._seen
        keys = [key_of(run_id, number) for number in numbers]
        frames: list[F] = []
        fresh: dict[str, int] = {}
        for number, key, data in zip(numbers, keys, _values(store, keys), strict=True):
            if data is None or seen.get(key) == (beginning := hash(data[:_BEGINNING])):
                continue
            if key in self._rejected and self._rejected[key] == hash(data):  # it stays there until it is overwritten
                continue
            try:
                frames.append(_of_key(decode(key, data, kind), key, number, run_id))
            except FrameError as error:
                self._rejected[key] = hash(data)
                self.run.reject(str(error)[:200])
            else:
                fresh[key] = beginning
        seen |= fresh
        return frames


def _values(store: CheckedStore, keys: Sequence[str]) -> Iterator[bytes | None]:
    """The values of `keys`, read in parts; each is let go as soon as it is used: together they may be large."""
    for start in range(0, len(keys), _KEYS_AT_ONCE):
        values = store.get_many(keys[start : start + _KEYS_AT_ONCE])
        values.reverse()
        while values:
            yield values.pop()


def _writers(run: Run) -> set[int]:
    """The ranks whose host frames carry others, as those say."""
    writer = run.latest.writer
    count = np.bincount(writer[(writer >= 0) & (writer < run.info.world_size)])  # a fourth of the time of `np.unique`
    return {*np.flatnonzero(count).tolist()}


def _of_key(frame: F, key: str, number: int, run_id: str) -> F:
    """The frame, if it is the one that its key promises.

    Raises:
        FrameError: it is of another run, rank or host.
    """
    own = frame.node if isinstance(frame, NodeFrame) else getattr(frame, "rank", number)
    if frame.run_id != run_id or own != number:
        raise FrameError(f"{key}: a frame of another run, rank or host")
    return frame


def _has_one_clock(run: Run) -> bool:
    """Whether all frames are written on this very host, whatever hosts they name: those of a simulation here."""
    return "simulated" in run.info.versions and run.info.host == socket.gethostname()


def _first_ages(run: Run, frames: list[RankFrame], wall: float, *, one_clock: bool) -> dict[int, float]:
    """How old frames are that this watcher sees for the first time, in seconds.

    Later ages are counted on the watcher's own clock. Here a rank is compared with the newest word from its own host,
    and with our wall clock only where that host's clock is plainly ours: all of them with `one_clock`.
    """
    if len(run.states) == len(run.ranks):
        return {}
    first = [frame for frame in frames if run.ranks[frame.rank] is None]
    newest: dict[str, float] = {}
    for frame in first:
        newest[frame.host] = max(newest.get(frame.host, -np.inf), frame.sent_at)
    ages = {}
    for frame in first:
        offset = wall - newest[frame.host]
        ours = one_clock or frame.host == socket.gethostname() or _SANE_OFFSET_S[0] <= offset <= _SANE_OFFSET_S[1]
        ages[frame.rank] = max(0.0, (wall if ours else newest[frame.host]) - frame.sent_at)
    return ages
