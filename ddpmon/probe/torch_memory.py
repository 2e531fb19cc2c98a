"""What torch's caching allocator says of a rank's device, and whether the memory of its tensors grows.

`torch.cuda.memory_stats` only copies counters of the allocator, under the allocator's lock: it launches nothing, waits
for no device, and where CUDA has not been initialised it returns nothing instead of doing so
(torch/cuda/memory.py and THCPModule_memoryStats in torch/csrc/cuda/Module.cpp, torch 2.13). With the backend
cudaMallocAsync some counters are always 0.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import pairwise
from time import monotonic
from typing import Any, NamedTuple

import torch

FLOOR_S = 30.0  # a floor is the least allocated memory of so many seconds
FLOORS = 11  # in a row, each above the one before: memory has grown for five minutes


class DeviceMemory(NamedTuple):
    """The allocator's figures of one device, by their names in `ProcessFigures`; None is unknown.

    Attributes:
        gpu_memory: bytes that it holds (reserved).
        gpu_allocated: bytes of tensors that live.
        gpu_peak: the most of these since the start, or since the script reset the peak.
        alloc_retries: how often an allocation failed and was tried again after the cache had been freed.
        gpu_growth: see `Floors.take`.
    """

    gpu_memory: int | None = None
    gpu_allocated: int | None = None
    gpu_peak: int | None = None
    alloc_retries: int | None = None
    gpu_growth: int | None = None


class Floors:
    """Watches the least allocated memory of each half minute.

    Within a step the memory rises with the activations and falls with their gradients. A reading comes at any moment of
    a step, so that only the least of many readings stands for what is left after a step.

    Args:
        clock: the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._past: deque[int] = deque(maxlen=FLOORS)
        self._least: int | None = None
        self._until = clock() + FLOOR_S

    def take(self, allocated: int) -> int | None:
        """Take a reading; the bytes that the floor has risen by in the last five minutes.

        Returns:
            0 unless each floor is above the one before; None before there are `FLOORS`.
        """
        self._least = allocated if self._least is None else min(self._least, allocated)
        if self._clock() >= self._until:
            self._past.append(self._least)
            self._least, self._until = None, self._clock() + FLOOR_S
        if len(self._past) < FLOORS:
            return None
        floors = [*self._past]
        return floors[-1] - floors[0] if all(a < b for a, b in pairwise(floors)) else 0


class TorchMemory:
    """Reads the figures of `device`, on a thread that is not the training thread."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._floors = Floors()

    def read(self) -> DeviceMemory:
        """The figures now; unknown ones where torch says nothing."""
        figures = figures_of(torch.cuda.memory_stats_as_nested_dict(self._device))
        if figures.gpu_allocated is None:
            return figures
        return figures._replace(gpu_growth=self._floors.take(figures.gpu_allocated))


def figures_of(stats: dict[str, Any]) -> DeviceMemory:
    """The figures among `torch.cuda.memory_stats_as_nested_dict`, unknown ones where it is empty."""
    if not stats:
        return DeviceMemory()
    allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
    return DeviceMemory(reserved["current"], allocated["current"], allocated["peak"], stats["num_alloc_retries"])
