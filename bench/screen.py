"""What the dashboard costs in a real terminal of 160x50 at 1 Hz: CPU and bytes a tick, memory, time to first paint.

`python bench/screen.py` prints one line for each number of simulated ranks, `--hosts` the same for the screen of hosts
with eight GPUs each. The pictures are made up before the clock
starts, so that only the screen is measured; memory includes them.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import resource
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from dataclasses import replace
from pathlib import Path

from ddpmon.snapshot import Metric, Snapshot

ROOT = Path(__file__).resolve().parent.parent
SIZE = (160, 50)
PICTURES = 4


class Rotating:
    """A source that shows a few pictures in turn and takes stock of the CPU time at each."""

    def __init__(self, ranks: int, gpu: bool) -> None:
        sys.path.insert(0, str(ROOT))
        from tests.tui.made_runs import Made, snapshot

        made = Made(ranks=ranks, straggler=ranks // 2 + 1, per_node=8, gpu=gpu)
        self.pictures = [snapshot(replace(made, step=made.step + 6 * i)) for i in range(PICTURES)]
        self.focus: int | None = None
        self.metric: Metric = "lateness"
        self.cpu: list[float] = []

    def tick(self) -> Snapshot:
        """The next picture."""
        self.cpu.append(time.process_time())
        return replace(self.pictures[len(self.cpu) % PICTURES], taken_monotonic=time.monotonic())

    def rebuild(self) -> Snapshot:
        """Another picture; nobody asks for it here."""
        return self.tick()

    def close(self) -> None:
        """Nothing is held."""


def watch(ranks: int, gpu: bool) -> None:
    """Run the dashboard, then report on stdout."""
    from ddpmon.tui.app import WatchApp

    source = Rotating(ranks, gpu)
    WatchApp(source).run()
    steady = source.cpu[3:]
    ticks = max(len(steady) - 1, 1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"ticks": ticks, "cpu_ms": (steady[-1] - steady[0]) / ticks * 1e3, "rss_mb": peak / 1024}))


def measure(ranks: int, seconds: float, hosts: bool) -> None:
    """Start a dashboard on a pty, read what it writes for a while, quit it, print the figures."""
    screen, far = pty.openpty()
    fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", SIZE[1], SIZE[0], 0, 0))
    with tempfile.TemporaryFile() as report:
        started = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, __file__, "--child", str(ranks), *(["--hosts"] if hosts else [])],
            stdin=far, stdout=report, stderr=far,
            env={**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        painted, data, early = _until_data(screen, started)
        if hosts:
            os.write(screen, b"3")
            _until_hosts(screen)
        written = sum(len(chunk) for chunk in _reading(screen, seconds))
        os.write(screen, b"q")
        while process.poll() is None:
            list(_reading(screen, 0.1))
        report.seek(0)
        said = json.loads(report.read())
    os.close(screen)
    os.close(far)
    print(
        f"{ranks:>6,} {said['cpu_ms']:>9.1f} {said['cpu_ms'] / 10:>8.2f} {written / seconds / 1e3:>9.1f} "
        f"{early / 1e3:>9.1f} {said['rss_mb']:>8.0f} {painted:>9.2f} {data:>9.2f}"
    )


def _until_data(screen: int, started: float) -> tuple[float, float, int]:
    """Seconds to the first painted text (0 when data came as soon) and to the first data, and the bytes until then."""
    seen, painted = b"", 0.0
    while b"costs" not in seen:
        seen += os.read(screen, 1 << 16)
        if not painted and b"looking for a run" in seen:
            painted = time.perf_counter() - started
    return painted, time.perf_counter() - started, len(seen)


def _until_hosts(screen: int) -> None:
    """Wait until a host is drawn: only its title says when it was heard."""
    seen = b""
    while b"heard" not in seen:
        seen += os.read(screen, 1 << 16)


def _reading(screen: int, seconds: float) -> list[bytes]:
    """All that is written in the next seconds."""
    end, chunks = time.perf_counter() + seconds, []
    while (left := end - time.perf_counter()) > 0:
        if select.select([screen], [], [], left)[0]:
            chunks.append(os.read(screen, 1 << 16))
    return chunks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--hosts", action="store_true", help="measure the screen of hosts, eight GPUs each")
    parser.add_argument("ranks", type=int, nargs="*", default=[8, 1024, 4096])
    options = parser.parse_args()
    if options.child:
        watch(options.child, options.hosts)
        return
    print(f"{SIZE[0]}x{SIZE[1]}, 1 Hz, {options.seconds:g} s each; time to first data includes making the pictures up")
    print(" ranks   ms/tick   % core      kB/s  kB first   RSS MB  paint s    data s")
    for ranks in options.ranks:
        measure(ranks, options.seconds, options.hosts)


if __name__ == "__main__":
    main()
