"""What an attack on the store costs a run: `python bench/store_attack.py [--seconds 20] [--rounds 2]`.

Two Gloo ranks train (the example trainer); whoever reaches their store's port attacks it: connections that stay, values
of 1 MiB, answers that nobody reads, and noise, in every second stretch of time. Printed, for
both: the step times of rank 0 as its frames tell them, rank 0's descriptors and memory at their most, and the same of
the store's process where there is one. The ranks may have 1,024 descriptors. Traffic stays on loopback.
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
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil

ROOT = Path(__file__).resolve().parents[1]
_GREETING = struct.pack("<BIB4s", 0, 0x3C85F7CE, 13, b"hey!")
_MB = 1 << 20
_TRAINER = ("--steps=10000000", "--layers=2", "--width=96", "--heads=2", "--batch=4", "--context=64")
_DESCRIPTORS = 1024
_VALUES_BYTES = 2 << 30
_SAMPLE_S = 0.1


@dataclass
class Seen:
    """What was seen of a stretch of time."""

    step_ms: dict[int, float] = field(default_factory=dict)
    fds: int = 0
    rss: int = 0
    store_rss: int = 0
    store_cpu_s: float = 0.0

    def __str__(self) -> str:
        if not self.step_ms:
            return "no steps were read"
        steps = np.array(list(self.step_ms.values()))
        p50, p99 = np.percentile(steps, [50, 99])
        times = f"{len(steps):>5} steps: median {p50:6.1f} ms, p99 {p99:6.1f}, longest {steps.max():6.1f}"
        store = f"store {self.store_rss / _MB:5.0f} MB, {self.store_cpu_s:5.1f} s CPU" if self.store_rss else ""
        return f"{times}; rank 0: {self.fds:>5} descriptors, {self.rss / _MB:6.0f} MB; {store}"


@contextlib.contextmanager
def run_of_two(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The example trainer on two ranks, with few descriptors."""
    places = {"XDG_RUNTIME_DIR": str(folder), "TMPDIR": str(folder), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "trainer"]
    limited = ["prlimit", f"--nofile={_DESCRIPTORS}:{_DESCRIPTORS}", *launch, *_TRAINER]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(limited, stdout=log, stderr=log, cwd=ROOT, env={**os.environ, **places})
    try:
        yield process
    finally:
        launcher = psutil.Process(process.pid)
        for each in [*launcher.children(recursive=True), launcher]:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        process.wait()


class Watching:
    """Reads rank 0's steps through its store, and its process's figures."""

    def __init__(self, folder: Path) -> None:
        os.environ["XDG_RUNTIME_DIR"] = os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
        sys.path.insert(0, str(ROOT))
        from ddpmon.store.connect import parse_target
        from ddpmon.store.discovery import discover

        while not (runs := discover()):
            time.sleep(0.1)
        self.run, self.target = runs[0], parse_target(runs[0].url)
        self.rank = psutil.Process(self.run.pid)
        store_pid = getattr(self.run, "store_pid", 0)
        self.store = psutil.Process(store_pid) if store_pid else None
        self._door = self._open()

    def _open(self) -> object:
        from ddpmon.store.connect import connect

        return connect(self.target)

    def stretch(self, seconds: float, attacker: subprocess.Popen[bytes] | None) -> Seen:
        """What is seen in the next seconds, or until the attack is over; steps are read later, while nobody attacks."""
        seen, until = Seen(), time.monotonic() + seconds
        spent = 0.0 if self.store is None else sum(self.store.cpu_times()[:2])
        while time.monotonic() < until if attacker is None else attacker.poll() is None:
            seen.fds = max(seen.fds, self.rank.num_fds())
            seen.rss = max(seen.rss, self.rank.memory_info().rss)
            if self.store is not None:
                seen.store_rss = max(seen.store_rss, self.store.memory_info().rss)
            time.sleep(_SAMPLE_S)
        seen.store_cpu_s = 0.0 if self.store is None else sum(self.store.cpu_times()[:2]) - spent
        return seen

    def read_steps(self, since: int) -> tuple[dict[int, float], int]:
        """Step -> ms of the last 256 steps of rank 0 after `since`, by its history, and the newest step."""
        from ddpmon.codec import decode
        from ddpmon.schema import HistoryFrame
        from ddpmon.store.base import history_key

        key = history_key(self.run.run_id, 0)
        for _ in range(100):
            with contextlib.suppress(OSError):
                store = self._open()
                (data,) = store.get_many([key])  # type: ignore[attr-defined]
                store.close()  # type: ignore[attr-defined]
                if data:
                    steps = decode(key, data, HistoryFrame).recent
                    numbers = np.frombuffer(steps.step, "<i8").tolist()
                    durations = np.frombuffer(steps.values["duration"], "<f4").tolist()
                    return {n: d for n, d in zip(numbers, durations, strict=True) if n > since}, numbers[-1]
            time.sleep(0.2)
        return {}, since


def attack(port: int, seconds: float) -> None:
    """Values, unread answers and connections, which are held for so long and then let go."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 1 << 16), hard))
    held, sent = list[socket.socket](), _fill(port)
    held += [door for _ in range(300) if (door := _asking(port)) is not None]
    for number in range(3000):
        noise = (b"", _GREETING, b"GET / HTTP/1.1\r\n\r\n")[number % 3]
        if (door := _open(port, noise)) is not None:
            held.append(door)
    time.sleep(seconds)
    print(f"    attack: {sent / _MB:,.0f} MB of values sent, {len(held):,} connections held", flush=True)


def _open(port: int, said: bytes) -> socket.socket | None:
    with contextlib.suppress(OSError):
        door = socket.create_connection(("127.0.0.1", port), timeout=1.0)
        door.sendall(said)
        return door
    return None


def _packed(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data


def _fill(port: int) -> int:
    """Send 2 GB of values of 1 MiB; bytes that were taken before a connection was closed."""
    sent, door, value = 0, _open(port, _GREETING), bytes(_MB)
    for number in range(_VALUES_BYTES // _MB):
        if door is None:
            door = _open(port, _GREETING)
        try:
            if door is not None:
                door.sendall(b"\1" + _packed(b"/ddpmon/attack/%d" % number) + _packed(value))
                sent += _MB
        except OSError:
            door = None
    return sent


def _asking(port: int) -> socket.socket | None:
    """A connection that asks for 30 values of 1 MiB and reads nothing."""
    keys = b"".join(_packed(b"/ddpmon/attack/%d" % number) for number in range(5))
    return _open(port, _GREETING + (b"\x0a" + struct.pack("<Q", 5) + keys) * 6)


def main() -> None:
    """Train, watch, attack, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each stretch")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    if options.child:
        attack(options.child, options.seconds)
        return
    with tempfile.TemporaryDirectory() as name, run_of_two(Path(name)):
        watching = Watching(Path(name))
        time.sleep(8.0)
        last = watching.read_steps(-1)[1]
        for number in range(options.rounds):
            for kind in ("quiet", "attacked"):
                command = [
                    sys.executable,
                    __file__,
                    "--child",
                    str(watching.target.port),
                    f"--seconds={options.seconds}",
                ]
                attacker = subprocess.Popen(command) if kind == "attacked" else None
                seen = watching.stretch(options.seconds, attacker)
                if attacker is not None:
                    time.sleep(6.0)  # a history of what went before goes out every 5 s
                seen.step_ms, last = watching.read_steps(last)
                print(f"round {number + 1}, {kind:>8}: {seen}", flush=True)


if __name__ == "__main__":
    main()
