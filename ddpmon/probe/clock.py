"""Marks in time on the training thread, durations between them, and the GPU driver's word on both, read later."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import perf_counter_ns
from typing import Any, Protocol

_CUDA = (("libcuda.so.1",), "cu")
_ROCM = (("libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"), "hip")
_THREAD_LOCAL = 1  # CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, hipStreamCaptureModeThreadLocal
_PASSED, _NOT_PASSED = 0, 600  # CUDA_SUCCESS, CUDA_ERROR_NOT_READY
_BROKEN = {  # after these a context cannot be used again; other errors come from how a call was made (cuda.h)
    46: "device unavailable",
    214: "uncorrectable ECC error",
    220: "NVLink error",
    700: "illegal memory access",
    702: "a kernel ran too long",
    710: "assertion in a kernel",
    714: "hardware stack error",
    715: "illegal instruction",
    716: "misaligned address",
    717: "invalid address space",
    718: "invalid program counter",
    719: "a kernel failed",
    999: "unknown error",
}

Function = Callable[..., int]
_COPY = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)  # to, from, bytes, stream


class DeviceError(RuntimeError):
    """The device cannot go on: "700 (illegal memory access)"."""


class Driver:
    """The functions of the driver that exist here. Any thread may call them, and they may block as the driver does.

    Args:
        on_rocm: whether the GPU is AMD's.
    """

    def __init__(self, *, on_rocm: bool) -> None:
        libraries, prefix = _ROCM if on_rocm else _CUDA
        self._exchange = _function(libraries, f"{prefix}ThreadExchangeStreamCaptureMode")
        self._query = _function(libraries, f"{prefix}EventQuery")
        self._record = _function(libraries, f"{prefix}EventRecord")
        self._get_context = _function(libraries, f"{prefix}CtxGetCurrent")
        self._set_context = _function(libraries, f"{prefix}CtxSetCurrent")
        # Of ROCm a second library may be loaded here beside torch's, whose streams it does not know.
        self._copy = None if on_rocm else _function(libraries, "cuMemcpyDtoHAsync_v2", _COPY)

    @property
    def keeps_out(self) -> bool:
        """Whether a thread can keep its queries out of other threads' captures."""
        return self._exchange is not None

    def keep_out(self) -> None:
        """Keep the queries of the calling thread from breaking off the graphs that other threads capture."""
        if self._exchange is not None:
            self._exchange(ctypes.byref(ctypes.c_int(_THREAD_LOCAL)))

    @property
    def context(self) -> int:
        """The context of the calling thread, 0 if it has none or the driver does not say. Never waits."""
        found = ctypes.c_void_p()
        known = self._get_context is not None and self._get_context(ctypes.byref(found)) == _PASSED
        return (found.value or 0) if known else 0

    def enter(self, context: int) -> None:
        """Make a context that of the calling thread."""
        if self._set_context is not None:
            self._set_context(ctypes.c_void_p(context))

    def passed(self, event: Any) -> bool | None:
        """Whether the device has passed a torch event; None where the driver cannot be asked for it.

        Raises:
            DeviceError: the device cannot go on.
        """
        handle = event.cuda_event
        if self._query is None or not handle:
            return None
        code = self._query(ctypes.c_void_p(handle))
        if code in _BROKEN:
            raise DeviceError(f"{code} ({_BROKEN[code]})")
        return code == _PASSED if code in (_PASSED, _NOT_PASSED) else None

    def record(self, event: Any, stream: Any) -> bool:
        """Record a torch event that was recorded before; False where this cannot be done here: torch must."""
        handle = event.cuda_event
        if self._record is None or not handle:
            return False
        return self._record(ctypes.c_void_p(handle), ctypes.c_void_p(stream.cuda_stream)) == _PASSED

    def copy(self, to: int, source: int, size: int, stream: Any) -> bool:
        """Copy bytes of a device to pinned memory behind what is on a stream; False where that cannot be done here."""
        return self._copy is not None and self._copy(to, source, size, stream.cuda_stream) == _PASSED


def _function(libraries: tuple[str, ...], name: str, takes: Sequence[type] | None = None) -> Function | None:
    """A function of the first library that has it, told what it takes if it is called with plain numbers."""
    for library in libraries:
        with suppress(OSError, AttributeError):
            found: Any = getattr(ctypes.CDLL(library), name)
            if takes is not None:
                found.argtypes = takes
            return found  # type: ignore[no-any-return]
    return None


class Clock(Protocol):
    """A source of marks. `mark` runs on the training thread and never waits; the rest runs on the publisher's.

    A mark is host nanoseconds (`perf_counter_ns`), or it has them as `host_ns`.

    Attributes:
        is_quiet: whether no step has been read for 2 s: to ask for a mark may block from now on.
        is_stalling: whether none has been for much longer than a step takes: to take a mark may block, too. The
            publisher sets both; what may block then lets go of the GIL.
    """

    name: str
    is_quiet: bool
    is_stalling: bool

    def read_here(self) -> None:
        """The calling thread is the one that will read marks."""

    def read_aside(self) -> Callable[[], None]:
        """What another thread must do first that reads marks for the calling one, without waiting for the device."""

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
    is_quiet = is_stalling = False
    mark = staticmethod(perf_counter_ns)

    def read_here(self) -> None:
        """Any thread reads host marks."""

    def read_aside(self) -> Callable[[], None]:
        """Any thread reads host marks."""
        return self.read_here

    def ready(self, mark: int) -> bool:  # noqa: ARG002
        """A host mark can be read at once."""
        return True

    def ms(self, start: int, end: int) -> float:
        """Milliseconds between two host marks."""
        return (end - start) / 1e6

    def recycle(self, marks: list[int]) -> None:
        """Nothing to take back."""


class CapturedMark:
    """Stands for an event while a CUDA graph is captured: an event there would become a part of the graph.

    The device never passes it as the training goes on, so that no time can be read from it.
    """

    __slots__ = ("host_ns",)

    def __init__(self) -> None:
        self.host_ns = perf_counter_ns()


class CudaClock:
    """Device time: pooled CUDA events on the current stream of the model's device.

    They are read later, by `query()`; the GPU is never synchronised. A mark costs a look at which stream is current
    and whether it is being captured, and the recording itself: the stream's Python object is kept, because making one
    takes longer than all of these.

    While no step finishes the driver is called through ctypes instead: `query()` and `record()` may block then, behind
    the context's lock or a full launch queue, and with a torch that holds the GIL in them all threads of the process
    would wait. (torch 2.11 lets it go: docs/measured/gpu.md, row 2.)

    Args:
        device: the model's.

    Attributes:
        index: the device's number.

    Raises:
        RuntimeError: reading events from another thread would break off the CUDA graphs that this one captures.
    """

    name = "cuda events"
    is_quiet = is_stalling = False

    def __init__(self, device: Any) -> None:
        import torch

        self._set_device: Any = torch.cuda.set_device
        self._new_event: Any = torch.cuda.Event
        # Event.record in Python only looks for a stream, which is known here.
        self._record: Any = getattr(torch.cuda.Event.__base__, "record", torch.cuda.Event.record)
        self._current: Any = torch._C._cuda_getCurrentStream
        self._current_device: Any = torch._C._cuda_getDevice
        self._stream_of: Any = torch.cuda.current_stream
        # Without torch's wrapper around it, which every mark would pay for.
        is_capturing = torch.cuda.is_current_stream_capturing
        self.is_capturing: Any = getattr(torch._C, "_cuda_isCurrentStreamCapturing", is_capturing)
        self._device, self.index = device, device.index or 0
        self._latest: tuple[Any, Any] = (None, None)  # what torch calls the current stream, and its object
        self._pool: deque[Any] = deque(maxlen=8192)
        on_rocm = torch.version.hip is not None
        self._driver = Driver(on_rocm=on_rocm)
        if on_rocm and not self._driver.keeps_out:
            raise RuntimeError("this ROCm lets no other thread read events while the training captures a graph")

    def read_here(self) -> None:
        """Two things that a query would do from a new thread otherwise.

        It would make a context on the first GPU (500 MB, for every rank of the host), and it would break off a CUDA
        graph that the training thread is capturing.
        """
        self._set_device(self._device)
        self._driver.keep_out()

    def read_aside(self) -> Callable[[], None]:
        """The same without torch, whose `set_device` may wait for a driver that does not answer, with the GIL."""
        context = self._driver.context
        if not context:
            return self.read_here

        def prepare() -> None:
            self._driver.enter(context)
            self._driver.keep_out()

        return prepare

    def mark(self) -> Any:
        """Record an event on the current stream; a `CapturedMark` and no event while that is being captured."""
        if self.is_capturing():
            return CapturedMark()
        try:
            event = self._pool.pop()
        except IndexError:
            event = self._new_event(enable_timing=True)
        return self.record(event)

    def record(self, event: Any) -> Any:
        """Record an event of the caller's on the current stream, which must not be captured; returns the event."""
        stream = self._stream()
        if not self.is_stalling or not self._driver.record(event, stream):
            self._record(event, stream)
        event.host_ns = perf_counter_ns()
        return event

    def copy(self, to: int, source: int, size: int) -> bool:
        """Copy bytes of the device to pinned host memory behind the work on the current stream.

        Args:
            to: address in pinned memory.
            source: address on the device.
            size: bytes.

        Returns:
            False where the driver cannot do that here: torch must copy. So where another device is the current one, of
            which the driver would take the default stream.
        """
        return self._current_device() == self.index and self._driver.copy(to, source, size, self._stream())

    def _stream(self) -> Any:
        """The current stream's object."""
        now = self._current(self.index)
        known, stream = self._latest  # one object: marks are taken on the autograd engine's threads, too
        if now != known:
            stream = self._stream_of(self._device)
            self._latest = now, stream
        return stream

    def ready(self, mark: Any) -> bool:
        """Whether the device has passed the event; a `CapturedMark` is not waited for.

        Raises:
            DeviceError: the device cannot go on.
        """
        if type(mark) is CapturedMark:
            return True
        passed = self._driver.passed(mark) if self.is_quiet else None
        return bool(mark.query()) if passed is None else passed

    def ms(self, start: Any, end: Any) -> float:
        """Milliseconds of device time between two passed events."""
        return float(start.elapsed_time(end))

    def recycle(self, marks: list[Any]) -> None:
        """Put events back into the pool."""
        self._pool.extend(mark for mark in marks if type(mark) is not CapturedMark)
