"""What each view of the dashboard costs in a real terminal of 160x50 at 1 Hz: CPU time and bytes.

    python bench/screen.py [64 1024 4096] [--seconds 10] [--scenario mixed]

One table for each number of ranks, a line for each view: the CPU time a tick of drawing it and of building the picture
that is drawn, percent of a core for both together, and the bytes to the terminal, a second and when it is opened. The
run is made up second by second beside the dashboard, and what that takes is not counted; `bench/scale.py` measures what
reading a store takes, and memory.
"""

from __future__ import annotations

import argparse
import fcntl
import gc
import json
import os
import pty
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from screen_run import SimulatedRun

from ddpmon.commands.console import GC_THRESHOLDS
from ddpmon.snapshot import Metric, Snapshot

ROOT = Path(__file__).resolve().parent.parent
SIZE = (160, 50)
# The keys that open each view from the one before, and what stands on it alone.
VIEWS = {
    "overview": ("1", "ranks"),
    "rank": ("\r", "local rank"),
    "timeline": ("2", "timeline"),
    "hosts": ("3", "hosts"),
    "host": ("\r", "heard"),
    "run": ("4", "versions"),
    "findings": ("5", "Measured"),
}
_PAINTED_S = 2.0  # so that the first paint has the processor to itself
_SETTLED_S = 3.0
_PATIENCE_S = 300.0  # at most, while a run of 4,096 ranks is made up


class Source:
    """The pictures of a simulated run, a second further at each tick; notes the CPU time of each tick in a file.

    Args:
        ranks, scenario: of the run.
        notes: where a line goes at each tick: CPU seconds of the whole process, and of it those that made the run up
            and those that built pictures.
    """

    def __init__(self, ranks: int, scenario: str, notes: Path) -> None:
        self._ranks, self._scenario = ranks, scenario
        self._notes = notes.open("w", buffering=1)
        self._run: SimulatedRun | None = None
        self._made_s = self._built_s = 0.0
        self.focus: int | None = None
        self.metric: Metric = "lateness"

    def tick(self) -> Snapshot:
        """One second further; at first until the run's troubles have been found."""
        began = time.thread_time()
        print(json.dumps([time.process_time(), self._made_s, self._built_s]), file=self._notes)
        if self._run is None:
            time.sleep(_PAINTED_S)
            self._run = SimulatedRun.of_size(self._ranks, self._scenario)
            self._run.go(self._run.until_found)
        self._run.go(1)
        self._made_s += time.thread_time() - began
        return self.rebuild()

    def rebuild(self) -> Snapshot:
        """The picture of this second."""
        assert self._run is not None
        began = time.thread_time()
        snapshot = self._run.picture(self.focus, self.metric)
        self._built_s += time.thread_time() - began
        return snapshot

    def close(self) -> None:
        """Nothing is held."""


def watch(ranks: int, scenario: str, notes: Path) -> None:
    """Run the dashboard until it is quit."""
    from ddpmon.tui.app import WatchApp

    gc.set_threshold(*GC_THRESHOLDS)  # as `ddpmon watch` does
    WatchApp(Source(ranks, scenario, notes)).run()


class Terminal:
    """A terminal with a dashboard on it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def press(self, keys: str) -> None:
        """Type."""
        os.write(self._descriptor, keys.encode())

    def until(self, word: str) -> bytes:
        """What is written until this word has been.

        Raises:
            TimeoutError: it is not written.
        """
        seen, end = b"", time.perf_counter() + _PATIENCE_S
        while word.encode() not in seen:
            if not select.select([self._descriptor], [], [], max(end - time.perf_counter(), 0))[0]:
                raise TimeoutError(f"{word!r} is not on the screen")
            seen += os.read(self._descriptor, 1 << 16)
        return seen

    def read(self, seconds: float) -> int:
        """How many bytes are written in the next seconds."""
        end, written = time.perf_counter() + seconds, 0
        while (left := end - time.perf_counter()) > 0:
            if select.select([self._descriptor], [], [], left)[0]:
                written += len(os.read(self._descriptor, 1 << 16))
        return written


@contextmanager
def dashboard(ranks: int, scenario: str, notes: Path) -> Iterator[Terminal]:
    """A dashboard on a terminal of its own, which is quit at the end."""
    screen, far = pty.openpty()
    fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", SIZE[1], SIZE[0], 0, 0))
    process = subprocess.Popen(
        [sys.executable, __file__, str(ranks), "--scenario", scenario, "--child", str(notes)],
        stdin=far, stdout=far, stderr=far,
        env={**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    terminal = Terminal(screen)
    try:
        yield terminal
        terminal.press("q")
        while process.poll() is None:
            terminal.read(0.1)
    finally:
        process.kill()
        process.wait()
        os.close(screen)
        os.close(far)


def measure(ranks: int, scenario: str, seconds: float) -> None:
    """Open every view of one dashboard in turn, and print what each costs."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        notes = Path(folder) / "ticks"
        with dashboard(ranks, scenario, notes) as terminal:
            terminal.until("looking for a run")
            print(f"{ranks:,} ranks, {scenario}; first paint after {time.perf_counter() - began:.2f} s")
            print(f"{'view':<10}{'draw ms':>9}{'build ms':>10}{'% core':>8}{'kB/s':>8}{'kB first':>10}")
            terminal.until("costs")
            for view, (keys, word) in VIEWS.items():
                terminal.press(keys)
                first = len(terminal.until(word)) + terminal.read(0.3)
                terminal.read(_SETTLED_S)
                before = _ticks(notes)
                written = terminal.read(seconds)
                draw_ms, build_ms = _spent(_ticks(notes)[len(before) - 1 :])
                share = (draw_ms + build_ms) / 10
                print(
                    f"{view:<10}{draw_ms:>9.1f}{build_ms:>10.1f}{share:>8.1f}{written / seconds / 1e3:>8.1f}"
                    f"{first / 1e3:>10.1f}",
                    flush=True,
                )


def _ticks(notes: Path) -> list[list[float]]:
    return [json.loads(line) for line in notes.read_text().splitlines()]


def _spent(ticks: list[list[float]]) -> tuple[float, float]:
    """Milliseconds a tick between the first and the last of these: of drawing, and of building pictures."""
    total, made, built = (last - first for first, last in zip(ticks[0], ticks[-1], strict=True))
    count = len(ticks) - 1
    return (total - made - built) / count * 1e3, built / count * 1e3


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=10.0, help="for which each view is measured")
    parser.add_argument("--scenario", default="mixed")
    parser.add_argument("ranks", type=int, nargs="*", default=[64, 1024, 4096])
    options = parser.parse_args()
    if options.child:
        watch(options.ranks[0], options.scenario, options.child)
        return
    print(f"{SIZE[0]}x{SIZE[1]}, 1 Hz, {options.seconds:g} s a view")
    for ranks in options.ranks:
        measure(ranks, options.scenario, options.seconds)


if __name__ == "__main__":
    main()
