"""The loss and the samples as the trainer logged them, read without synchronising the device."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from ddpmon.parts import BadLoss
from ddpmon.probe.record import NO_NUMBER, StepRow

_SLOTS = 2048


def number(value: Any) -> float:
    """What was logged as a float; NO_NUMBER for what is none, whatever its conversion raises."""
    try:
        if isinstance(value, Tensor):
            value = value.tolist() if value.ndim == 0 else value.item()  # tolist goes past the dispatcher
        return float(value)
    except Exception:
        return NO_NUMBER


class LossReader:
    """Turns what was logged, a loss or a count of samples, into a float, or into a handle that becomes one later.

    A CUDA tensor is copied into a pinned host buffer behind the work already queued on the current stream. The buffer
    holds the last 2,048 copies, which the publisher reads long before they are overwritten. Nothing is copied while the
    stream is being captured: the copy would become a part of the user's CUDA graph.
    """

    def __init__(self, *, on_cpu: bool) -> None:
        self._buffer: Tensor | None = None
        if not on_cpu:  # on the CPU whatever the user's default device is
            pinned = torch.cuda.is_available()
            self._buffer = torch.empty(_SLOTS, dtype=torch.float32, device="cpu", pin_memory=pinned)
        self._slots: list[_Slot | None] = [None] * _SLOTS
        self.copies = 0

    def take(self, value: Any) -> Any:
        """A float at once, or a handle with `.ready()` and `.value()`; NO_NUMBER for what is no single number."""
        if isinstance(value, Tensor) and value.is_cuda:
            return self._copied(value.detach())
        return number(value)

    def _copied(self, value: Tensor) -> Any:
        if value.numel() != 1 or self._buffer is None or torch.cuda.is_current_stream_capturing():
            return NO_NUMBER
        place = self.copies % _SLOTS
        slot = self._slots[place]
        if slot is None or slot.device != value.device:
            slot = self._slots[place] = _Slot(self._buffer[place], value.device)
        self.copies += 1
        slot.fill(value)
        return _Copied(self, self.copies, slot)


class _Slot:
    """One place of the buffer, with the event behind the last copy to it; an event records on one device only."""

    __slots__ = ("device", "event", "place")

    def __init__(self, place: Tensor, device: torch.device) -> None:
        self.place = place
        self.device = device
        self.event: Any = torch.cuda.Event()

    def fill(self, value: Tensor) -> None:
        """Copy `value` behind the work already queued on its device."""
        self.place.copy_(value.reshape(()), non_blocking=True)
        self.event.record(torch.cuda.current_stream(self.device))


def _has_passed(event: Any) -> bool:
    return bool(event.query())


class _Copied:
    """A number on its way to the host."""

    __slots__ = ("_number", "_reader", "_slot")

    def __init__(self, reader: LossReader, number: int, slot: _Slot) -> None:
        self._reader = reader
        self._number = number
        self._slot = slot

    @property
    def _is_overwritten(self) -> bool:
        return self._reader.copies - self._number >= _SLOTS

    def ready(self, passed: Callable[[Any], bool] = _has_passed) -> bool:
        """Whether the copy has arrived, or never will; `passed` says whether the device has passed an event."""
        return self._is_overwritten or passed(self._slot.event)

    def value(self) -> float:
        """The number, once ready; NO_NUMBER if nobody read it before its place was taken by a later one."""
        return NO_NUMBER if self._is_overwritten else float(self._slot.place)


class BadLosses:
    """Counts the losses that were not finite, in the publisher's thread.

    Attributes:
        found: the first and the last of them; None as long as there was none.
    """

    def __init__(self) -> None:
        self.found: BadLoss | None = None

    def take(self, row: StepRow) -> None:
        """Look at a finished step."""
        if not row.bad_losses:
            return
        first = self.found or BadLoss(row.step, row.step, 0, _word(row.bad_losses[0]))
        self.found = BadLoss(first.first_step, row.step, first.count + len(row.bad_losses), first.value)


def _word(loss: float) -> Literal["nan", "inf", "-inf"]:
    if math.isnan(loss):
        return "nan"
    return "inf" if loss > 0 else "-inf"
