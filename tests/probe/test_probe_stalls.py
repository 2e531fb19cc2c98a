"""A rank without progress says what it is in: its stack, and the collectives it has entered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch")
import torch

from ddpmon.parts import StackFrame, Stall
from ddpmon.schema import RankFrame
from tests.probe.probe_pair import until
from tests.probe.probe_ranks import Reader, grouped, private_runs
from tests.probe.scenes_stalls import PIPE
from tests.ranks import Group, running

TINY = ("--layers=1", "--heads=2", "--width=16", "--context=16", "--batch=2", "--steps=1000000")
STUCK = 12
RECORDS_GLOO = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 11)  # older: NCCL alone


def wait_for_frames(folder: Path, name: str, ranks: int, told: Callable[[RankFrame], bool]) -> list[RankFrame]:
    """Every rank's newest frame, once `told` holds for all."""
    reader, found = Reader(name), list[RankFrame]()

    def all_told() -> bool:
        seen = reader.look(ranks)
        found[:] = [rank.frame for rank in seen.ranks] if seen else []
        return bool(found) and all(told(frame) for frame in found)

    until(folder, all_told)
    assert reader.store is not None
    reader.store.close()
    return found


def stall_of(frame: RankFrame) -> Stall:
    assert frame.stall is not None
    return frame.stall


def own(stall: Stall) -> list[StackFrame]:
    """The user's lines on the training thread, most recent call last."""
    return [frame for frame in stall.stacks[0].frames if frame.own]


def captured(frame: RankFrame) -> bool:
    """Whether the rank has been captured with its sources, which may come later."""
    return frame.stall is not None and any(line.source for line in own(frame.stall))


def hung(folder: Path, ranks: int, fault: str, last_step: int) -> list[RankFrame]:
    """The frames of a training that hangs after `last_step` because of `fault` in rank 1."""
    arguments = [*TINY, "--name=hung", "--fault", f"{fault}:rank=1,from={STUCK}"]
    with private_runs(folder), running(Group(ranks, "trainer", arguments, [folder / "log.training"])):
        return wait_for_frames(folder, "hung", ranks, lambda frame: frame.step == last_step and captured(frame))


def the_others_wait_in(frames: list[RankFrame], operation: str) -> None:
    if not RECORDS_GLOO:
        return
    for frame in (frame for frame in frames if frame.rank != 1):
        (flight,) = stall_of(frame).flights
        assert flight.operation.startswith(operation)
        assert flight.last_completed == flight.last_enqueued - 1


@pytest.mark.parametrize(
    ("fault", "within", "sources"),
    [
        ("hang_input", "__getitem__", ("time.sleep(0.05)", "while os.getppid() == parent:")),
        ("hang_forward", "_on_forward", ("rounds += 1", "while True:")),
    ],
)
def test_a_rank_that_hangs_shows_where_and_is_behind(
    tmp_path: Path, fault: str, within: str, sources: tuple[str, ...]
) -> None:
    frames = hung(tmp_path, 2, fault, STUCK - 1)
    assert [(frame.state, frame.step) for frame in frames] == [("stalled", STUCK - 1)] * 2
    waiting, culprit = (stall_of(frame) for frame in frames)
    assert own(culprit)[-1].source in sources
    assert within in [line.function.rpartition(".")[2] for line in own(culprit)]
    assert own(waiting)[-1].source.startswith("torch.autograd.backward(")
    the_others_wait_in(frames, "gloo:all_reduce [")
    if RECORDS_GLOO:
        (behind,), (ahead,) = culprit.flights, waiting.flights
        assert behind.group == ahead.group
        assert behind.last_enqueued == behind.last_completed == ahead.last_enqueued - 1


def test_a_rank_that_skips_a_collective_is_in_another(tmp_path: Path) -> None:
    frames = hung(tmp_path, 3, "skip", STUCK)
    the_others_wait_in(frames, "gloo:barrier")
    for frame in (frames[0], frames[2]):
        assert own(stall_of(frame))[-1].source == "dist.barrier()"
    culprit = stall_of(frames[1])
    assert not RECORDS_GLOO or culprit.flights[0].operation.startswith("gloo:all_reduce")
    assert own(culprit)[-1].source.startswith("torch.autograd.backward(")


def test_a_rank_goes_on_and_its_stall_is_gone_whatever_its_files_do(tmp_path: Path) -> None:
    with private_runs(tmp_path), grouped("scenes_stalls", 1, tmp_path / "log.x", str(tmp_path), "stuck_twice"):

        def frame_once(told: Callable[[RankFrame], bool]) -> RankFrame:
            return wait_for_frames(tmp_path, "stuck_twice", 1, told)[0]

        stuck = frame_once(lambda frame: frame.state == "stalled")
        first = stall_of(stuck)
        lines = own(first)
        place = next(n for n, line in enumerate(lines) if line.file.endswith(PIPE))
        assert (lines[place].function, lines[place].line, lines[place].source) == ("unreadable", 2, "")
        assert lines[place + 1].function == "wait_for"
        assert bool(first.flights) == RECORDS_GLOO
        names = {stack.thread for stack in first.stacks}
        assert first.stacks[0].thread == "MainThread"
        assert not any(name.startswith("ddpmon") for name in names)

        later = frame_once(lambda frame: frame.seq >= stuck.seq + 3)
        assert stall_of(later).seconds > first.seconds
        assert not stall_of(later).moves
        (tmp_path / "on").touch()
        frame_once(lambda frame: frame.step > stuck.step and frame.stall is None and frame.state == "running")
        evaluating = frame_once(lambda frame: frame.phase == "eval" and frame.stall is not None)
        assert evaluating.state == "running"
        assert "readable" in [line.function for line in own(stall_of(evaluating))]
        assert stall_of(evaluating).flights == [], "reading them holds the GIL"
        (tmp_path / "done").touch()
        frame_once(lambda frame: frame.step > evaluating.step and frame.stall is None)
        assert evaluating.notes == []


def test_a_rank_that_is_at_something_says_that_it_moves(tmp_path: Path) -> None:
    with private_runs(tmp_path), grouped("scenes_stalls", 1, tmp_path / "log.x", str(tmp_path), "at_something"):
        (busy,) = wait_for_frames(tmp_path, "at_something", 1, lambda frame: frame.stall is not None)
        assert (busy.state, busy.phase, stall_of(busy).moves) == ("stalled", "other", True)
        assert stall_of(busy).flights == [], "reading them holds the GIL"
        (tmp_path / "done").touch()
