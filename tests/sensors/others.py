"""Real processes to be read: they spin, wait, or do what a test says."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

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
