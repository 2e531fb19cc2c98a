"""One publishing process: its ranks' frames, once a second each, evenly spread over the second.

Their histories go out every five seconds, whatever a step takes.
"""

from __future__ import annotations

import os
import signal
import time
from multiprocessing.connection import Connection

import msgspec
import numpy as np

from ddpmon.codec import encode
from ddpmon.schema import HostFrame
from ddpmon.simulate.host_writers import HostWriters
from ddpmon.simulate.opening import name_run, open_store
from ddpmon.simulate.plan import Plan
from ddpmon.simulate.rank_frames import Frames
from ddpmon.simulate.scenarios import scenario_of
from ddpmon.store.base import Store, StoreUnavailable, history_key, host_key, node_key, rank_key
from ddpmon.store.connect import Target

_SLOTS = 20  # a second; each holds a part of the ranks
_HISTORY_EVERY_S = 5
_NAME_EVERY_S = 5.0


class Account(msgspec.Struct):
    """What a process has published: frames and bytes by kind, ranks' seconds that it missed, CPU seconds."""

    rank_frames: int = 0
    history_frames: int = 0
    host_frames: int = 0
    node_frames: int = 0
    bytes: int = 0
    missed: int = 0
    cpu_s: float = 0.0
    error: str = ""

    def __add__(self, other: Account) -> Account:
        *mine, error = msgspec.structs.astuple(self)
        *its, its_error = msgspec.structs.astuple(other)
        total = Account(*(a + b for a, b in zip(mine, its, strict=True)))
        total.error = error or its_error
        return total


def work(plan: Plan, place: int, target: Target, run_id: str, info: bytes, report: Connection) -> None:
    """Publish every `processes`-th host's worth of ranks until told to end, then say what was done."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is told, and tells us
    account = Account()
    try:
        own = np.array_split(np.arange(plan.ranks), _bounds(plan))[place]
        publisher = Publisher(plan, own, target, run_id, info, account)
        report.send("ready")
        publisher.go(report.recv(), report)
    except StoreUnavailable as error:
        account.error = str(error)
    except (EOFError, OSError):
        return  # the parent has ended
    account.cpu_s = time.process_time()
    report.send(account)


def _bounds(plan: Plan) -> list[int]:
    """Where the ranks of one process end and those of the next begin: at a host's border where there are enough."""
    hosts = plan.nodes >= plan.processes
    parts = np.array_split(np.arange(plan.nodes if hosts else plan.ranks), plan.processes)
    ends: list[int] = np.cumsum([len(part) for part in parts])[:-1].tolist()
    return [end * plan.per_host for end in ends] if hosts else ends


class Publisher:
    """Puts frames into the store, slot by slot; who publishes rank 0's also says again which run it is.

    Args:
        plan: the run.
        own: the ranks, ascending.
        target: the store. A Redis server that goes away may come back, with nothing in it.
        run_id: the run's id there. info: its RunInfo, encoded.
        account: takes down what is done.
    """

    def __init__(self, plan: Plan, own: np.ndarray, target: Target, run_id: str, info: bytes, account: Account) -> None:
        self._frames = Frames(plan, scenario_of(plan), run_id, own)
        self._writers = HostWriters(plan, self._frames, own)
        self._slot_of = own // plan.per_host % _SLOTS  # the ranks of a host speak together
        self._run, self._own, self._count, self._account = run_id, own, len(own), account
        self._info = info if 0 in own else b""
        self._named_until = 0.0
        self._target = target
        self._store: Store | None = open_store(target)
        self._parent = os.getppid()

    def go(self, began: float, parent: Connection) -> None:
        """Publish from `began` (Unix time) until the parent says a word; at the end every rank has finished."""
        slot = 0
        while not parent.poll() and os.getppid() == self._parent:
            wait = began + slot / _SLOTS - time.time()
            if wait > 0:
                parent.poll(wait)
            elif -wait > 1.0:  # a whole second too late: these ranks' frames are not sent at all
                self._account.missed += len(self._places(slot))
                slot += 1
                continue
            seconds = time.time() - began
            if wait <= 0 or not parent.poll():
                self._try_to_publish(slot, max(0.0, seconds))
            slot += 1
        everybody = np.arange(self._count)
        self._frames.reach(time.time() - began)
        for frame in self._frames.ranks(everybody, time.time() - began + 1, "finished"):
            self._put(rank_key(self._run, frame.rank), encode(frame))
        self._drop()

    def _try_to_publish(self, slot: int, seconds: float) -> None:
        """Publish, if the store is there; a Redis server is tried again at the next slot.

        Raises:
            StoreUnavailable: a run's own store has ended; it does not come back.
        """
        try:
            self._publish(slot, seconds)
        except StoreUnavailable:
            if self._target.redis is None:
                raise
            self._drop()
            self._named_until = 0.0
            self._account.missed += len(self._places(slot))

    def _places(self, slot: int) -> np.ndarray:
        return np.flatnonzero(self._slot_of == slot % _SLOTS)

    def _publish(self, slot: int, seconds: float) -> None:
        places, frames, account = self._places(slot), self._frames, self._account
        frames.reach(seconds)
        self._name(seconds)
        due = places[(places + slot // _SLOTS) % _HISTORY_EVERY_S == 0] if slot >= _SLOTS else places
        due = np.union1d(due, places[frames.just_back(places, seconds)])
        for frame in self._writers.turn(places, seconds, {*self._own[due].tolist()}):
            if isinstance(frame, HostFrame):
                self._put(host_key(self._run, frame.rank), encode(frame))
                account.host_frames += 1
            else:
                self._put(rank_key(self._run, frame.rank), encode(frame))
                account.rank_frames += 1
        for history in frames.histories(due, seconds):
            self._put(history_key(self._run, history.rank), encode(history))
            account.history_frames += 1
        for node in frames.nodes(places, seconds):
            self._put(node_key(self._run, node.node), encode(node))
            account.node_frames += 1

    def _name(self, seconds: float) -> None:
        if self._info and seconds >= self._named_until:
            name_run(self._connected(), self._target, self._run, self._info)
            self._named_until = seconds + _NAME_EVERY_S

    def _put(self, key: str, value: bytes) -> None:
        self._account.bytes += len(value)
        self._connected().put(key, value)

    def _connected(self) -> Store:
        if self._store is None:
            self._store = open_store(self._target)
        return self._store

    def _drop(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None
