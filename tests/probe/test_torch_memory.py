"""What torch's allocator says of a device, and the growth of its tensors."""

from __future__ import annotations

import pytest
import torch

from ddpmon.probe.torch_memory import FLOOR_S, FLOORS, DeviceMemory, Floors, TorchMemory

MB = 1 << 20


def growth(*floors: int) -> list[int | None]:
    """The growth at the end of each half minute whose least reading is this; most readings are higher."""
    now = [0.0]
    watch, said = Floors(lambda: now[0]), list[int | None]()
    for floor in floors:
        watch.take(floor + 500 * MB)
        now[0] += FLOOR_S / 2
        watch.take(floor)
        now[0] += FLOOR_S / 2
        said.append(watch.take(floor + 900 * MB))
    return said


def test_memory_that_is_kept_from_step_to_step_grows() -> None:
    floors = [(1000 + 20 * place) * MB for place in range(FLOORS + 3)]
    assert growth(*floors) == [None] * (FLOORS - 1) + [20 * MB * (FLOORS - 1)] * 4


@pytest.mark.parametrize("at", range(1, FLOORS))
def test_memory_that_has_grown_once_or_falls_between_does_not_grow(at: int) -> None:
    once = [1000 * MB] * at + [3000 * MB] * (FLOORS - at)
    assert growth(*once)[-1] == 0
    rising = [(1000 + 20 * place) * MB for place in range(FLOORS)]
    rising[at] = rising[at - 1] - MB
    assert growth(*rising)[-1] == 0


def test_a_reading_initialises_nothing() -> None:
    if torch.cuda.is_initialized():
        pytest.skip("CUDA is initialised in this process already")
    assert TorchMemory(torch.device("cuda", 0)).read() == DeviceMemory()
    assert not torch.cuda.is_initialized()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_figures_are_those_of_the_allocator() -> None:
    device = torch.device("cuda", 0)
    block = torch.zeros(64 * MB, dtype=torch.uint8, device=device)
    figures = TorchMemory(device).read()
    assert figures.gpu_allocated == torch.cuda.memory_allocated(device) >= block.numel()
    assert figures.gpu_peak == torch.cuda.max_memory_allocated(device)
    assert figures.gpu_memory == torch.cuda.memory_reserved(device)
    assert figures.alloc_retries == 0
