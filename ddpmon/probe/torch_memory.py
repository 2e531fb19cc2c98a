"""What torch's caching allocator says of a rank's device, and whether the memory of its tensors grows.

`torch.cuda.memory_stats` only copies counters of the allocator, under the allocator's lock: it launches nothing, waits
for no device, and where CUDA has not been initialised it returns nothing instead of doing so
(torch/cuda/memory.py and THCPModule_memoryStats in torch/csrc/cuda/Module.cpp, torch 2.13). With the backend
cudaMallocAsync some counters are always 0.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from time import monotonic
from typing import Any, NamedTuple

import torch

FLOOR_S = 30.0  # a floor is the least allocated memory at the sync points of so many seconds
FLOORS = 11  # in a row, each above the one before: memory has grown for five minutes
_WINDOW_S = FLOOR_S * (FLOORS - 1)  # that growth is given for


class DeviceMemory(NamedTuple):
    """The allocator's figures of one device, by their names in `ProcessFigures`; None is unknown.

    Attributes:
        gpu_memory: bytes that it holds (reserved).
        gpu_allocated: bytes of tensors that live.
        gpu_peak: the most of these since the start, or since the script reset the peak.
        alloc_retries: how often an allocation failed and was tried again after the cache had been freed.
        gpu_growth: see `Floors.growth`.
    """

    gpu_memory: int | None = None
    gpu_allocated: int | None = None
    gpu_peak: int | None = None
    alloc_retries: int | None = None
    gpu_growth: int | None = None


class Floors:
    """Watches the least allocated memory of each half minute, as read at sync points.

    Within a step the memory rises with the activations and falls with their gradients, and an evaluation may keep all
    its outputs until it is over. So it is compared at the same place of training steps alone. Steps whose inputs differ
    in length differ there, too: the least of several stands for what is kept from step to step.
    """

    def __init__(self) -> None:
        self._past: deque[tuple[float, int]] = deque(maxlen=FLOORS)  # when it was complete, and its bytes
        self._least: int | None = None
        self._until: float | None = None

    def take(self, at: float, allocated: int) -> None:
        """Take the bytes that were read at a sync point, `at` so many seconds."""
        if self._until is None:
            self._until = at + FLOOR_S
        self._least = allocated if self._least is None else min(self._least, allocated)
        if at >= self._until:
            self._past.append((at, self._least))
            self._least, self._until = None, at + FLOOR_S

    def growth(self) -> int | None:
        """The bytes by which the floor rises in five minutes.

        Returns:
            0 unless each floor is above the one before; None before there are `FLOORS`.
        """
        if len(self._past) < FLOORS:
            return None
        (since, first), (until, last) = self._past[0], self._past[-1]
        rises = all(before < after for (_, before), (_, after) in pairwise(self._past))
        return int((last - first) * _WINDOW_S / (until - since)) if rises else 0


class TorchMemory:
    """Reads the figures of `device`, on a thread that is not the training thread.

    Args:
        device: a CUDA device.
        clock: the time in seconds.
    """

    def __init__(self, device: torch.device, clock: Callable[[], float] = monotonic) -> None:
        self._device, self._clock = device, clock
        self._floors = Floors()
        self._at_sync: tuple[float, int] | None = None

    def at_sync(self) -> None:
        """Read what is allocated at this sync point, on the training thread; never raises."""
        with suppress(Exception):
            allocated = figures_of(torch.cuda.memory_stats_as_nested_dict(self._device)).gpu_allocated
            if allocated is not None:
                self._at_sync = self._clock(), allocated

    def read(self) -> DeviceMemory:
        """The figures now; unknown ones where torch says nothing."""
        taken, self._at_sync = self._at_sync, None
        if taken is not None:
            self._floors.take(*taken)
        figures = figures_of(torch.cuda.memory_stats_as_nested_dict(self._device))
        return figures if figures.gpu_allocated is None else figures._replace(gpu_growth=self._floors.growth())


def figures_of(stats: dict[str, Any]) -> DeviceMemory:
    """The figures among `torch.cuda.memory_stats_as_nested_dict`, unknown ones where it is empty."""
    if not stats:
        return DeviceMemory()
    allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
    return DeviceMemory(reserved["current"], allocated["current"], allocated["peak"], stats["num_alloc_retries"])
