"""A real training of several ranks, and a watcher on it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from ddpmon.observe import Observer
from ddpmon.snapshot import Snapshot

TINY = ("--layers=1", "--width=32", "--heads=2", "--batch=2", "--context=32")


class LiveRun:
    """Ranks of the trainer, which starts them itself: torch is then imported once. They have a session of their own.

    Args:
        folder: where the discovery file and the log go.
        ranks: how many.
        arguments: the trainer's.
    """

    def __init__(self, folder: Path, ranks: int, *arguments: str) -> None:
        self.log = folder / "training.log"
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "XDG_RUNTIME_DIR": str(folder)}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "ddpmon.trainer", f"--nproc={ranks}", *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def end(self) -> None:
        """Kill the launcher and every rank."""
        with contextlib.suppress(psutil.NoSuchProcess):
            family = psutil.Process(self.process.pid).children(recursive=True)
            for process in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextlib.contextmanager
def live_run(
    monkeypatch: pytest.MonkeyPatch, folder: Path, ranks: int, *arguments: str
) -> Iterator[tuple[LiveRun, Observer]]:
    """A training and an observer that finds it by itself; both are gone at the end."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", str(folder))  # where runs without XDG_RUNTIME_DIR are announced
    run, observer = LiveRun(folder, ranks, *arguments), Observer(None)
    try:
        yield run, observer
    finally:
        observer.close()
        run.end()


def watch_until(
    observer: Observer, what: Callable[[Snapshot], object], deadline_s: float = 120.0, run: LiveRun | None = None
) -> Snapshot:
    """Tick until `what` holds; fails with the last picture in words when the deadline passes."""
    until = time.monotonic() + deadline_s
    while True:
        snapshot = observer.tick()
        if what(snapshot):
            return snapshot
        if time.monotonic() > until:
            log = run.log.read_text()[-2000:] if run else ""
            pytest.fail(f"not seen in time: {snapshot.link} {snapshot.run} {snapshot.findings}\n{log}")
        time.sleep(0.4)


def step_of(snapshot: Snapshot) -> int:
    """The run's step, -1 before the first."""
    return -1 if snapshot.run is None or snapshot.run.step is None else snapshot.run.step
