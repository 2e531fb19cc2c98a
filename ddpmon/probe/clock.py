"""Marks in time on the training thread, and the durations between them, read later and elsewhere."""

from __future__ import annotations

import ctypes
from collections import deque
from contextlib import suppress
from time import perf_counter_ns
from typing import Any, Protocol


class Clock(Protocol):
    """A source of marks. `mark` runs on the training thread and never waits; the rest runs on the publisher's.

    A mark is host nanoseconds (`perf_counter_ns`), or it has them as `host_ns`.
    """

    name: str

    def read_here(self) -> None:
        """The calling thread is the one that will read marks."""

    def mark(self) -> Any:
        """Now, on this clock."""

    def ready(self, mark: Any) -> bool:
        """Whether `mark` (and all marks before it) can be read without waiting."""

    def ms(self, start: Any, end: Any) -> float:
        """Milliseconds from `start` to `end`."""

    def recycle(self, marks: list[Any]) -> None:
        """Take marks back that nobody will read again."""


class CpuClock:
    """Host time: right where work is done on the thread that launches it."""

    name = "perf_counter"
    mark = staticmethod(perf_counter_ns)

    def read_here(self) -> None:
        """Any thread reads host marks."""

    def ready(self, mark: int) -> bool:  # noqa: ARG002
        """A host mark can be read at once."""
        return True

    def ms(self, start: int, end: int) -> float:
        """Milliseconds between two host marks."""
        return (end - start) / 1e6

    def recycle(self, marks: list[int]) -> None:
        """Nothing to take back."""


class CudaClock:
    """Device time: pooled CUDA events on the current stream of the model's device.

    They are read later, by `query()`; the GPU is never synchronised.
    """

    name = "cuda events"
    _THREAD_LOCAL = 1  # CU_STREAM_CAPTURE_MODE_THREAD_LOCAL

    def __init__(self, device: Any) -> None:
        import torch

        self._set_device: Any = torch.cuda.set_device
        self._new_event: Any = torch.cuda.Event
        self._stream: Any = torch.cuda.current_stream
        self._device = device
        self._pool: deque[Any] = deque(maxlen=8192)

    def read_here(self) -> None:
        """Two things that a query would do from a new thread otherwise.

        It would make a context on the first GPU (500 MB, for every rank of the host), and it would break off a CUDA
        graph that the training thread is capturing.
        """
        self._set_device(self._device)
        with suppress(OSError, AttributeError):
            mode = ctypes.c_int(self._THREAD_LOCAL)
            ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))

    def mark(self) -> Any:
        """Record an event on the current stream."""
        try:
            event = self._pool.pop()
        except IndexError:
            event = self._new_event(enable_timing=True)
        event.record(self._stream(self._device))
        event.host_ns = perf_counter_ns()
        return event

    def ready(self, mark: Any) -> bool:
        """Whether the device has passed the event."""
        return bool(mark.query())

    def ms(self, start: Any, end: Any) -> float:
        """Milliseconds of device time between two passed events."""
        return float(start.elapsed_time(end))

    def recycle(self, marks: list[Any]) -> None:
        """Put events back into the pool."""
        self._pool.extend(marks)
