"""Feeds real watchers hostile frames and descriptions, and besieges a run's store while a watcher reads it.

    python bench/fuzz.py [--frames 1000000] [--descriptions 10000] [--connections 10000] [--seed N]

Prints what was refused and counted, and how the resident memory went. A crash ends it with a traceback; the exit code
is 1 if a refused frame was not counted, or the watcher did not go on.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from ddpmon.snapshot import Snapshot  # noqa: E402
from ddpmon.watcher.observer import Observer  # noqa: E402
from tests.fuzzing import Fuzz, besiege, feed, feed_descriptions, wait_for  # noqa: E402
from tests.test_fuzz import draw_plainly  # noqa: E402

_MB = 1 << 20


class Memory:
    """The resident memory of some processes, now and at some points on the way."""

    def __init__(self, *pids: int) -> None:
        self._processes = [psutil.Process(pid) for pid in pids] or [psutil.Process()]
        self.told: list[str] = []

    def note(self) -> None:
        """Take it down."""
        self.told.append("/".join(f"{process.memory_info().rss / _MB:.0f}" for process in self._processes))

    def __str__(self) -> str:
        return " ".join(self.told)


def frames(count: int, seed: int) -> bool:
    """Hostile frames; True if every refused one was counted."""
    fuzz, memory, ticks, slowest = Fuzz(seed), Memory(), 0, 0.0
    began = last = time.monotonic()

    def look(snapshot: Snapshot) -> None:
        nonlocal ticks, slowest, last
        slowest, last = max(slowest, time.monotonic() - last), time.monotonic()
        if ticks % 25 == 0:
            draw_plainly(snapshot)
        if fuzz.fed >= len(memory.told) * count / 8:
            memory.note()
        ticks += 1

    with pytest.MonkeyPatch.context() as patch:
        counted = feed(fuzz, count, patch, look)
    memory.note()
    print(
        f"{fuzz.fed:,} frames in {time.monotonic() - began:.0f} s, {ticks:,} ticks, the slowest {slowest:.2f} s; "
        f"{fuzz.refused:,} cannot be read, {counted:,} counted as refused; resident MB {memory}",
        flush=True,
    )
    return counted == fuzz.refused


def descriptions(count: int, seed: int) -> bool:
    """Hostile descriptions of a run, each for a watcher of its own; True if all that cannot be read were refused."""
    began = time.monotonic()
    with pytest.MonkeyPatch.context() as patch:
        refused, unreadable = feed_descriptions(Fuzz(seed), count, patch, draw_plainly)
    print(
        f"{count:,} descriptions in {time.monotonic() - began:.0f} s; {unreadable:,} cannot be read, "
        f"{refused:,} were refused",
        flush=True,
    )
    return refused == unreadable


def connections(count: int, seed: int) -> bool:
    """Hostile connections; True if the watcher went on through all of them."""
    command = [sys.executable, "-m", "ddpmon.cli", "simulate", "--ranks=8", "--processes=1", "--scenario=healthy"]
    with subprocess.Popen([*command, "--step-ms=100"], stdout=subprocess.PIPE, text=True, cwd=ROOT) as run:
        assert run.stdout is not None
        url = run.stdout.readline().split()[-1]
        observer, memory, states = Observer(url), Memory(run.pid), dict[str, int]()
        began = time.monotonic()
        host, port = url.removeprefix("tcp://").split(":")

        def look() -> None:
            state = observer.tick().link.state
            states[state] = states.get(state, 0) + 1
            if sum(states.values()) % max(1, count // 160) == 1:
                memory.note()

        taken = besiege((host, int(port)), count, seed, look)
        before = _step(observer)
        goes_on = wait_for(lambda: _step(observer) > before + 10, 60.0)
        memory.note()
        observer.close()
        run.terminate()
        left = run.wait(60)
    print(
        f"{taken:,} of {count:,} connections taken in {time.monotonic() - began:.0f} s; the watcher's ticks: {states}; "
        f"it {'went on' if goes_on else 'STOPPED'}; the store's host ended with {left}, resident MB {memory}",
        flush=True,
    )
    return goes_on and left == 0


def _step(observer: Observer) -> int:
    snapshot = observer.tick()
    return -1 if snapshot.run is None or snapshot.run.step is None else snapshot.run.step


def main() -> None:
    """Parse, attack, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--descriptions", type=int, default=10_000)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    good = [
        not options.frames or frames(options.frames, options.seed),
        not options.descriptions or descriptions(options.descriptions, options.seed),
        not options.connections or connections(options.connections, options.seed),
    ]
    raise SystemExit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
