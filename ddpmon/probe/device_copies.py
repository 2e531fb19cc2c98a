"""Single numbers on their way from a device to the host: copied behind the work, read when they have arrived."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ddpmon.probe.clock import CudaClock
from ddpmon.probe.record import NO_NUMBER

_SLOTS = 2048
_SLOT_BYTES = 8
_BFLOAT16 = "H"  # which `struct` does not know: the upper half of a float32
_FORMATS = {
    torch.float64: "d",
    torch.float32: "f",
    torch.float16: "e",
    torch.bfloat16: _BFLOAT16,
    torch.int64: "q",
    torch.int32: "i",
}
_kept: list[Tensor] = []  # the pinned memory of all monitors of this process: see `DeviceCopies`


class DeviceCopies:
    """Copies tensors of one element into pinned memory, on the current stream; nothing is synchronised.

    The memory holds the last 2,048 copies, which the publisher reads long before they are overwritten. A plain tensor
    is copied by the driver: with torch's own `copy_` the hook took 71 µs in a step on an H100, with this 40
    (docs/measured/gpu.md). Nothing is copied while the stream is being captured: the copy would become a part of the
    user's CUDA graph. The memory (16 KiB for each `attach`) is never given back: torch does not know of the copies that
    are still on their way, and would let the user's own tensors have it.

    Args:
        clock: of the model's device.

    Attributes:
        made: how many copies there have been.
    """

    plain: tuple[type, ...] = (Tensor,)

    def __init__(self, clock: CudaClock) -> None:
        # On the CPU whatever the user's default device is.
        pinned = torch.cuda.is_available()
        buffer = torch.empty(_SLOTS, dtype=torch.float64, device="cpu", pin_memory=pinned)
        _kept.append(buffer)
        self._floats = buffer.view(torch.float32)
        self._address = buffer.data_ptr()
        self.bytes: Any = (ctypes.c_char * (_SLOTS * _SLOT_BYTES)).from_address(self._address)
        self._clock = clock
        self._events: list[Any] = [None] * _SLOTS
        self.made = 0

    def take(self, value: Tensor) -> Any:
        """Begin to copy; returns a `Copy`, or NO_NUMBER for what is no single number or cannot be copied."""
        if value.numel() != 1 or self._clock.is_capturing():
            return NO_NUMBER
        try:
            return self._copied(value)
        except Exception:  # such as of a tensor inside torch.func.grad, which has no memory of its own
            return NO_NUMBER

    def _copied(self, value: Tensor) -> Copy:
        number, slot = self.made, self.made % _SLOTS
        self.made += 1  # before the copy: whoever reads the slot's last number from now on may get this one
        form = self._copy_plain(value, slot)
        if not form:
            self._floats[2 * slot].copy_(value.detach().reshape(()), non_blocking=True)
        return Copy(self, number, form or "f", self._mark(value, slot))

    def _copy_plain(self, value: Tensor, slot: int) -> str:
        """Copy a plain tensor by the driver; returns the format of its number, empty if that cannot be done."""
        if type(value) not in self.plain or value.get_device() != self._clock.index or value.is_neg():
            return ""
        form = _FORMATS.get(value.dtype, "")
        if not form or value.layout is not torch.strided:
            return ""
        to = self._address + _SLOT_BYTES * slot
        return form if self._clock.copy(to, value.data_ptr(), value.element_size()) else ""

    def _mark(self, value: Tensor, slot: int) -> Any:
        """The event behind the copy; an event records on one device only."""
        if value.get_device() != self._clock.index:
            event: Any = torch.cuda.Event()
            event.record(torch.cuda.current_stream(value.device))
            return event
        event = self._events[slot]
        if event is None:
            event = self._events[slot] = torch.cuda.Event()
        return self._clock.record(event)


def _has_passed(event: Any) -> bool:
    return bool(event.query())


class Copy:
    """A number on its way to the host."""

    __slots__ = ("_copies", "_event", "_format", "_number")

    def __init__(self, copies: DeviceCopies, number: int, form: str, event: Any) -> None:
        self._copies, self._number, self._format, self._event = copies, number, form, event

    @property
    def _is_overwritten(self) -> bool:
        return self._copies.made - self._number > _SLOTS

    def ready(self, passed: Callable[[Any], bool] = _has_passed) -> bool:
        """Whether the copy has arrived, or never will; `passed` says whether the device has passed an event."""
        return self._is_overwritten or passed(self._event)

    def value(self) -> float:
        """The number, once ready; NO_NUMBER if nobody read it before its place was taken by a later one."""
        if self._is_overwritten:
            return NO_NUMBER
        (found,) = struct.unpack_from(self._format, self._copies.bytes, _SLOT_BYTES * (self._number % _SLOTS))
        if self._format == _BFLOAT16:
            (found,) = struct.unpack("<f", struct.pack("<I", found << 16))
        return float(found)
