"""Real processes to be read, which spin, wait, or do what a test says; and what bounds a rate that is read of them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

import psutil

T = TypeVar("T")
DEADLINE_S = 60.0
SPIN = "\nwhile True: pass"
WAIT = "\nimport sys; sys.stdin.read()"


@contextmanager
def running(program: str, *words: str | bytes) -> Iterator[subprocess.Popen[bytes]]:
    """A Python process whose `program` has printed a line; at the end it is gone."""
    command = [sys.executable, "-c", program, *words]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline(), "it ended before it was ready"
        yield process
    finally:
        process.kill()
        process.communicate()


def program(*lines: str, then: str = WAIT) -> str:
    """What is done at once, that it is done, and what follows."""
    return "\n".join([*lines, "print(flush=True)"]) + then


def until(read: Callable[[], T], good: Callable[[T], bool], pause_s: float = 0.2) -> T:
    """Read again and again until it is as it should be."""
    deadline = time.monotonic() + DEADLINE_S
    while not good(value := read()):
        assert time.monotonic() < deadline, value
        time.sleep(pause_s)
    return value


class Framed(Generic[T]):
    """Reads a sensor, and on both sides of every reading the counters behind it with the time.

    A rate that the sensor gives must lie within what these allow, however long the machine stalls in between.

    Args:
        read: reads the sensor.
        counters: reads the counters, which never fall.
    """

    def __init__(self, read: Callable[[], T], counters: Callable[[], Sequence[float]]) -> None:
        self._read, self._counters = read, counters
        self._frames: list[tuple[list[float], list[float]]] = []

    def read(self) -> T:
        """Read the sensor."""
        before = [time.monotonic(), *self._counters()]
        value = self._read()
        after = [*self._counters(), time.monotonic()]
        self._frames = [*self._frames, (before, [after[-1], *after[:-1]])][-2:]
        return value

    def allows(self, number: int, rate: float | None) -> bool:
        """Whether this counter can have gained so much a second between the last two readings."""
        (first_before, first_after), (last_before, last_after) = self._frames
        gained = last_before[number + 1] - first_after[number + 1], last_after[number + 1] - first_before[number + 1]
        least, most = gained[0] / (last_after[0] - first_before[0]), gained[1] / (last_before[0] - first_after[0])
        return rate is not None and least * (1 - 1e-6) <= rate <= most * (1 + 1e-6)


def cpu_seconds(*pids: int) -> float:
    """What these processes have used of CPUs, without their children."""
    return sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids)
