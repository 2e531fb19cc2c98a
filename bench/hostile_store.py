"""What a watcher's memory comes to before a store that means ill: `python bench/hostile_store.py [KIND ...]`.

For each kind of attack a server of its own answers whatever a watcher in a fresh process asks for, as large as it may:
noise, values that are too long, true frames with all the bucket detail or all the stacks that a frame may have.
Printed: the watcher's resident memory after each tick, and at most. Traffic stays on loopback.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ddpmon.codec import encode
from ddpmon.parts import Stack, StackFrame, Stall
from ddpmon.schema import BucketColumns
from ddpmon.store.base import MOST_ANSWER_BYTES
from ddpmon.store.tcp_wire import CHECK, COUNT, GREETING, MULTI_GET
from ddpmon.watcher.observer import Observer
from tests.made_frames import RUN_ID, columns, node_frame, rank_frame, run_info

ROOT = Path(__file__).resolve().parents[1]
_NOISE = os.urandom(1 << 20)
_TICKS = 6
_PER_HOST = 8
_BUCKETS, _BUCKET_STEPS = 1024, 28  # together 115 kB: 256 such frames are an answer that is just taken
_LINES, _STACKS = 64, 8  # a frame may have so many; with lines of 150 characters it has 85 kB


class Attack:
    """The values of a store for a run of so many ranks; `kind` is one of `KINDS`."""

    def __init__(self, kind: str, ranks: int) -> None:
        self._value, self._ranks, self._asked = KINDS[kind], ranks, 0

    def value(self, key: str) -> bytes:
        """What stands at `key`, another value each time; empty where nothing does."""
        self._asked += 1
        match key.removeprefix("/ddpmon/").split("/"):
            case ["runs"]:
                return RUN_ID.encode()
            case [_, "run"]:
                return encode(run_info(self._ranks, node_keys=[*range(self._ranks // _PER_HOST)]))
            case [_, kind, number]:
                return self._value(kind, int(number), self._asked, self._ranks)
        return b""


def nothing(kind: str, number: int, asked: int, ranks: int) -> bytes:
    del kind, number, asked, ranks
    return b""


def noise(kind: str, number: int, asked: int, ranks: int) -> bytes:
    del kind, number
    return struct.pack("<Q", asked) + _NOISE[: MOST_ANSWER_BYTES // ranks - 64]


def longest(kind: str, number: int, asked: int, ranks: int) -> bytes:
    del kind, number, asked, ranks
    return _NOISE


def buckets(kind: str, number: int, asked: int, ranks: int) -> bytes:
    if kind != "rank":
        return encode(node_frame(number, asked)) if kind == "node" else b""
    del ranks
    steps = struct.pack(f"<{_BUCKET_STEPS}q", *range(asked, asked + _BUCKET_STEPS))
    detail = BucketColumns(step=steps, sizes=[1] * _BUCKETS, ms=bytes(4 * _BUCKETS * _BUCKET_STEPS))
    frame = rank_frame(number, asked, columns([1], {"duration": [1.0]}), node=number // _PER_HOST, buckets=detail)
    return encode(frame)


def stacks(kind: str, number: int, asked: int, ranks: int) -> bytes:
    del ranks
    if kind != "rank":
        return b""
    lines = [StackFrame(file=f"f{n:05}" * 8, line=n, function=f"g{n:05}" * 8, source="s" * 48) for n in range(_LINES)]
    stall = Stall(seconds=5.0, stacks=[Stack(thread=f"thread {n}", frames=lines) for n in range(_STACKS)])
    steps = columns([1], {"duration": [1.0]})
    return encode(rank_frame(number, asked, steps, node=number // _PER_HOST, state="stalled", stall=stall))


KINDS: dict[str, Callable[[str, int, int, int], bytes]] = {
    each.__name__: each for each in (nothing, noise, longest, buckets, stacks)
}


def admit(door: socket.socket, attack: Attack) -> None:
    """Serve whoever comes, each in a thread."""
    with contextlib.suppress(OSError):
        while True:
            threading.Thread(target=serve, args=(door.accept()[0], attack), daemon=True).start()


def serve(visitor: socket.socket, attack: Attack) -> None:
    """Answer a watcher until it leaves."""
    with contextlib.suppress(OSError, struct.error), visitor, visitor.makefile("rwb") as stream:
        stream.write(GREETING.unpack(stream.read(GREETING.size))[3])
        while True:
            stream.flush()
            query = stream.read(1)
            if not query:
                return
            keys = [_read_key(stream.read) for _ in range(*COUNT.unpack(stream.read(COUNT.size)))]
            values = [attack.value(key) for key in keys]
            if query[0] == CHECK:
                stream.write(bytes((not all(values),)))
            elif query[0] == MULTI_GET:
                for value in values:
                    stream.write(COUNT.pack(len(value)) + value)


def _read_key(read: Callable[[int], bytes]) -> str:
    (size,) = COUNT.unpack(read(COUNT.size))
    return read(size).decode()


def watch(url: str) -> None:
    """Look at a run some times, and say how much memory that took."""
    observer, resident = Observer(url), []
    for _ in range(_TICKS):
        snapshot = observer.tick()
        resident.append(int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() >> 20)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"{resident} MB after each tick, {most} MB at most; link {snapshot.link.state}", flush=True)


def main() -> None:
    """Serve, watch, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", choices=[*KINDS, []], help=", ".join(KINDS))
    parser.add_argument("--ranks", type=int, default=256)
    parser.add_argument("--watch", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.watch:
        watch(options.watch)
        return
    for kind in options.kinds or KINDS:
        with socket.create_server(("127.0.0.1", 0)) as door:
            attack = Attack(kind, options.ranks)
            threading.Thread(target=admit, args=(door, attack), daemon=True).start()
            print(f"{kind:>8}: ", end="", flush=True)
            command = [sys.executable, __file__, "--watch", f"tcp://127.0.0.1:{door.getsockname()[1]}"]
            subprocess.run(command, check=True, cwd=ROOT)


if __name__ == "__main__":
    main()
