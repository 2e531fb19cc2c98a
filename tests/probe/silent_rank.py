"""A rank on a stand-in device whose steps come from its test, and whose clocks go on when the test says so."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ddpmon.parts import Stall
from ddpmon.probe import clock, device, event_log, frame_builder, graphs, step_assembler, watchdog
from ddpmon.probe.clock import Clock, CpuClock, CudaClock
from ddpmon.probe.frame_builder import FrameBuilder
from ddpmon.probe.graphs import hook_graphs
from ddpmon.probe.loss import LossReader
from ddpmon.schema import RankFrame
from tests.probe.stand_in_cuda import Device, device_losses, stand_in, stand_in_driver
from tests.probe.test_device_marks import draft_of, recorder_of, take_step

STALLED_S = 20.0
WARM = 4  # steps


class Hours:
    """Both clocks of the probe's modules, which stand still until they are told to go on."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        for module in (watchdog, frame_builder, device):
            patch.setattr(module, "monotonic", lambda: self.now)
        for each in (clock, frame_builder, graphs, step_assembler, event_log):
            patch.setattr(each, "perf_counter_ns", lambda: int(self.now * 1e9))
        patch.setattr(device, "_WAIT_S", 60.0)  # a busy machine may be late to run the thread that asks
        patch.setattr(CpuClock, "mark", staticmethod(lambda: int(self.now * 1e9)))


class Rank:
    """One rank after some steps that its device has passed.

    Attributes:
        device: the stand-in. driver: its libcuda.
        log: takes the events of steps.
        draft: the publisher's side.
    """

    def __init__(self, patch: pytest.MonkeyPatch, *, on_cpu: bool = False, driver: bool = True) -> None:
        self.hours = Hours(patch)
        self.device: Device = stand_in(patch)
        self.driver = stand_in_driver(patch, self.device)
        if not driver:
            patch.setattr(self.driver, "load", lambda _name: SimpleNamespace())
            patch.setattr("ctypes.CDLL", self.driver.load)
        patch.setattr(torch.cuda, "CUDAGraph", type("CUDAGraph", (), {"replay": lambda _graph: "replayed"}))
        self.clock: Clock = CpuClock() if on_cpu else CudaClock(torch.device("cuda", 0))
        self.log = recorder_of(self.clock, LossReader() if on_cpu else device_losses())
        self.undo = hook_graphs(self.log)
        self.draft: FrameBuilder = draft_of(self.log)
        self.steps = 0
        self.train(WARM)

    def train(self, steps: int) -> None:
        """Steps that the device passes at once."""
        for _ in range(steps):
            self.queue_step()
            self.device.reached = len(self.device.recorded)
            self.turn(0.1)

    def queue_step(self) -> None:
        """A step of which the device has passed nothing yet."""
        take_step(self.log, self.steps)
        self.steps += 1

    def turn(self, seconds: float = STALLED_S) -> RankFrame:
        """The publisher's next turn, so much later."""
        self.hours.now += seconds
        self.draft.collect()
        self.draft.watchdog.look(lambda _seconds: None)
        return self.draft.word(self.draft.state(), 0).whole

    def stall(self, seconds: float = STALLED_S) -> Stall:
        """What the rank says of itself after so much silence, from the publisher's next turn on."""
        self.turn(0.1)
        found = self.turn(seconds).stall
        assert found is not None
        return found

    def replay(self) -> Any:
        """StepAssembler a CUDA graph."""
        graph: Any = torch.cuda.CUDAGraph()
        return graph.replay()
