"""How soon commands answer: `python bench/start.py [COMMAND ...] [--rounds 7]`, for each `ddpmon` that is named.

Four simulated ranks run meanwhile; this interpreter hosts them and needs torch, the commands do not. Each COMMAND is
the path of a ddpmon in an environment of its own, for example one before a change and one after it; they take turns.
Printed: medians of the time and the CPU time from the start of the process to its end, and its memory; of `watch` the
time to the first picture and to the first data in it, and its memory a second later.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import pty
import select
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
_COMMANDS = ("--version", "status", "ls")
_LIMIT_S = 30.0
_PICTURE_BYTES = 1500  # a first picture has more, what prepares the terminal less
_SETTLED_S = 1.0
_ROWS, _COLUMNS = 40, 140


@contextlib.contextmanager
def simulated_run(folder: Path) -> Iterator[None]:
    """Four ranks, found by the commands of this process's children alone."""
    os.environ["XDG_RUNTIME_DIR"] = os.environ["TMPDIR"] = str(folder)
    command = [sys.executable, "-m", "ddpmon.cli", "simulate", "--ranks=4", "--scenario=healthy"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as simulation:
        assert simulation.stdout is not None
        simulation.stdout.readline()
        time.sleep(5.0)  # the first histories
        try:
            yield
        finally:
            simulation.terminate()


def timed(command: Sequence[str]) -> tuple[float, float, float]:
    """Seconds, CPU seconds and MB of a command."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, _, used = os.wait4(process.pid, 0)
    return time.perf_counter() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def watched(command: str) -> tuple[float, float, float]:
    """Seconds to the first picture and to the first data of a dashboard, and its MB."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(command, [command, "watch"])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
    began, drawn, picture, data = time.perf_counter(), b"", 0.0, 0.0
    while not data and time.perf_counter() - began < _LIMIT_S:
        drawn += _read(terminal)
        picture = picture or (time.perf_counter() - began) * (len(drawn) > _PICTURE_BYTES)
        data = (time.perf_counter() - began) * (b"simulated" in drawn)
    until = time.perf_counter() + _SETTLED_S
    while time.perf_counter() < until:
        _read(terminal)
    resident = psutil.Process(pid).memory_info().rss / (1 << 20)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(terminal)
    return picture, data, resident


def _read(terminal: int) -> bytes:
    return os.read(terminal, 1 << 16) if select.select([terminal], [], [], 0.02)[0] else b""


def main() -> None:
    """Run everything in turns and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commands", nargs="*", metavar="COMMAND", default=[str(Path(sys.executable).parent / "ddpmon")])
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    seen: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder, simulated_run(Path(folder)):
        for _ in range(options.rounds):
            for command in options.commands:
                for words in _COMMANDS:
                    seen.setdefault((words, command), []).append(timed([command, words]))
                seen.setdefault(("watch", command), []).append(watched(command))
    for (words, command), rows in sorted(seen.items()):
        first, second, mb = (statistics.median(column) for column in zip(*rows, strict=True))
        what = "first picture {:.2f} s, first data {:.2f} s" if words == "watch" else "{:.2f} s, {:.2f} s of CPU"
        print(f"{words:>9}, {command}: {what.format(first, second)}, {mb:.0f} MB")


if __name__ == "__main__":
    main()
