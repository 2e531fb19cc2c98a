"""The GPU driver's own calls through ctypes, which releases the GIL: torch holds it while it asks for an event.

CUDA's names are those of libcuda; ROCm's library takes the same arguments and gives the same error numbers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from typing import Any

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


def _function(libraries: tuple[str, ...], name: str) -> Function | None:
    """A function of the first library that has it."""
    for library in libraries:
        with suppress(OSError, AttributeError):
            found: Function = getattr(ctypes.CDLL(library), name)
            return found
    return None
