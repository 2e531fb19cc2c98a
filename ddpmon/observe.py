"""The Observer: one tick reads the store, updates the Run, diagnoses, and freezes a Snapshot.

It runs in one reader thread. A tick may block for as long as the store's patience; it never raises.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from msgspec.structs import force_setattr

from ddpmon import freeze, run_end
from ddpmon.diagnose.finding import Finding
from ddpmon.diagnose.judge import Judge
from ddpmon.diagnose.lost import lost_ranks
from ddpmon.diagnose.wording import clean
from ddpmon.run.model import Run
from ddpmon.schema import F, FrameError, HistoryFrame, NodeFrame, RankFrame, StepColumns, decode
from ddpmon.select_run import select_run
from ddpmon.snapshot import Link, RunState, Snapshot
from ddpmon.store.base import StoreSilent, StoreUnavailable, history_key, node_key, rank_key
from ddpmon.store.connect import Target, answers, connect, engine_of_environment, list_runs, parse_target
from ddpmon.store.discovery import discover
from ddpmon.store.private import squatted
from ddpmon.store.signed import CheckedStore, Checks, token_of_environment
from ddpmon.turns import AT_ONCE, HOST_TURNS, HOSTS_AT_ONCE, RANK_TURNS, Turns

_REOPEN_S = 5.0
_HALF_OPEN_S = 20.0
_SANE_OFFSET_S = (-2.0, 5.0)
_NEWS_S = 60.0
_SUCCESSOR_S = 2.0
_HISTORIES_AT_ONCE = 256
_NAMED = 16
_TAKEN = StepColumns()
_BEGINNING = 384  # bytes; longer than a run's id, and what else comes before `sent_at`


class Observer:
    """Follows one run, through its store's death and its restart.

    Args:
        target: a URL, or None for the newest run on this host, else for the newest in the store of DDPMON_STORE.

    Attributes:
        focus: the rank whose detail the next snapshot carries.

    Raises:
        TargetError: the target makes no sense.
    """

    def __init__(self, target: str | None) -> None:
        self.focus: int | None = None
        self._target = None if target is None else parse_target(target)
        self._engine = engine_of_environment() if target is None else None
        self._checks = Checks(token_of_environment())
        self._store: CheckedStore | None = None
        self._followed: Target | None = None  # what was opened last
        self._source = target or ""
        self._run: Run | None = None
        self._judge = Judge()
        self._link = Link("waiting", "looking for a run")
        self._ended: RunState | None = None
        self._read_at = 0.0
        self._silent_since: float | None = None
        self._next_open = 0.0
        self._next_look = 0.0
        self._passed_over = 0  # runs that are newer and were not believed
        self._findings: tuple[Finding, ...] = ()
        self._rank_turns, self._host_turns = Turns((), AT_ONCE, 1), Turns((), HOSTS_AT_ONCE, 1)
        self._seen: dict[str, bytes] = {}
        self._rejected: dict[str, int] = {}  # key -> hash of what could not be read there
        self._news, self._news_until = "", 0.0

    def tick(self) -> Snapshot:
        """Read the store and freeze what is known now."""
        try:
            if self._store is None and time.monotonic() >= self._next_open:
                self._open()
            if self._store is not None:
                self._read(self._store)
                self._stand()
                self._silent_since = None
        except StoreSilent as error:
            self._lose(str(error), silent=True)
        except StoreUnavailable as error:
            self._lose(str(error), silent=False)
        except FrameError as error:
            self._link = Link("gone" if self._run else "waiting", str(error))
            self._close_store()
        return self.refreeze()

    def refreeze(self) -> Snapshot:
        """Freeze again what is known, without reading."""
        now = time.monotonic()
        if self._run is None:
            return Snapshot(self._link, time.time(), now)
        return _freeze(self, self._run, now)

    def close(self) -> None:
        """Let go of the store."""
        self._close_store()

    @property
    def _lasting(self) -> bool:
        """Whether the store does not end with the run."""
        return self._followed is not None and self._followed.redis is not None

    def _stand(self) -> None:
        """The store answers: say whether the run lives, or is a memory that the store keeps."""
        run, now = self._run, time.monotonic()
        assert run is not None  # it has just been read
        ages = run.ages(now)
        over = run_end.is_over(run, ages)
        if over and self._lasting:
            self._ended, message = run_end.remembered(run, ages)
            self._link = Link("gone", message)
        else:
            self._link, self._ended = Link("live", self._news if now < self._news_until else ""), None
        if over and now >= self._next_look:
            self._next_look = now + _SUCCESSOR_S
            self._look_for_a_successor(run)

    def _look_for_a_successor(self, run: Run) -> None:
        """The run is over: where no particular one was asked for, go on to one that has started since."""
        newest = [found.run_id for found in discover()[:1]] if self._target is None else []
        if self._store is not None and self._followed is not None and self._followed.run_id is None:
            newest += list_runs(self._store)[-1:]
        if any(run_id != run.info.run_id for run_id in newest):
            self._close_store()

    def _open(self) -> None:
        """Find a run and connect to its store; without one, wait.

        Raises:
            StoreUnavailable: there is an address, but no store behind it.
            FrameError: the store's run cannot be read.
        """
        target = self._target or self._discovered()
        if target is None:
            if self._run is None:
                why = squatted() or "start one, or pass its address: tcp://host:port"
                self._link = Link("waiting", f"there is no run on this host now; {why}")
            elif self._ended is None:  # when its store fell silent, its process was still there
                raise StoreUnavailable("the run is no longer announced on this host")
            return
        store = connect(target, checks=self._checks)
        try:
            self._begin(store, target)
        except BaseException:
            store.close()
            raise
        self._store, self._source, self._followed = store, target.url, target

    def _discovered(self) -> Target | None:
        runs = discover()
        if not runs:
            return self._engine or (self._followed if self._lasting else None)
        return replace(parse_target(runs[0].url), run_id=runs[0].run_id)

    def _begin(self, store: CheckedStore, target: Target) -> None:
        """Read which run this is; a run that is not the one we know starts with a clean sheet."""
        known = self._run
        kept = known is not None and target.redis is not None and self._ended is None
        info, self._passed_over = select_run(store, target, known.info.run_id if known is not None and kept else None)
        if self._run is None or self._run.info.run_id != info.run_id:
            if self._run is not None:
                self._news = f"another run has started here: {clean(info.name)}; the previous one has ended"
                self._news_until = time.monotonic() + _NEWS_S
            self._run, self._judge = Run(info), Judge()
            self._rank_turns = Turns(range(info.world_size), AT_ONCE, RANK_TURNS)
            self._host_turns = Turns(info.node_keys, HOSTS_AT_ONCE, HOST_TURNS)
            self._seen.clear()
            self._rejected.clear()
            self._checks.begin()
            self._run.add_history(self._histories(store, info.world_size))

    def _histories(self, store: CheckedStore, ranks: int) -> Iterator[HistoryFrame]:
        """What all ranks remember, read in parts: together it may be a hundred megabytes."""
        for start in range(0, ranks, _HISTORIES_AT_ONCE):
            part = range(start, min(ranks, start + _HISTORIES_AT_ONCE))
            yield from self._all(store, history_key, part, HistoryFrame)

    def _in_question(self, run: Run) -> set[int]:
        """The ranks that are read at every tick: the reader's, and some of those that the findings name."""
        named = {rank for finding in self._findings[:_NAMED] for rank in finding.ranks[:_NAMED]}
        named |= {self.focus} if self.focus is not None else set()
        return {rank for rank in named if 0 <= rank < run.info.world_size}

    def _read(self, store: CheckedStore) -> None:
        run = self._run
        assert run is not None  # a store is only kept once its run has been read
        frames = self._all(store, rank_key, self._rank_turns.next(self._in_question(run)), RankFrame)
        nodes = self._all(store, node_key, self._host_turns.next(), NodeFrame)
        self._read_at = now = time.monotonic()
        run.refused = self._checks.refused.total()
        ages = _first_ages(run, frames, time.time(), one_clock=_has_one_clock(run))
        ages |= self._told_ages(store, rank_key, [f.rank for f in frames if run.ranks[f.rank] is None])
        run.add_ranks(frames, now, ages)
        for frame in frames:  # their steps are in the run's rings now; of thousands of ranks they would weigh
            force_setattr(frame, "steps", _TAKEN)
        hosts = self._told_ages(store, node_key, [node.node for node in nodes if node.node not in run.nodes])
        for node in nodes:
            run.add_node(node, now - hosts.get(node.node, 0.0))
        run.settle(now)
        if self._rank_turns.round:
            self._findings = self._judge(run, run.ages(now))

    def _told_ages(
        self, store: CheckedStore, key_of: Callable[[str, int], str], numbers: Sequence[int]
    ) -> dict[int, float]:
        """How old the frames of these ranks or hosts are, as far as the store can tell."""
        run = self._run
        if run is None or not numbers or not self._lasting:
            return {}
        ages = store.ages([key_of(run.info.run_id, number) for number in numbers])
        return {number: age for number, age in zip(numbers, ages, strict=True) if age is not None}

    def _all(
        self, store: CheckedStore, key_of: Callable[[str, int], str], numbers: Sequence[int], kind: type[F]
    ) -> list[F]:
        """The new frames of one kind that can be read; those that cannot are counted with the reason.

        A frame is new if its beginning, which holds its number and the time when it was sent, is not that of the last.
        """
        run = self._run
        assert run is not None
        run_id, seen = run.info.run_id, self._seen
        keys = [key_of(run_id, number) for number in numbers]
        frames: list[F] = []
        for number, key, data in zip(numbers, keys, store.get_many(keys), strict=True):
            if data is None or seen.get(key) == (beginning := data[:_BEGINNING]):
                continue
            if key in self._rejected and self._rejected[key] == hash(data):  # it stays there until it is overwritten
                continue
            try:
                frames.append(_of_key(decode(key, data, kind), key, number, run_id))
            except FrameError as error:
                self._rejected[key] = hash(data)
                run.reject(str(error)[:200])
            else:
                seen[key] = beginning
        return frames

    def _lose(self, reason: str, *, silent: bool) -> None:
        """The store does not answer, or has gone: keep the last picture and say which."""
        if silent and self._store is not None:
            self._link = Link("silent", f"{reason}: its host may be stopped or disconnected; ddpmon keeps trying")
            if self._is_half_open():
                self._close_store()
            return
        if silent:
            self._next_open = time.monotonic() + _REOPEN_S
        self._close_store()
        if self._run is None:
            self._link = Link("waiting", reason)
        elif self._lasting:
            self._link = Link("silent", f"{reason}; the run does not depend on it; ddpmon keeps trying")
        elif run_end.still_announced(self._run):
            self._link = Link("silent", f"{reason}; its process still runs, so ddpmon keeps trying")
        elif self._ended is None:
            self._ended, message = run_end.store_gone(self._run, reason)
            self._link = Link("gone", message)

    def _is_half_open(self) -> bool:
        """Whether the store has been silent on this connection for long, and answers on another one."""
        now = time.monotonic()
        if self._silent_since is None:
            self._silent_since = now
        if now - self._silent_since < _HALF_OPEN_S or self._followed is None:
            return False
        self._silent_since = now
        return answers(self._followed)

    def _close_store(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            store.close()


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


def _freeze(observer: Observer, run: Run, now: float) -> Snapshot:
    ages = run.ages(now)
    lost = lost_ranks(run, run.ages(observer._read_at))  # while the store is silent, the ranks are not to blame
    told = ages * np.nan if observer._link.state == "silent" else ages  # steps may be finished that nobody tells
    ranks = freeze.freeze_ranks(run, ages, lost)
    alive = run.taking_part()
    alive[lost] = False
    if not alive.any():  # then the last picture is of all
        alive = run.taking_part()
    return Snapshot(
        link=observer._link,
        taken_at=time.time(),
        taken_monotonic=now,
        run=freeze.freeze_run(run, told, lost, observer._source, ended=observer._ended),
        coverage=freeze.freeze_coverage(run, ages, now),
        job=freeze.freeze_job(run, ranks, alive, observer._findings),
        ranks=ranks,
        heat=freeze.freeze_heat(run),
        series=freeze.freeze_series(run),
        nodes=freeze.freeze_nodes(run, now),
        findings=observer._findings,
        notices=_notices(run, observer._checks, observer._passed_over),
        detail=None if observer.focus is None else freeze.freeze_detail(run, observer.focus),
    )


def _notices(run: Run, checks: Checks, passed_over: int) -> tuple[str, ...]:
    """What was set aside, and why."""
    said = checks.notices()
    if passed_over:
        said.append(f"{passed_over} newer run{'s are' if passed_over > 1 else ' is'} not signed with this DDPMON_TOKEN")
    said += [
        f"{'once' if count == 1 else f'{count:,} times'}: {reason}" for reason, count in run.rejected.most_common(5)
    ]
    noted = np.flatnonzero(run.standing.noted)[:5].tolist()
    said += [f"rank {rank}: {run.states[rank].frame.notes[-1]}" for rank in noted]
    if run.standing.thinned.any():
        said.append("steps are faster than they can be sent: only every second, fourth, ... step is kept")
    if run.rings.set_aside:
        said.append(f"{run.rings.set_aside} step records were set aside: their durations are impossible")
    return tuple(said)
