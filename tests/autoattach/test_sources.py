"""What is read in a training that does not log: losses, samples and callers, in this process, without a run."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any
from weakref import ref

import pytest
import torch
from torch import Tensor
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.nn.parallel import DataParallel

from ddpmon.autoattach import huggingface, models
from ddpmon.autoattach.inputs import sizes_of
from ddpmon.autoattach.losses import LOSS_FROM, Roots
from ddpmon.autoattach.sources import read_sources
from ddpmon.autoattach.wrapping import Undo
from ddpmon.probe.clock import CpuClock
from ddpmon.probe.event_log import EventLog
from ddpmon.probe.hooks import ForwardHooks
from ddpmon.probe.loss import LossReader


def fails(error: Exception) -> None:
    raise error


@pytest.fixture
def recorder() -> Iterator[EventLog]:
    """A log of the losses that backwards of a model start from; an exception of ddpmon's fails the test."""
    made = EventLog(CpuClock(), LossReader(), fails)
    undo: list[Undo] = []
    Roots(made).watch(undo)
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
    quiet = EventLog(CpuClock(), LossReader(), fails)
    found = read_sources(quiet)
    del large
    for undo in reversed(found.undo):
        undo()
    assert alive() is None


@pytest.mark.parametrize("kind", [torch.amp.GradScaler, ShardedGradScaler])
@pytest.mark.parametrize("enabled", [True, False])
def test_a_scaled_loss_is_the_one_that_was_scaled(recorder: EventLog, kind: Any, enabled: bool) -> None:
    scaler = kind("cpu", enabled=enabled)
    for _ in range(2):
        scaler.scale(trained(recorder) / 2).backward()
    assert losses(recorder) == [(3.0, 2)] * 2


def test_a_batch_whose_shape_cannot_be_told_is_not_counted() -> None:
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    assert sizes_of((nested,), {}) == (None, None)
    assert sizes_of(([torch.ones(4, 2)] * 100,), {}) == (4, None)


def test_copies_of_a_model_whose_forwards_are_looked_at_know_nothing_of_ddpmon() -> None:
    model, hooks = DataParallel(torch.nn.Linear(2, 2)), ForwardHooks()
    models.built(model)
    model.register_forward_pre_hook(hooks.before, with_kwargs=True)
    model.register_forward_hook(hooks.after)
    pickled = pickle.dumps(model)
    twins = [copy.deepcopy(model), pickle.loads(pickled)]
    with torch.no_grad():
        wanted = model(torch.ones(1, 2))
    assert b"ddpmon" not in pickled
    assert all(torch.equal(twin(torch.ones(1, 2)), wanted) for twin in twins)


def test_a_framework_of_another_version_is_read_as_a_plain_loop_and_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module: Any = ModuleType(huggingface.MODULE)
    exec("class Trainer:\n    def train(self, step):\n        return step()", vars(module))
    monkeypatch.setitem(sys.modules, huggingface.MODULE, module)
    found = module.Trainer().train(lambda: read_sources(EventLog(CpuClock(), LossReader(), fails)))
    for undo in found.undo:
        undo()
    assert found.loss == LOSS_FROM
    (line,) = capsys.readouterr().err.splitlines()
    assert "of a version that was not tried" in line
    assert "training_step" in line
