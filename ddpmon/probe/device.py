"""How far the device has come, asked while no step finishes: its host may have queued everything long ago."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from time import monotonic
from typing import TypeVar

from ddpmon.parts import NO_ANSWER
from ddpmon.probe.clock import Clock, CpuClock, DeviceError
from ddpmon.probe.record import Taken
from ddpmon.probe.step_assembler import StepAssembler

QUIET_S = 2.0  # without a step that could be read: a call into the driver may block from now on
_WAIT_S = 0.5  # for an answer, which takes microseconds from a driver that answers at all
_NO_ANSWER_S = 5.0  # far longer than a cudaMalloc or the loading of a kernel holds the context's lock
_MAX_ASKED = 4096  # marks: they take some 10 ms
_BETWEEN = "other"  # what a device is in that has passed a sync point and no mark since
_WAITS = ("exposed", "barrier")
_AMBIGUOUS_STEPS = 2  # after a step with collectives that were not marked

T = TypeVar("T")


class Aside:
    """Runs one job at a time in a thread of its own: a driver that blocks holds up no frame.

    Args:
        prepare: gives what each such thread does first; called by the thread that asks.
    """

    def __init__(self, prepare: Callable[[], Callable[[], None]]) -> None:
        self._prepare = prepare
        self._thread: threading.Thread | None = None
        self._since = 0.0

    @property
    def is_busy(self) -> bool:
        """Whether a job is under way."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def busy_s(self) -> float:
        """Seconds since the job under way was handed over, 0 without one."""
        return monotonic() - self._since if self.is_busy else 0.0

    def ask(self, job: Callable[[], T], default: T) -> T:
        """What `job` returns; `default` if it takes longer than 0.5 s, or raises, or an earlier job is under way."""
        if self.is_busy:
            return default
        answers: list[T] = []
        prepare = self._prepare()

        def run() -> None:
            try:
                prepare()
                answers.append(job())
            except Exception:
                answers.append(default)

        self._thread, self._since = threading.Thread(target=run, name="ddpmon-device", daemon=True), monotonic()
        try:
            self._thread.start()
        except RuntimeError:  # no more threads for this process
            self._thread = None
            return default
        self._thread.join(_WAIT_S)
        return answers[0] if answers else default


class DeviceWatch:
    """Asks for the marks of the steps under way, in the order in which the device passes them.

    Attributes:
        phase: the last phase that the device has reached, "" while unknown: on a host's clock always.
        error: why the device cannot go on, `NO_ANSWER` if the driver does not come back, "" otherwise.
    """

    def __init__(self, clock: Clock, replay: StepAssembler) -> None:
        self._clock = clock
        self._replay = replay
        self._aside = Aside(clock.read_aside)
        self.phase = self.error = ""

    def ask(self, job: Callable[[], T], default: T) -> T:
        """What `job` returns, which asks for marks: at once while steps finish, else aside (see `Aside.ask`)."""
        return self._aside.ask(job, default) if self._clock.is_quiet else job()

    @property
    def answers(self) -> bool:
        """Whether the driver has come back from the last query."""
        return not self._aside.is_busy

    def clear(self) -> None:
        """Steps finish: forget what was seen."""
        self.phase = self.error = ""

    def inspect(self) -> None:
        """Find out where the device is; takes 0.5 s at most."""
        if self._clock.name == CpuClock.name:
            return
        self._clock.is_quiet = True  # no step has finished on the host for longer than `QUIET_S`
        host, timeline = self._replay.phase, self._replay.timeline()
        found = self._aside.ask(lambda: _reached(self._clock, timeline, host), ("", ""))
        if self._aside.is_busy:
            self.phase, self.error = "", NO_ANSWER if self._aside.busy_s >= _NO_ANSWER_S else self.error
        else:
            self.phase, self.error = found
        if self._is_ambiguous():
            self.phase = ""

    def _is_ambiguous(self) -> bool:
        """Whether the phase does not say if the device waits: it may, in a collective without marks or in a graph."""
        unmarked = 0 <= self._replay.unmarked_step >= self._replay.step - _AMBIGUOUS_STEPS
        return self._replay.captured_ns is not None or (unmarked and self.phase not in _WAITS)


def _reached(clock: Clock, timeline: Sequence[Taken], host: str) -> tuple[str, str]:
    """The phase that the device is in, and why it cannot go on; the host's phase if it has passed every mark."""
    reached = _BETWEEN
    try:
        for taken in timeline[:_MAX_ASKED]:
            if not clock.ready(taken.mark):
                return reached[:64], ""
            reached = taken.phase
    except DeviceError as error:
        return "", str(error)
    return (host if len(timeline) <= _MAX_ASKED else "")[:64], ""
