"""What the sensors share: the kernel's files, rates of its counters, reasons for what is missing, and safe names."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from time import monotonic
from typing import TypeVar

from ddpmon.parts import wire_text

T = TypeVar("T")
K = TypeVar("K")
_PIECE = 1 << 16
_MOST_BYTES = 16 << 20


class NotYet(Exception):  # noqa: N818 (a state of the world, no error)
    """A figure that needs another reading, or something to have happened; the message is the reason to show."""


class Readings:
    """Takes figures one by one: one that cannot be read is None, and `unread` says why."""

    def __init__(self) -> None:
        self.unread: dict[str, str] = {}

    def take(self, figures: str, read: Callable[..., T], *arguments: object) -> T | None:
        """What `read` returns; None if it raises, with the reason under each of the space-separated `figures`.

        An argument that is None is what could not be read before: then there is nothing to do, and that reason stands.
        """
        if any(argument is None for argument in arguments):
            return None
        try:
            return read(*arguments)
        except Exception as error:
            self.unread |= dict.fromkeys(figures.split(), reason(error))
            return None


class Rate:
    """What a counter gains a second, since the reading before."""

    def __init__(self) -> None:
        self._before: tuple[float, float] | None = None

    def __call__(self, value: float) -> float:
        """The mean rate since the last call.

        Raises:
            NotYet: it is the first, or the counter has started again from zero.
        """
        before, self._before = self._before, (value, monotonic())
        if before is None:
            raise NotYet("read once so far")
        if value < before[0]:
            raise NotYet("its counter has started again from zero")
        return (value - before[0]) / max(self._before[1] - before[1], 1e-3)


class Gains:
    """What several counters gain a second, since the reading before; one that is new counts nothing.

    Args:
        combined: what makes one number of their gains: their sum, or the largest.
    """

    def __init__(self, combined: Callable[[Iterable[float]], float] = sum) -> None:
        self._combined = combined
        self._before: tuple[Mapping[int, float], float] | None = None

    def __call__(self, values: Mapping[int, float]) -> float:
        """The mean rate since the last call.

        Raises:
            NotYet: it is the first.
        """
        before, self._before = self._before, (values, monotonic())
        if before is None:
            raise NotYet("read once so far")
        gained = self._combined(max(0.0, value - before[0].get(key, value)) for key, value in values.items())
        return gained / max(self._before[1] - before[1], 1e-3)


class Since:
    """How many events there were since the first reading (or ever), from running totals; one that falls was reset.

    Args:
        lifetime: count those before the first reading, too.
    """

    def __init__(self, *, lifetime: bool = False) -> None:
        self._lifetime = lifetime
        self._last: tuple[int, ...] | None = None
        self._seen: tuple[int, ...] = ()

    def __call__(self, *totals: int) -> int:
        """How many by now; of several counts of the same events the largest."""
        if self._last is None:
            self._seen = totals if self._lifetime else (0,) * len(totals)
        else:
            grown = (now - last if now >= last else now for now, last in zip(totals, self._last, strict=True))
            self._seen = tuple(seen + more for seen, more in zip(self._seen, grown, strict=True))
        self._last = totals
        return max(self._seen)


def read_file(path: str) -> str:
    """A whole file of the kernel's; bytes that are no UTF-8 are kept as the file system's names keep them.

    Raises:
        OSError: it cannot be read.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        pieces, size = [], 0
        while size < _MOST_BYTES and (piece := os.read(handle, _PIECE)):
            pieces.append(piece)
            size += len(piece)
    finally:
        os.close(handle)
    return os.fsdecode(b"".join(pieces))


def read_table(path: str) -> dict[str, int]:
    """A file of lines that begin with a name (a colon after it or not) and a whole number.

    Raises:
        OSError: it cannot be read.
    """
    lines = (line.split() for line in read_file(path).splitlines())
    return {line[0].rstrip(":"): int(line[1]) for line in lines if len(line) > 1 and line[1].isdigit()}


def reason(error: Exception) -> str:
    """Why something could not be read, in a few words."""
    if isinstance(error, NotYet):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return wire_text(f"{error.strerror}: {error.filename}" if error.filename else error.strerror)
    if isinstance(error, KeyError):
        return wire_text(f"the kernel does not say {error}")
    return wire_text(f"{type(error).__name__}: {error}")
