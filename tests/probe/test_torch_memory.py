"""What torch's allocator says of a device, and the growth of its tensors."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

from ddpmon.probe.buckets import ReducerLog
from ddpmon.probe.clock import CpuClock
from ddpmon.probe.event_log import EventLog
from ddpmon.probe.frame_builder import FrameBuilder
from ddpmon.probe.host_sampler import HostSampler
from ddpmon.probe.identity import Identity
from ddpmon.probe.loss import LossReader
from ddpmon.probe.torch_memory import FLOOR_S, FLOORS, DeviceMemory, Floors, TorchMemory

MB = 1 << 20


class Training:
    """Steps of a second each, of which the probe reads one moment at random, and the sync point; and evaluations."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", self._stats)
        self._now, self._allocated = 0.0, 0
        self._memory = TorchMemory(torch.device("cuda", 0), lambda: self._now)
        self.growth: int | None = None

    def _stats(self, _: torch.device) -> dict[str, Any]:
        every = {"all": {"current": self._allocated, "peak": self._allocated}}
        return {"allocated_bytes": every, "reserved_bytes": every, "num_alloc_retries": 0}

    def train(self, seconds: float, kept: int, activations: int = 500 * MB) -> None:
        self._allocated = kept
        self._memory.at_sync()
        self._read(seconds, kept + activations)

    def evaluate(self, seconds: int, kept: int, each: int) -> None:
        """Every second's outputs are kept on the device until it is over."""
        for second in range(seconds):
            self._read(1.0, kept + second * each)

    def _read(self, seconds: float, allocated: int) -> None:
        self._now += seconds
        self._allocated = allocated
        self.growth = self._memory.read().gpu_growth


def test_memory_that_is_kept_from_step_to_step_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(monkeypatch)
    for second in range(800):
        training.train(1.0, 1000 * MB + second * MB)
    assert training.growth == pytest.approx(300 * MB, rel=0.05)


def test_growth_is_given_for_five_minutes_however_long_a_step_is(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(monkeypatch)
    for step in range(50):
        training.train(60.0, 1000 * MB + step * 60 * MB)
    assert training.growth == pytest.approx(300 * MB, rel=0.05)


def test_the_outputs_that_an_evaluation_gathers_do_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(monkeypatch)
    for _ in range(3):
        for _ in range(200):
            training.train(1.0, 1000 * MB)
            assert not training.growth
        training.evaluate(700, 1000 * MB, each=MB)
        assert not training.growth


def test_a_reading_that_drifts_through_the_step_does_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(monkeypatch)
    for second in range(800):
        training.train(1.0, 1000 * MB, activations=second * MB)
    assert training.growth == 0


@pytest.mark.parametrize("at", range(1, FLOORS))
def test_memory_that_has_grown_once_or_falls_between_does_not_grow(at: int) -> None:
    rising = [(1000 + 20 * place) * MB for place in range(FLOORS)]
    assert growth(rising) == 20 * MB * (FLOORS - 1)
    assert growth([1000 * MB] * at + [3000 * MB] * (FLOORS - at)) == 0
    rising[at] = rising[at - 1] - MB
    assert growth(rising) == 0


def growth(floors: list[int]) -> int | None:
    """The growth behind half minutes whose least reading is this; most readings are higher."""
    watch, now = Floors(), 0.0
    for floor in floors:
        assert watch.growth() is None
        for higher in (500, 0, 900):
            watch.take(now, floor + higher * MB)
            now += FLOOR_S / 3
    watch.take(now, floors[-1] + 500 * MB)
    return watch.growth()


def test_the_training_thread_reads_once_for_each_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    readers = list[int]()
    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", lambda _: readers.append(threading.get_ident()))
    me = Identity(0, 1, 0, 0, (0,), "host", 1, torch.device("cuda", 0), None, "nccl")
    log = EventLog(CpuClock(), LossReader(), lambda _: None)
    reducer_log = ReducerLog(torch.nn.Linear(2, 2), lambda _: None, on_cpu=False)
    frames = FrameBuilder(me, log, reducer_log, HostSampler(me, lambda: "run", {}, {}), lambda: "run")
    for _ in range(2):
        frames.word("running", 0)
        for _ in range(3):
            log.synced()
    assert readers == [threading.get_ident()] * 2


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
