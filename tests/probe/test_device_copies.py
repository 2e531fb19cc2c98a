"""Copies, events, streams and captures of a device, with stand-ins for it: nothing is waited for."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")
import torch

from ddpmon.probe.clock import CudaClock
from ddpmon.probe.device_copies import DeviceCopies
from ddpmon.probe.record import NO_NUMBER, Elapsed, resolve
from ddpmon.probe.step_assembler import StepAssembler
from tests.probe.stand_in_cuda import (
    Device,
    OnDevice,
    device_copies,
    device_losses,
    on_device,
    stand_in,
    stand_in_driver,
)
from tests.probe.test_device_marks import SAMPLES, CountingClock, recorder_of, take_step


def test_samples_on_the_device_are_not_read_by_the_training_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    device, clock = stand_in(monkeypatch), CountingClock()
    log = recorder_of(clock, device_losses())
    replay = StepAssembler(log)
    take_step(log, 0)
    for count in (3.0, 5.0):
        log.logged(on_device(0.5), on_device(count))
    log.logged(None, 4)
    take_step(log, 1)
    replay.drain()
    assert OnDevice.read_by == []
    assert len(device.recorded) == 4
    (record,) = replay.finished
    assert not record.readable(clock), "the device has not come so far"
    device.passed = True
    assert record.readable(clock)
    assert resolve(record, Elapsed(record, clock).ms, 0.0).values[SAMPLES] == 12.0


def test_the_buffer_for_copies_is_on_the_host_whatever_the_default_device_is(monkeypatch: pytest.MonkeyPatch) -> None:
    device = stand_in(monkeypatch)
    torch.set_default_device("meta")
    try:
        copies = device_copies()
    finally:
        torch.set_default_device(None)
    handle = copies.take(on_device(2.5))
    device.passed = True
    assert handle.value() == 2.5


NUMBERS = {
    torch.float64: 0.1,
    torch.float32: 0.25,
    torch.float16: 0.5,
    torch.bfloat16: 1.5,
    torch.int64: 2**40 + 1,
    torch.int32: -3,
}


@pytest.mark.parametrize("kind", NUMBERS, ids=str)
def test_a_plain_number_is_copied_by_the_driver_as_it_is(monkeypatch: pytest.MonkeyPatch, kind: torch.dtype) -> None:
    device = stand_in(monkeypatch)
    driver = stand_in_driver(monkeypatch, device)
    monkeypatch.setattr(DeviceCopies, "plain", (OnDevice,))
    copies, value = device_copies(), torch.tensor([7, NUMBERS[kind]], dtype=kind)[1].as_subclass(OnDevice)
    handle = copies.take(value)
    value.zero_()  # the copy is behind what is queued, and before this
    assert not handle.ready()
    device.passed = True
    assert handle.ready()
    assert handle.value() == NUMBERS[kind]
    assert (driver.copied, len(device.recorded)) == (1, 1)


def test_what_the_driver_cannot_copy_is_copied_by_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    device = stand_in(monkeypatch)
    driver = stand_in_driver(monkeypatch, device)
    monkeypatch.setattr(DeviceCopies, "plain", (OnDevice,))
    copies = device_copies()
    flag = copies.take(torch.tensor(True).as_subclass(OnDevice))
    negative = copies.take(torch.tensor(1 - 2j).conj().imag.as_subclass(OnDevice))
    device.current = 1  # of which the driver would take the default stream
    elsewhere = copies.take(on_device(0.25))
    device.current, driver.code = 0, 201  # no context in this thread
    refused = copies.take(on_device(0.75))
    assert [each.value() for each in (flag, negative, elsewhere, refused)] == [1.0, 2.0, 0.25, 0.75]
    assert driver.copied == 0


def test_a_subclass_of_a_tensor_is_copied_by_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = stand_in_driver(monkeypatch, stand_in(monkeypatch))
    assert device_copies().take(on_device(0.5)).value() == 0.5
    assert driver.copied == 0, "it may have no memory of its own"


def test_no_other_monitor_gets_the_memory_of_one_whose_copies_may_be_on_their_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device = stand_in(monkeypatch)
    first = device_copies()
    handle, place = first.take(on_device(2.5)), ctypes.addressof(first.bytes)
    second = device_copies()
    second.take(on_device(7.5))
    device.passed = True
    assert handle.value() == 2.5, "the publisher of the first one reads its last steps meanwhile"
    del first, handle
    gc.collect()
    assert place not in {ctypes.addressof(device_copies().bytes) for _ in range(100)}


def test_a_number_is_unknown_as_soon_as_a_later_one_takes_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    device, copies, read = stand_in(monkeypatch), device_copies(), list[float]()
    device.passed = True
    first = copies.take(on_device(1.0))
    for _ in range(2047):
        copies.take(on_device(2.0))
    assert first.value() == 1.0
    record = CudaClock.record

    def reading(clock: CudaClock, event: Any) -> Any:
        read.append(first.value())
        return record(clock, event)

    monkeypatch.setattr(CudaClock, "record", reading)
    copies.take(on_device(7.0))
    assert str(read) == "[nan]"


def test_what_has_no_memory_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_value: OnDevice) -> OnDevice:
        raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")

    stand_in(monkeypatch)
    monkeypatch.setattr(OnDevice, "detach", fails)
    assert device_copies().take(on_device(0.5)) is NO_NUMBER


def test_copies_reuse_their_events(monkeypatch: pytest.MonkeyPatch) -> None:
    device = stand_in(monkeypatch)
    copies, value = device_copies(), on_device(1.0)
    first = copies.take(value)
    for _ in range(10_000):
        copies.take(value)
    assert len({id(event) for event, _ in device.recorded}) < 5000
    assert first.ready(), "it will never be any readier"
    assert first.value() != first.value(), "its place was taken: unknown"


def test_a_mark_follows_the_current_stream_and_makes_no_object_for_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    device = stand_in(monkeypatch)
    clock = CudaClock(torch.device("cuda", 0))
    for stream in (0, 0, 7, 7, 7, 0):
        device.stream = stream
        clock.mark()
    assert [stream for _, stream in device.recorded] == [0, 0, 7, 7, 7, 0]
    assert device.streams_made == 3


@pytest.mark.parametrize("library", ["libamdhip64.so", "libamdhip64.so.6"])
def test_on_rocm_polling_keeps_out_of_captures(monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    modes = []

    class Library:
        def __init__(self, name: str) -> None:
            if name != library:
                raise OSError(name)

        def hipThreadExchangeStreamCaptureMode(self, mode: Any) -> None:  # noqa: N802 (the driver's name)
            modes.append(mode._obj.value)

    stand_in_on_rocm(monkeypatch, Library)
    CudaClock(torch.device("cuda", 0)).read_here()
    assert modes == [1]


def test_where_rocm_cannot_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    stand_in_on_rocm(monkeypatch, missing)
    with pytest.raises(RuntimeError, match="ROCm"):
        CudaClock(torch.device("cuda", 0))


def stand_in_on_rocm(patch: pytest.MonkeyPatch, library: Callable[[str], Any]) -> Device:
    patch.setattr(torch.version, "hip", "6.2")
    patch.setattr(torch.cuda, "set_device", lambda _device: None)
    patch.setattr(ctypes, "CDLL", library)
    return stand_in(patch)
