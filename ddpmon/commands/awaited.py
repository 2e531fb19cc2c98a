"""What the dashboard shows of a training that a command has started, before there is a run and from then on."""

from __future__ import annotations

import time
from typing import Protocol

from ddpmon.snapshot import Link, Metric, Snapshot
from ddpmon.store.discovery import Announcement
from ddpmon.watcher.observer import Observer


class Announcing(Protocol):
    """A training that will be announced, such as the demo's."""

    def announced(self) -> Announcement | None:
        """Its announcement on this host; None before there is one."""

    def stage(self) -> str:
        """How far it is before it is announced, in a sentence."""


class Awaited:
    """A source that says how a training starts until it is announced, and is its run's observer from then on."""

    def __init__(self, training: Announcing) -> None:
        self.focus: int | None = None
        self.metric: Metric = "lateness"
        self._training = training
        self._observer: Observer | None = None

    def tick(self) -> Snapshot:
        """Look for the run, or at it."""
        if self._observer is None and (run := self._training.announced()) is not None:
            self._observer = Observer(f"{run.url}/{run.run_id}")
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
