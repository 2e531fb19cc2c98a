"""What the dashboard shows of a training run that has only just been started: how far it is, and then the run."""

from __future__ import annotations

import time

from ddpmon.commands.training import Training
from ddpmon.observe import Observer
from ddpmon.snapshot import Link, Snapshot


class Awaited:
    """A source that says how a training starts until it is announced, and is its run's observer from then on."""

    def __init__(self, training: Training) -> None:
        self.focus: int | None = None
        self._training = training
        self._observer: Observer | None = None

    def tick(self) -> Snapshot:
        """Look for the run, or at it."""
        if self._observer is None and (run := self._training.announced()) is not None:
            self._observer = Observer(run.url)
        if self._observer is None:
            return self.refreeze()
        self._observer.focus = self.focus
        return self._observer.tick()

    def refreeze(self) -> Snapshot:
        """Freeze again what is known, without reading."""
        if self._observer is None:
            return Snapshot(Link("waiting", self._training.stage()), time.time(), time.monotonic())
        self._observer.focus = self.focus
        return self._observer.refreeze()

    def close(self) -> None:
        """Let go of the store."""
        if self._observer is not None:
            self._observer.close()
