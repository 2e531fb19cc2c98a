"""Stands for torch.cuda where there is no GPU: tensors, events and streams whose time passes when the test says so."""

from __future__ import annotations

import ctypes
import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ddpmon.probe.clock import CudaClock
from ddpmon.probe.device_copies import DeviceCopies
from ddpmon.probe.loss import LossReader


class OnDevice(torch.Tensor):
    """A tensor that says it is on a GPU; every reading of its value on a host thread is noted."""

    read_by: list[str] = []  # noqa: RUF012 (one for all: tensors are made by torch)

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        return True

    def get_device(self) -> int:
        return 0

    def item(self) -> Any:
        self.read_by.append(threading.current_thread().name)
        return super().item()

    def tolist(self) -> Any:
        self.read_by.append(threading.current_thread().name)
        return super().tolist()


def on_device(value: float) -> OnDevice:
    OnDevice.read_by.clear()
    return torch.full((), value, device="cpu").as_subclass(OnDevice)


class Device:
    """What has been recorded, on which stream, and whether the device has come so far.

    Attributes:
        stream: the number of the current stream.
        streams_made: how often its Python object was made.
        recorded: (event, stream), oldest first.
        passed: whether the device has passed all events.
        reached: how many of what has been recorded it has passed otherwise, in the order of recording.
        capturing: whether the current stream is being captured.
        current: the number of the current device.
    """

    def __init__(self) -> None:
        self.stream = 0
        self.streams_made = 0
        self.recorded: list[tuple[Any, int]] = []
        self.passed = False
        self.reached = 0
        self.capturing = False
        self.current = 0

    def current_stream(self, _device: Any = None) -> Any:
        self.streams_made += 1
        return SimpleNamespace(number=self.stream, cuda_stream=self.stream)


class BaseEvent:
    """As far as torch's own: records where it is told to."""

    device: Device
    cuda_event = 0  # made when it is recorded first
    number = 0  # of its last recording

    def record(self, stream: Any) -> None:
        self.device.recorded.append((self, stream.number))
        self.number = len(self.device.recorded)
        self.cuda_event = id(self)

    def query(self) -> bool:
        return self.device.passed or self.number <= self.device.reached

    def elapsed_time(self, end: BaseEvent) -> float:
        return float(end.number - self.number)


class Event(BaseEvent):
    """What Python adds to it; `enable_timing` and the like are taken and forgotten."""

    def __init__(self, **_options: bool) -> None:
        self.host_ns = 0


class Driver:
    """libcuda, as far as events go: does as torch's events do, unless told to fail or to block.

    Attributes:
        asked, recorded, copied: how many events were asked for and recorded, and numbers copied here.
        code: what every call returns instead, 0 for what is true.
        blocks: every query waits for this.
        entered: (thread, context) for each thread that has made a context its own.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self.asked = self.recorded = self.code = 0
        self.entered: list[tuple[str, int]] = []
        self.blocks = threading.Event()
        self.blocks.set()
        self.copied = 0

        def copy(to: int, source: int, size: int, stream: int) -> int:
            assert [type(each) for each in (to, source, size, stream)] == [int] * 4
            self.copied += not self.code
            if not self.code:
                ctypes.memmove(to, source, size)
            return self.code

        self.cuMemcpyDtoHAsync_v2 = copy  # a function, as ctypes lets its arguments be told

    def load(self, name: str) -> Driver:
        """Stands for `ctypes.CDLL`."""
        if name != "libcuda.so.1":
            raise OSError(name)
        return self

    def cuThreadExchangeStreamCaptureMode(self, _mode: Any) -> int:  # noqa: N802 (the driver's names)
        return 0

    def cuCtxGetCurrent(self, context: Any) -> int:  # noqa: N802
        context._obj.value = 1
        return 0

    def cuCtxSetCurrent(self, context: Any) -> int:  # noqa: N802
        self.entered.append((threading.current_thread().name, context.value))
        return 0

    def cuEventQuery(self, event: Any) -> int:  # noqa: N802
        self.asked += 1
        self.blocks.wait()
        return self.code or (0 if self._found(event).query() else 600)

    def cuEventRecord(self, event: Any, stream: Any) -> int:  # noqa: N802
        self.recorded += not self.code
        if not self.code:
            self._found(event).record(SimpleNamespace(number=stream.value or 0))
        return self.code

    def _found(self, event: Any) -> BaseEvent:
        found: BaseEvent = next(each for each, _ in self._device.recorded if id(each) == event.value)
        return found


def stand_in(patch: pytest.MonkeyPatch) -> Device:
    """Put a device in torch.cuda's place."""
    device = Device()
    patch.setattr(BaseEvent, "device", device, raising=False)
    patch.setattr(torch.cuda, "Event", Event)
    patch.setattr(torch.cuda, "current_stream", device.current_stream)
    patch.setattr(torch.cuda, "is_current_stream_capturing", lambda: device.capturing)
    patch.setattr(torch.cuda, "set_device", lambda _device: None)
    patch.setattr(torch._C, "_cuda_getDevice", lambda: device.current, raising=False)
    patch.setattr(torch._C, "_cuda_isCurrentStreamCapturing", lambda: device.capturing, raising=False)
    patch.setattr(torch._C, "_cuda_getCurrentStream", lambda _index: (device.stream, 0, 1), raising=False)
    return device


def device_copies() -> DeviceCopies:
    """What copies numbers of the first GPU."""
    return DeviceCopies(CudaClock(torch.device("cuda", 0)))


def device_losses() -> LossReader:
    """What reads losses and samples that are on the first GPU."""
    return LossReader(device_copies())


def stand_in_driver(patch: pytest.MonkeyPatch, device: Device) -> Driver:
    """Put a driver in libcuda's place."""
    driver = Driver(device)
    patch.setattr(ctypes, "CDLL", driver.load)
    return driver
