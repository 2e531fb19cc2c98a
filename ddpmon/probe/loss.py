"""The loss and the samples as the trainer logged them, read without synchronising the device."""

from __future__ import annotations

import math
from typing import Any, Literal

from torch import Tensor

from ddpmon.parts import BadLoss
from ddpmon.probe.device_copies import DeviceCopies
from ddpmon.probe.record import NO_NUMBER, StepRow


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

    Args:
        copies: copies what is on a device; None where the model is on the CPU.
    """

    def __init__(self, copies: DeviceCopies | None = None) -> None:
        self._copies = copies

    def take(self, value: Any) -> Any:
        """A float at once, or a handle with `.ready()` and `.value()`; NO_NUMBER for what is no single number."""
        if isinstance(value, Tensor) and value.is_cuda:
            return NO_NUMBER if self._copies is None else self._copies.take(value)
        return number(value)


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
