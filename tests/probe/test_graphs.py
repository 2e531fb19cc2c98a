"""CUDA graphs: nothing of ours gets into one, and a rank that only replays one says so instead of standing still."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("torch")
import torch

from ddpmon.probe.clock import CpuClock, CudaClock
from ddpmon.probe.graphs import hook_graphs
from tests.probe.silent_rank import STALLED_S, WARM, Rank
from tests.probe.stand_in_cuda import OnDevice, device_copies, on_device, stand_in
from tests.probe.test_device_marks import recorder_of

PATIENCE_S = 10.0


def capture(rank: Rank, *, with_optimizer: bool = True) -> None:
    """A step is captured: its hooks run once, and the device does nothing."""
    log, rank.device.capturing = rank.log, True
    for kind in ("forward", "forwarded", "ready"):
        log.mark_as(kind)
    log.logged(on_device(0.5), on_device(2.0))
    log.put("synced", log.clock.mark(), rank.steps)
    log.last_step, rank.device.capturing = rank.steps, with_optimizer
    rank.steps += 1
    log.mark_as("optimizer")
    log.mark_as("optimized")
    rank.device.capturing = False


def replays(rank: Rank, seconds: int) -> None:
    """It replays for so long."""
    for _ in range(seconds):
        assert rank.replay() == "replayed"
        rank.turn(1.0)


def test_no_mark_is_recorded_into_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    device = stand_in(monkeypatch)
    clock = CudaClock(torch.device("cuda", 0))
    for quiet in (False, True):
        clock.is_quiet = clock.is_stalling = quiet
        device.capturing = True
        mark = clock.mark()
        assert device.recorded == []
        assert clock.ready(mark)
        assert mark.host_ns > 0
        device.capturing = False
    clock.recycle([mark])
    assert clock.mark() is not mark, "it is none that could be recorded"
    assert len(device.recorded) == 1


def test_no_copy_gets_into_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    device = stand_in(monkeypatch)
    copies, value = device_copies(), on_device(1.0)
    device.capturing = True
    assert math.isnan(copies.take(value))
    assert (device.recorded, copies.made, OnDevice.read_by) == ([], 0, [])
    device.capturing = False
    copies.take(value)
    assert (len(device.recorded), copies.made) == (1, 1)


@pytest.mark.parametrize(("with_optimizer", "dropped"), [(True, 1), (False, 0)])
def test_a_captured_step_is_neither_a_step_nor_a_dropped_one(
    monkeypatch: pytest.MonkeyPatch, with_optimizer: bool, dropped: int
) -> None:
    """The optimizer's marks behind the captured sync point belong to the step after it, which they spoil."""
    rank = Rank(monkeypatch)
    capture(rank, with_optimizer=with_optimizer)
    rank.train(4)
    frame = rank.turn(0.1)
    assert (frame.state, frame.stall, frame.bad_loss) == ("running", None, None)
    read = WARM + 4 - 1 - dropped  # the last one is still open to its loss
    assert (len(frame.steps), frame.dropped_steps) == (read, dropped)


def test_a_rank_that_replays_whole_steps_runs_and_says_that_they_are_in_a_graph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rank = Rank(monkeypatch)
    capture(rank)
    replays(rank, 700)
    frame = rank.turn(1.0)
    assert frame.state == "running"
    assert frame.stall is not None
    assert frame.stall.graph_replay_s == pytest.approx(2.0, abs=0.01)
    assert frame.stall.seconds > 600
    assert (frame.stall.stacks, frame.stall.flights, frame.stall.device_phase) == ([], [], "")


def test_a_rank_that_replays_no_more_is_stalled_and_still_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    rank = Rank(monkeypatch)
    capture(rank)
    replays(rank, 30)
    rank.turn(STALLED_S)
    frame = rank.turn(1.0)
    assert frame.state == "stalled"
    assert frame.stall is not None
    assert frame.stall.graph_replay_s == pytest.approx(STALLED_S + 2.0, abs=0.01)
    assert frame.stall.stacks != []
    assert frame.stall.device_phase == "", "its marks do not tell where a graph is"


@pytest.mark.parametrize("with_optimizer", [True, False])
def test_steps_outside_the_graph_are_measured_again(monkeypatch: pytest.MonkeyPatch, with_optimizer: bool) -> None:
    rank = Rank(monkeypatch)
    capture(rank, with_optimizer=with_optimizer)
    replays(rank, 30)
    rank.train(6)
    assert rank.turn(0.1).stall is None
    rank.queue_step()
    stall = rank.stall()
    assert (stall.graph_replay_s, stall.device_phase) == (None, "other")


def test_graphs_within_a_step_hide_no_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of the model is replayed between the marks of each step; one of the replays does not end."""
    rank = Rank(monkeypatch)
    for _ in range(10):
        rank.train(1)
        rank.replay()
    rank.log.mark_as("forward")
    rank.replay()
    rank.turn(0.1)
    frame = rank.turn(STALLED_S)
    assert frame.state == "stalled"
    assert frame.stall is not None
    assert frame.stall.graph_replay_s is None


def test_one_graph_behind_a_long_compilation_is_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """A forward compiles for a minute, replays its graph once, and compiles on."""
    rank = Rank(monkeypatch)
    rank.log.mark_as("forward")
    for _ in range(60):
        rank.turn(1.0)
    rank.replay()
    rank.turn(0.1)
    frame = rank.turn(STALLED_S)
    assert frame.state == "stalled"
    assert frame.stall is not None
    assert frame.stall.graph_replay_s is None


def test_a_graph_captured_before_the_monitor_came_is_told_by_its_replays_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    rank = Rank(monkeypatch)
    replays(rank, int(PATIENCE_S) + 20)
    frame = rank.turn(1.0)
    assert frame.state == "running"
    assert frame.stall is not None
    assert frame.stall.graph_replay_s is not None


def test_replays_are_noticed_until_the_monitor_ends_and_never_on_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    rank = Rank(monkeypatch)
    assert rank.log.replayed_ns == 0
    rank.replay()
    noticed = rank.log.replayed_ns
    assert noticed == int(rank.hours.now * 1e9)
    for undo in rank.undo:
        undo()
    rank.hours.now += 1.0
    assert rank.replay() == "replayed"
    assert rank.log.replayed_ns == noticed
    assert hook_graphs(recorder_of(CpuClock())) == []
