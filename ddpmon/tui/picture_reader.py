"""The one thread that reads: it waits for a wake-up, reads once, and hands over one frozen picture."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import fields
from typing import Protocol

from ddpmon.report.verdicts import is_reading
from ddpmon.snapshot import Metric, Snapshot


def tells_the_same(one: Snapshot, other: Snapshot) -> bool:
    """Whether two snapshots consist of the same parts, and only the times differ."""
    names = (each.name for each in fields(Snapshot) if not each.name.startswith("taken_"))
    return all(getattr(one, name) is getattr(other, name) for name in names)


class Source(Protocol):
    """Gives frozen pictures of a run; called from the reader thread only, except `focus` and `metric`.

    Attributes:
        focus: the rank whose detail the next picture carries; set by the screen, None for no rank.
        metric: what its heat-map shows; set by the screen.
    """

    focus: int | None
    metric: Metric

    def tick(self) -> Snapshot:
        """Read the store and freeze a picture; may block for seconds, never raises."""

    def rebuild(self) -> Snapshot:
        """Freeze the same data again without any I/O, after `focus` or `metric` has changed."""

    def close(self) -> None:
        """Let go of the store."""


class Reader(threading.Thread):
    """Reads when woken; a wake-up during a read is remembered once, never queued.

    It is a daemon and nobody joins it, so a read that blocks cannot delay quitting.
    """

    def __init__(
        self, source: Source, deliver: Callable[[Snapshot], None], fail: Callable[[BaseException], None]
    ) -> None:
        super().__init__(name="ddpmon-reader", daemon=True)
        self._source = source
        self._deliver = deliver
        self._fail = fail
        self._woken = threading.Event()
        self._tick_due = False
        self._stopping = False

    def wake(self) -> None:
        """Ask for a fresh reading."""
        self._tick_due = True
        self._woken.set()

    def refocus(self) -> None:
        """Ask for the same data with another rank in focus or another metric."""
        self._woken.set()

    def stop(self) -> None:
        """Let the thread close its source and end as soon as it is free to."""
        self._stopping = True
        self._woken.set()

    def run(self) -> None:
        """Serve wake-ups until stopped."""
        try:
            while self._await_wake():
                self._read()
            self._source.close()
        except Exception as error:  # a dead reader would look like a silent store: say it instead
            self._hand(self._fail, error)

    def _await_wake(self) -> bool:
        self._woken.wait()
        self._woken.clear()
        return not self._stopping

    def _read(self) -> None:
        due, self._tick_due = self._tick_due, False
        snapshot = self._source.tick() if due else self._source.rebuild()
        if is_reading(snapshot):
            self.wake()
        if not self._stopping:
            self._hand(self._deliver, snapshot)

    def _hand(self, receiver: Callable[..., None], thing: object) -> None:
        try:
            receiver(thing)
        except RuntimeError:  # the app's loop has closed meanwhile
            self._stopping = True
            self._woken.set()
