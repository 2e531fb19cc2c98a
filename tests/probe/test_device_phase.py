"""In a stall a rank says how far its device has come, and its publisher goes on whatever the driver does."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
import torch

from ddpmon.parts import NO_ANSWER
from ddpmon.probe import device
from tests.probe.silent_rank import STALLED_S, WARM, Rank
from tests.probe.stand_in_cuda import Event, on_device

# What the device is in after each mark of a step: forward, forwarded, ready, synced, optimizer, optimized.
REACHED = ["other", "forward", "backward", "exposed", "other", "optimizer"]


def queued(patch: pytest.MonkeyPatch, marks: int, **options: bool) -> Rank:
    """A rank whose host has queued two steps, of which the device has passed so many marks."""
    rank = Rank(patch, **options)
    rank.device.reached = len(rank.device.recorded) + marks
    rank.queue_step()
    rank.queue_step()
    rank.log.put("seal")
    return rank


@pytest.mark.parametrize(("marks", "phase"), [*enumerate(REACHED), *enumerate(REACHED, start=len(REACHED))])
@pytest.mark.parametrize("driver", [True, False])
def test_a_stall_says_what_the_device_has_reached(
    monkeypatch: pytest.MonkeyPatch, marks: int, phase: str, driver: bool
) -> None:
    rank = queued(monkeypatch, marks, driver=driver)
    rank.turn(0.1)
    frame = rank.turn()
    assert frame.stall is not None
    assert (frame.state, frame.phase, frame.step) == ("stalled", "other", WARM + 1)
    assert (frame.stall.device_phase, frame.stall.device_error) == (phase, "")


def test_a_device_that_has_passed_everything_is_in_what_its_host_is_in(monkeypatch: pytest.MonkeyPatch) -> None:
    rank = queued(monkeypatch, 100)
    rank.log.put("load", int(rank.hours.now * 1e9), None)
    assert rank.stall().device_phase == "input"
    rank.log.pause("eval")
    assert rank.stall().device_phase == "eval"


def test_a_device_that_has_passed_nothing_at_all_is_before_the_first_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    rank = queued(monkeypatch, 0)
    rank.device.reached = 0
    assert rank.stall().device_phase == "other"


def test_where_the_host_computes_there_is_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    rank = Rank(monkeypatch, on_cpu=True)
    stall = rank.stall()
    assert (stall.device_phase, stall.device_error, stall.graph_replay_s) == ("", "", None)
    assert rank.clock.is_quiet is False
    assert rank.driver.asked == 0


def test_once_steps_finish_again_nothing_is_said_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    rank = queued(monkeypatch, 2)
    assert rank.stall().device_phase == "backward"
    rank.device.passed = True
    rank.turn(0.1)
    rank.train(2)
    assert rank.turn(0.1).stall is None
    rank.device.passed = False
    rank.device.reached = len(rank.device.recorded) + 1
    rank.queue_step()
    assert rank.stall().device_phase == "forward"


@pytest.mark.parametrize(("marks", "phase"), [(3, ""), (5, "exposed")])
def test_collectives_without_marks_leave_open_whether_a_device_waits(
    monkeypatch: pytest.MonkeyPatch, marks: int, phase: str
) -> None:
    """It has come to forward, where it may wait in one of them; or to the reduction, where it waits in any case."""
    for stands_for, said in ((1, REACHED[marks - 2]), (9, phase)):
        with monkeypatch.context() as patch:
            rank = Rank(patch)
            rank.device.reached = len(rank.device.recorded) + marks
            rank.log.mark_as("barrier")
            rank.log.put("barriered", rank.clock.mark(), stands_for)
            rank.queue_step()
            assert rank.stall().device_phase == said


def test_while_steps_finish_torch_is_asked_and_in_silence_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    rank = queued(monkeypatch, 2)
    assert rank.driver.asked == 0
    rank.turn(0.5)
    assert rank.driver.asked == 0

    def holds_the_gil(_event: Event) -> bool:
        raise AssertionError("the driver may block, and torch holds the GIL meanwhile")

    monkeypatch.setattr(Event, "query", holds_the_gil)
    monkeypatch.setattr(rank.driver, "cuEventQuery", lambda _event: 600)
    rank.turn(2.0)
    rank.turn()


def test_a_loss_is_asked_for_without_the_gil_too(monkeypatch: pytest.MonkeyPatch) -> None:
    rank = Rank(monkeypatch)
    rank.queue_step()
    rank.device.reached = len(rank.device.recorded)
    rank.turn(0.1)
    rank.log.logged(on_device(0.5), None)
    rank.log.put("seal")
    rank.turn(5.0)
    assert rank.driver.asked == 2, "for the sync point, and for the loss behind it"
    assert len(rank.turn(0.1).steps) == WARM
    rank.device.passed = True
    assert len(rank.turn(0.1).steps) == WARM + 1


def test_a_driver_that_blocks_holds_up_no_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    rank = queued(monkeypatch, 2)
    asked = torch_recorder(monkeypatch)
    rank.driver.blocks.clear()
    usual = device._WAIT_S
    monkeypatch.setattr(device, "_WAIT_S", 0.05)
    try:
        first = rank.stall()
        assert (first.device_phase, first.device_error) == ("", "")
        later = rank.stall(10.0)
        assert (later.device_phase, later.device_error) == ("", NO_ANSWER)
        assert asked == [], "reading it asks the driver, with the GIL held"
        assert sum(thread.name == "ddpmon-device" for thread in threading.enumerate()) == 1
    finally:
        rank.driver.blocks.set()
    for thread in threading.enumerate():
        if thread.name == "ddpmon-device":
            thread.join()
    monkeypatch.setattr(device, "_WAIT_S", usual)
    again = rank.stall(10.0)
    assert (again.device_phase, again.device_error, asked) == ("backward", "", ["dump"])


def test_the_thread_that_asks_the_driver_asks_torch_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.cuda.set_device may wait for a driver that does not answer, and holds the GIL meanwhile."""
    rank = queued(monkeypatch, 2)
    set_by: list[str] = []
    monkeypatch.setattr(rank.clock, "_set_device", lambda _device: set_by.append(threading.current_thread().name))
    rank.stall()
    assert ("ddpmon-device", 1) in rank.driver.entered
    assert "ddpmon-device" not in set_by


def torch_recorder(patch: pytest.MonkeyPatch) -> list[str]:
    """Torch's flight recorder; returns what was asked of it."""
    asked: list[str] = []

    def dump(**_options: bool) -> bytes:
        asked.append("dump")
        return b""

    patch.setattr(torch._C, "_distributed_c10d", SimpleNamespace(_dump_fr_trace=dump))
    return asked


def test_a_device_that_cannot_go_on_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    rank = queued(monkeypatch, 2)
    rank.driver.code = 700
    stall = rank.stall()
    assert (stall.device_phase, stall.device_error) == ("", "700 (illegal memory access)")


@pytest.mark.parametrize("code", [1, 201, 400, 901, 907, -5, 1 << 20])
def test_an_error_of_how_it_was_asked_is_none_of_the_device(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    rank = queued(monkeypatch, 2)
    rank.driver.code = code
    stall = rank.stall()
    assert (stall.device_phase, stall.device_error) == ("backward", "")


def test_where_torch_cannot_read_an_event_the_phase_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    rank = queued(monkeypatch, 2, driver=False)
    rank.log.put("seal")

    def fails(_event: Event) -> bool:
        raise RuntimeError("CUDA error: unspecified launch failure")

    rank.turn(0.1)
    monkeypatch.setattr(Event, "query", fails)
    stall = rank.stall()
    assert (stall.device_phase, stall.device_error) == ("", "")


def test_marks_are_recorded_without_the_gil_in_silence_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    rank = Rank(monkeypatch)
    rank.train(60)
    rank.turn(2.2)
    rank.clock.recycle([rank.clock.mark()])
    assert rank.driver.recorded == 0, "a step may well take so long"
    rank.turn(STALLED_S)
    recorded = len(rank.device.recorded)
    mark = rank.clock.mark()
    assert (rank.driver.recorded, len(rank.device.recorded)) == (1, recorded + 1)
    assert mark.host_ns == int(rank.hours.now * 1e9)
    rank.driver.code = 400
    rank.clock.mark()
    assert (rank.driver.recorded, len(rank.device.recorded)) == (1, recorded + 2), "torch does it"


def test_an_event_that_torch_has_not_made_yet_is_recorded_by_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    rank = Rank(monkeypatch)
    rank.clock.is_stalling = True
    marks = [rank.clock.mark() for _ in range(1000)]
    assert rank.driver.recorded < len({id(mark) for mark in marks}) == 1000
