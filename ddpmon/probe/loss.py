"""The loss as the trainer logged it, read without synchronising the device."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch

from ddpmon.parts import BadLoss
from ddpmon.probe.record import NO_NUMBER, StepRow

_SLOTS = 1024


def number(value: Any) -> float:
    """What was logged as a float; NO_NUMBER for what is none, whatever its conversion raises."""
    try:
        if isinstance(value, torch.Tensor):
            value = value.tolist() if value.ndim == 0 else value.item()  # tolist goes past the dispatcher
        return float(value)
    except Exception:
        return NO_NUMBER


class LossReader:
    """Turns what was logged into a float, or into something that becomes one once the device has got there.

    A CUDA loss is copied into a pinned host buffer behind the work already queued on the current stream. The buffer
    holds the last 1,024 copies, which the publisher reads long before they are overwritten.
    """

    def __init__(self, *, on_cpu: bool) -> None:
        self._buffer = None if on_cpu else torch.empty(_SLOTS, dtype=torch.float32, pin_memory=True)
        self.copies = 0

    def take(self, loss: Any) -> Any:
        """A float at once, or a handle with `.value()`; NO_NUMBER for what is no single number."""
        if isinstance(loss, torch.Tensor) and loss.is_cuda:
            return self._copied(loss.detach())
        return number(loss)

    def _copied(self, loss: torch.Tensor) -> Any:
        if loss.numel() != 1 or self._buffer is None:
            return NO_NUMBER
        slot = self._buffer[self.copies % _SLOTS]
        self.copies += 1
        slot.copy_(loss.reshape(()), non_blocking=True)
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(loss.device))
        return _Copied(self, self.copies, slot, event)


class _Copied:
    """A loss on its way to the host."""

    __slots__ = ("_event", "_number", "_reader", "_slot")

    def __init__(self, reader: LossReader, number: int, slot: torch.Tensor, event: Any) -> None:
        self._reader = reader
        self._number = number
        self._slot = slot
        self._event = event

    def ready(self) -> bool:
        """Whether the copy has arrived."""
        return bool(self._event.query())

    def value(self) -> float:
        """The loss, once ready; NO_NUMBER if nobody read it before its place was taken by a later one."""
        return NO_NUMBER if self._reader.copies - self._number >= _SLOTS else float(self._slot)


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
