"""A real training of several ranks, and a watcher on it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ddpmon.snapshot import Snapshot
from ddpmon.watcher.observer import Observer
from tests.ranks import Group

TINY = ("--layers=1", "--width=32", "--heads=2", "--batch=2", "--context=32")


class LiveRun:
    """Ranks of the trainer, each a process that leads a session of its own.

    Args:
        folder: where the discovery file and the log go.
        ranks: how many.
        arguments: the trainer's.
        together: end the other ranks by SIGTERM when one has failed, as launchers do.
    """

    def __init__(self, folder: Path, ranks: int, *arguments: str, together: bool = True) -> None:
        self.log = folder / "training.log"
        environment = {"XDG_RUNTIME_DIR": str(folder)}
        self.group = Group(ranks, "trainer", arguments, [self.log], environment=environment, together=together)

    def end(self) -> None:
        """Kill every rank."""
        self.group.end()


@contextlib.contextmanager
def live_run(
    monkeypatch: pytest.MonkeyPatch, folder: Path, ranks: int, *arguments: str, together: bool = True
) -> Iterator[tuple[LiveRun, Observer]]:
    """A training and an observer that finds it by itself; both are gone at the end."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", str(folder))  # where runs without XDG_RUNTIME_DIR are announced
    run, observer = LiveRun(folder, ranks, *arguments, together=together), Observer(None)
    try:
        yield run, observer
    finally:
        observer.close()
        run.end()


def watch_until(
    observer: Observer, what: Callable[[Snapshot], object], deadline_s: float = 240.0, log: Path | None = None
) -> Snapshot:
    """Tick until `what` holds; fails with the last picture in words when the deadline passes."""
    until = time.monotonic() + deadline_s
    while True:
        snapshot = observer.tick()
        if what(snapshot):
            return snapshot
        if time.monotonic() > until:
            said = log.read_text()[-2000:] if log else ""
            pytest.fail(f"not seen in time: {snapshot.link} {snapshot.run} {snapshot.findings}\n{said}")
        time.sleep(0.4)


def step_of(snapshot: Snapshot) -> int:
    """The run's step, -1 before the first."""
    return -1 if snapshot.run is None or snapshot.run.step is None else snapshot.run.step
