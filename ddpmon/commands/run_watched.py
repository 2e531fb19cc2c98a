"""`ddpmon run --watch`: the dashboard in this terminal, and the command beside it with its output in a file."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ddpmon.commands.awaited import Awaited
from ddpmon.commands.console import NOT_EXECUTABLE, complain, printable
from ddpmon.commands.family import announced_by
from ddpmon.commands.watch import show_live
from ddpmon.store.discovery import Announcement

_DOUBTFUL_S = 120.0  # a large job imports, connects and loads its data for so long before its first forward


def run_watched(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Start the command, show the dashboard, and wait for the command's end; returns its exit code.

    The dashboard can be closed before: then the command goes on, and signals reach it.
    """
    output, path = tempfile.mkstemp(prefix="ddpmon-run-", suffix=".log")
    try:
        process = subprocess.Popen(
            [*command], env=dict(environment), stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    except OSError as error:
        complain(f"{command[0]!r} cannot be started: {error.strerror}")
        Path(path).unlink()
        return NOT_EXECUTABLE
    finally:
        os.close(output)
    started = _Started(process, command[0])
    show_live(lambda recorder: Awaited(started, recorder))
    if process.poll() is None:
        complain(f"{command[0]} goes on; Ctrl-C ends it, and ddpmon watch shows it again")
    complain(f"its output is in {path}")
    return _wait(process)


def _wait(process: subprocess.Popen[bytes]) -> int:
    """The exit code of the command, as a shell reports it; what is to end this process ends the command."""
    signal.signal(signal.SIGINT, lambda *_: None)  # the terminal sends it to both
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: process.send_signal(number))
    code = process.wait()
    return 128 - code if code < 0 else code


class _Started:
    """The command, as the dashboard waits for its run."""

    def __init__(self, process: subprocess.Popen[bytes], name: str) -> None:
        self._process, self._name = process, printable(name)
        self._began = time.monotonic()

    def announced(self) -> Announcement | None:
        """The run whose rank 0 is a process of the command; None before there is one on this host."""
        return announced_by(self._process.pid)

    def stage(self) -> str:
        """How far it is before it is announced, in a sentence."""
        if (code := self._process.poll()) is not None:
            return f"{self._name} has ended with exit code {code}, and no run was announced: press q for its output"
        seconds = time.monotonic() - self._began
        waiting = f"{self._name} has been started {seconds:.0f} s ago; a run is announced in its first forward"
        if seconds < _DOUBTFUL_S:
            return waiting
        return (
            f"{waiting}. If the training is under way already, its processes may have another environment, or a "
            "Python without ddpmon: docs/any-run.md says what to look at"
        )
