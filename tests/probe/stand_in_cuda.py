"""Stands for torch.cuda where there is no GPU: tensors, events and streams whose time passes when the test says so."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch


class OnDevice(torch.Tensor):
    """A tensor that says it is on a GPU; every reading of its value on a host thread is noted."""

    read_by: list[str] = []  # noqa: RUF012 (one for all: tensors are made by torch)

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        return True

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
        capturing: whether the current stream is being captured.
    """

    def __init__(self) -> None:
        self.stream = 0
        self.streams_made = 0
        self.recorded: list[tuple[Any, int]] = []
        self.passed = False
        self.capturing = False

    def current_stream(self, _device: Any = None) -> Any:
        self.streams_made += 1
        return SimpleNamespace(number=self.stream)


class BaseEvent:
    """As far as torch's own: records where it is told to."""

    device: Device

    def record(self, stream: Any) -> None:
        self.device.recorded.append((self, stream.number))

    def query(self) -> bool:
        return self.device.passed


class Event(BaseEvent):
    """What Python adds to it; `enable_timing` and the like are taken and forgotten."""

    def __init__(self, **_options: bool) -> None:
        self.host_ns = 0


def stand_in(patch: pytest.MonkeyPatch) -> Device:
    """Put a device in torch.cuda's place."""
    device = Device()
    patch.setattr(BaseEvent, "device", device, raising=False)
    patch.setattr(torch.cuda, "Event", Event)
    patch.setattr(torch.cuda, "current_stream", device.current_stream)
    patch.setattr(torch.cuda, "is_current_stream_capturing", lambda: device.capturing)
    patch.setattr(torch._C, "_cuda_getCurrentStream", lambda _index: (device.stream, 0, 1), raising=False)
    return device
