"""Hostile frames and hostile connections: made from real ones by a seed, for the tests and for bench/fuzz.py."""

from __future__ import annotations

import copy
import random
import socket
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import pytest

from ddpmon.codec import decode, encode
from ddpmon.run.host_rows import gather
from ddpmon.schema import Frame, FrameError, HistoryFrame, HostFrame, NodeFrame, RankFrame, RunInfo
from ddpmon.simulate.host_writers import HostWriters
from ddpmon.simulate.plan import Plan
from ddpmon.simulate.rank_frames import Frames
from ddpmon.simulate.scenarios import scenario_of
from ddpmon.simulate.simulated_host import run_info
from ddpmon.snapshot import Snapshot
from ddpmon.store.base import RUNS_KEY, history_key, host_key, node_key, rank_key, run_key
from ddpmon.store.signed import CheckedStore, Checks
from ddpmon.watcher import link
from ddpmon.watcher.observer import Observer

RUN = "fuzzed"
RANKS = 64
_HOSTILE: tuple[Any, ...] = (
    None, True, -1, 0, 1 << 62, (1 << 64) - 1, -(1 << 63), 1e308, float("nan"), float("inf"), "", "\x1b[2J\x07[red]",
    "\u202e" + "x" * 300, "x" * 5000, b"", b"\xff" * 7, b"\x00" * 8192, [], {}, [[[[]]]] * 50, {"a": {"b": {"c": {}}}},
    list(range(3000)), {str(n): n for n in range(300)}, struct.pack("<4q", 3, 2, 1 << 60, -5), b"\x7f" * 64,
)  # fmt: skip


@dataclass
class Fuzz:
    """Mutates the frames of a simulated run and feeds them to a real watcher through a store in memory.

    Attributes:
        fed: frames that the watcher was given. refused: how many of them cannot be read, by our own account.
        data: the store. bad: what could not be read under a key last.
    """

    seed: int
    fed: int = 0
    refused: int = 0
    data: dict[str, bytes] = field(default_factory=dict)
    bad: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.plan = Plan(RANKS, 8, "hang", step_ms=100.0, seed=self.seed)
        self.frames = Frames(self.plan, scenario_of(self.plan), RUN, np.arange(RANKS))
        self.writers = HostWriters(self.plan, self.frames, np.arange(RANKS))
        self.data |= {RUNS_KEY: RUN.encode(), run_key(RUN): encode(run_info(self.plan, RUN))}
        self.second = 0

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        """The store's side: what the watcher reads it is fed."""
        values = [self.data.get(key) for key in keys]
        for key, value in zip(keys, values, strict=True):
            kind = next((kind for part, kind in _KINDS.items() if f"/{part}/" in key), None)
            if value is not None and kind is not None:
                self.fed += 1
                if not _readable(key, value, kind):
                    self.refused += self.bad.get(key) != value  # what still stands there is known
                    self.bad[key] = value
        return values

    def put(self, key: str, value: bytes) -> None:
        """Nobody puts anything here."""

    def close(self) -> None:
        """Nothing is held."""

    def turn(self) -> None:
        """A second later: every frame again, most of them mutated."""
        self.second += 1
        everybody = np.arange(RANKS)
        self.frames.reach(float(self.second))
        self.data = {key: value for key, value in self.data.items() if key in (RUNS_KEY, run_key(RUN))}
        for frame in self.writers.turn(everybody, float(self.second), {*range(RANKS)}):
            key = host_key if isinstance(frame, HostFrame) else rank_key
            self.data[key(RUN, frame.rank)] = self._mutated(frame)
        for node in self.frames.nodes(everybody, float(self.second)):
            self.data[node_key(RUN, node.node)] = self._mutated(node)

    def remember(self) -> None:
        """What the ranks remember, mutated."""
        self.frames.reach(40.0)
        for history in self.frames.histories(np.arange(RANKS), 40.0):
            self.data[history_key(RUN, history.rank)] = self._mutated(history)

    def describe(self) -> None:
        """The run's description, mutated."""
        self.data[run_key(RUN)] = self._mutated(run_info(self.plan, RUN))

    def _mutated(self, frame: Frame) -> bytes:
        if self.random.random() < 0.2:
            return encode(frame)
        return self.random.choice((self._bent, self._bent, self._cut, self._flipped, self._noise))(frame)

    def _bent(self, frame: Frame) -> bytes:
        """One value somewhere in its structure is another."""
        tree = msgspec.msgpack.decode(encode(frame))
        for _ in range(self.random.choice((1, 1, 2, 5))):
            part: Any = tree
            while True:
                at = self.random.choice(list(part) if isinstance(part, dict) else range(len(part)))
                if isinstance(part[at], (dict, list)) and part[at] and self.random.random() < 0.7:
                    part = part[at]
                    continue
                part[at] = copy.deepcopy(self.random.choice(_HOSTILE))
                break
        return msgspec.msgpack.encode(tree)

    def _cut(self, frame: Frame) -> bytes:
        data = encode(frame)
        cut = data[: self.random.randrange(len(data))]
        return cut + (data[self.random.randrange(len(data)) :] if self.random.random() < 0.5 else b"")

    def _flipped(self, frame: Frame) -> bytes:
        data = bytearray(encode(frame))
        for _ in range(self.random.choice((1, 2, 8, 64))):
            data[self.random.randrange(len(data))] = self.random.randrange(256)
        return bytes(data)

    def _noise(self, _frame: Frame) -> bytes:
        depth = self.random.choice((0, 10, 500, 5000))
        return b"\x91" * depth + self.random.randbytes(self.random.choice((1, 40, 900))) + b"\xdf\xff\xff\xff\xff"


_KINDS: dict[str, type[RankFrame] | type[NodeFrame] | type[HistoryFrame] | type[HostFrame]] = {
    "rank": RankFrame, "node": NodeFrame, "history": HistoryFrame, "host": HostFrame,
}  # fmt: skip


def _readable(key: str, value: bytes, kind: type[Any]) -> bool:
    try:
        frame = decode(key, value, kind)
    except FrameError:
        return False
    if frame.run_id != RUN or isinstance(frame, RunInfo):
        return bool(frame.run_id == RUN)
    if isinstance(frame, HostFrame) and gather([frame], lambda _: False, RANKS)[1]:
        return False
    return key.endswith(f"/{frame.node if isinstance(frame, NodeFrame) else frame.rank}")


def feed(fuzz: Fuzz, count: int, patch: pytest.MonkeyPatch, each: Callable[[Snapshot], None]) -> int:
    """Feed at least `count` frames to a watcher; `each` sees every picture; returns how many it says it has refused."""
    patch.setattr(link, "connect", lambda *_target, **_checks: CheckedStore(fuzz, Checks(None)))
    fuzz.remember()
    observer = Observer("tcp://127.0.0.1:1")
    try:
        while fuzz.fed < count:
            observer.focus = fuzz.random.randrange(RANKS)
            each(observer.tick())
            fuzz.turn()
        assert observer.run is not None
        return observer.run.rejected.total()
    finally:
        observer.close()


def feed_descriptions(
    fuzz: Fuzz, count: int, patch: pytest.MonkeyPatch, each: Callable[[Snapshot], None]
) -> tuple[int, int]:
    """Have `count` watchers meet a mutated description each.

    Returns:
        how many of them refused it in words, and how many cannot be read by our own account.
    """
    patch.setattr(link, "connect", lambda *_target, **_checks: CheckedStore(fuzz, Checks(None)))
    refused = unreadable = 0
    fuzz.turn()
    for _ in range(count):
        fuzz.describe()
        observer = Observer("tcp://127.0.0.1:1")
        seen = observer.tick()
        observer.close()
        each(seen)
        refused += seen.run is None and seen.link.state == "waiting" and run_key(RUN) in seen.link.message
        unreadable += not _readable(run_key(RUN), fuzz.data[run_key(RUN)], RunInfo)
    return refused, unreadable


def besiege(address: tuple[str, int], count: int, seed: int, meanwhile: Callable[[], None], held: int = 100) -> int:
    """Open `count` connections that mean ill, at most `held` at a time; returns how many the port took."""
    chance, open_ones, taken = random.Random(seed), list[socket.socket](), 0
    for number in range(count):
        with suppress(OSError):
            attacker = socket.create_connection(address, timeout=10.0)
            attacker.settimeout(2.0)
            open_ones.append(attacker)
            taken += 1
            attacker.sendall(_greeting(chance))
        for slow in chance.sample(open_ones, min(3, len(open_ones))):
            with suppress(OSError):
                slow.sendall(chance.randbytes(1))
        if len(open_ones) > held:
            _hang_up(open_ones.pop(chance.randrange(len(open_ones))), chance)
        if number % 20 == 0:
            meanwhile()
    for attacker in open_ones:
        _hang_up(attacker, chance)
    return taken


_MAGIC = struct.pack("<BI", 0, 0x3C85F7CE)  # how a client of a TCPStore begins


def _greeting(chance: random.Random) -> bytes:
    huge = struct.pack("<Q", chance.choice((1 << 20, 1 << 40, 1 << 63, (1 << 64) - 1)))
    return chance.choice(
        (
            b"",
            chance.randbytes(chance.choice((1, 7, 500, 70_000))),
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + chance.randbytes(60),
            _MAGIC[: chance.randrange(1, 5)],
            _MAGIC + bytes([chance.randrange(20)]) + huge + chance.randbytes(30),
            _MAGIC + chance.randbytes(200),
        )
    )


def _hang_up(attacker: socket.socket, chance: random.Random) -> None:
    with suppress(OSError):
        if chance.random() < 0.5:  # a reset instead of a farewell
            attacker.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    attacker.close()


def wait_for(what: Callable[[], bool], seconds: float) -> bool:
    """Whether it comes true in time."""
    until = time.monotonic() + seconds
    while not what():
        if time.monotonic() > until:
            return False
        time.sleep(0.2)
    return True
