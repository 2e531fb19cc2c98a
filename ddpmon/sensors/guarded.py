"""A sensor in a thread of its own: one that hangs or fails holds up neither a frame nor another sensor."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic, thread_time_ns
from typing import Generic, TypeVar

from ddpmon.sensors.reading import reason

T = TypeVar("T")
PATIENCE_S = 5.0
FAILURES = 5


def _nothing() -> None:
    pass


class Guarded(Generic[T]):
    """Calls `read` again and again until it is stopped, and `at_end` then.

    One that raises is called again `FAILURES` times, and no more if it raised each time.

    Attributes:
        name: how notes call it.
        cost_ns: the CPU time that its thread has taken.
    """

    def __init__(
        self, name: str, read: Callable[[], T], interval_s: float = 1.0, at_end: Callable[[], None] = _nothing
    ) -> None:
        self.name = name
        self.cost_ns = 0
        self._read, self._interval_s, self._at_end = read, interval_s, at_end
        self._taken: tuple[T, int] | None = None
        self._reads = 0
        self._began: float | None = None
        self._failures = 0
        self._failure = ""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"ddpmon-{name}", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Ask for the end; does not wait."""
        self._stopping.set()

    @property
    def value(self) -> T | None:
        """What was read last; None while there is trouble, or nothing yet."""
        return None if (taken := self.latest) is None else taken[0]

    @property
    def latest(self) -> tuple[T, int] | None:
        """The same, and which reading it is of."""
        return None if self.trouble else self._taken

    @property
    def trouble(self) -> str | None:
        """Why there is no value, as far as that is not just the beginning."""
        began = self._began
        if began is not None and monotonic() - began > PATIENCE_S:
            return f"no answer for {monotonic() - began:.0f} s"
        if self._failures >= FAILURES:
            return f"switched off after {FAILURES} errors: {self._failure}"[:200]
        return self._failure[:200] if self._failures else None

    def _run(self) -> None:
        while self._failures < FAILURES:
            self._began = monotonic()
            try:
                value, self._reads = self._read(), self._reads + 1
                self._taken, self._failures = (value, self._reads), 0
            except Exception as error:
                self._failure = reason(error)
                self._failures += 1
            self._began = None
            self.cost_ns = thread_time_ns()
            if self._stopping.wait(self._interval_s):
                break
        self._at_end()
