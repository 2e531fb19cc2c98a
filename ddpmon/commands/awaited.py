"""What the dashboard shows of a training that a command has started, before there is a run and from then on."""

from __future__ import annotations

import time
from typing import Protocol

from ddpmon.run.model import Run
from ddpmon.snapshot import Link, Metric, Snapshot
from ddpmon.store.discovery import Announcement
from ddpmon.watcher.observer import Observer
from ddpmon.watcher.tap import Tap


class Announcing(Protocol):
    """A training that will be announced, such as the demo's."""

    def announced(self) -> Announcement | None:
        """Its announcement on this host; None before there is one."""

    def stage(self) -> str:
        """How far it is before it is announced, in a sentence."""


class Awaited:
    """Says how a training starts until it is announced, and is its run's observer from then on.

    Args:
        training: will be announced.
        tap: hears what the observer reads.

    Attributes:
        focus, metric: as an observer has them.
    """

    def __init__(self, training: Announcing, tap: Tap) -> None:
        self.focus: int | None = None
        self.metric: Metric = "lateness"
        self._training, self._tap = training, tap
        self._observer: Observer | None = None

    @property
    def run(self) -> Run | None:
        """What is known of the run; None before it was read."""
        return None if self._observer is None else self._observer.run

    def tick(self) -> Snapshot:
        """Look for the run, or at it."""
        if self._observer is None and (run := self._training.announced()) is not None:
            self._observer = Observer(f"{run.url}/{run.run_id}", tap=self._tap)
        if self._observer is None:
            return self.rebuild()
        self._observer.focus, self._observer.metric = self.focus, self.metric
        return self._observer.tick()

    def rebuild(self) -> Snapshot:
        """Freeze again what is known, without reading."""
        if self._observer is None:
            return Snapshot(Link("waiting", self._training.stage()), time.time(), time.monotonic())
        self._observer.focus, self._observer.metric = self.focus, self.metric
        return self._observer.rebuild()

    def close(self) -> None:
        """Let go of the store."""
        if self._observer is not None:
            self._observer.close()
