"""What is read in a training that does not log: losses, samples and callers, in this process, without a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from weakref import ref

import pytest
import torch
from torch import Tensor

from ddpmon.autoattach.losses import Roots
from ddpmon.autoattach.sources import read_sources
from ddpmon.probe.clock import CpuClock
from ddpmon.probe.event_log import EventLog
from ddpmon.probe.loss import LossReader


def fails(error: Exception) -> None:
    raise error


@pytest.fixture
def recorder() -> Iterator[EventLog]:
    """A log of the losses that backwards of a model start from; an exception of ddpmon's fails the test."""
    made = EventLog(CpuClock(), LossReader(on_cpu=True), fails)
    undo = Roots(made).watch()
    yield made
    while undo:
        undo.pop()()


def trained(recorder: EventLog) -> Tensor:
    """What a watched model gives: its backward is noticed."""
    output = torch.ones((), requires_grad=True) * 6.0

    def noticed(_: Tensor) -> None:
        recorder.task += 1

    output.register_hook(noticed)
    return output


def losses(recorder: EventLog) -> list[Any]:
    """The losses and the parts that were logged."""
    return [(event[1], event[4]) for event in recorder.log if event[0] == "log"]


def test_a_number_that_divides_the_loss_is_told_and_hooks_on_saved_tensors_run_in_the_backward_only(
    recorder: EventLog,
) -> None:
    (trained(recorder) / 4).backward()
    kept: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> int:
        kept[len(kept)] = tensor
        return len(kept) - 1

    with torch.autograd.graph.saved_tensors_hooks(pack, kept.pop):
        loss = trained(recorder) / torch.tensor(3.0)
    loss.backward()
    assert losses(recorder) == [(1.5, 4), (2.0, 0)]


def test_what_the_callers_of_a_forward_drop_is_freed() -> None:
    class Large:
        pass

    large = Large()
    alive = ref(large)
    quiet = EventLog(CpuClock(), LossReader(on_cpu=True), fails)
    found = read_sources(quiet)
    del large
    for undo in found.undo:
        undo()
    assert alive() is None
