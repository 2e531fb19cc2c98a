"""The sync point of DeepSpeed's engine, with a stand-in for the engine: no process group is needed."""

from __future__ import annotations

import sys
import time
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("torch")
import torch
import torch.distributed as dist

from ddpmon.autoattach.losses import Roots
from ddpmon.autoattach.wrapping import Undo
from ddpmon.probe import parallel
from ddpmon.probe.clock import CpuClock
from ddpmon.probe.collectives import hook_collectives
from ddpmon.probe.deepspeed import hook_deepspeed
from ddpmon.probe.event_log import EventLog
from ddpmon.probe.hooks import hook_module
from ddpmon.probe.loss import LossReader
from ddpmon.probe.record import StepRow, resolve
from ddpmon.probe.step_assembler import StepAssembler
from ddpmon.schema import STEP_COLUMNS

PARTS, WAIT_MS = 2, 5.0
PHASES = ("input", "forward", "backward", "optimizer", "exposed", "barrier")


class DeepSpeedEngine(torch.nn.Module):
    """Accumulates gradients of two micro-batches and reduces them behind the second backward."""

    def __init__(self) -> None:
        super().__init__()
        self.module, self.backwards = torch.nn.Linear(2, 2), 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        dist.all_gather_into_tensor(None, None)
        found: torch.Tensor = self.module(x)
        return found

    def is_gradient_accumulation_boundary(self) -> bool:
        return self.backwards % PARTS == 0

    def allreduce_gradients(self, bucket_size: int = 0) -> None:
        assert bucket_size
        if self.is_gradient_accumulation_boundary():
            dist.all_reduce(None)

    def backward(self, loss: torch.Tensor) -> None:
        self.backwards += 1
        (loss / PARTS).backward()
        self.allreduce_gradients(bucket_size=1)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> EventLog:
    """The log of one engine, as the probe keeps it; an exception of ddpmon's fails the test."""
    module: Any = ModuleType("deepspeed.runtime.engine")
    module.DeepSpeedEngine = DeepSpeedEngine
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for name in ("all_reduce", "all_gather_into_tensor"):
        monkeypatch.setattr(dist, name, lambda *_: time.sleep(WAIT_MS / 1e3))

    def fail(error: Exception) -> None:
        raise error

    return EventLog(CpuClock(), LossReader(), fail)


def trained(recorder: EventLog, engine: DeepSpeedEngine, steps: int) -> tuple[list[float], list[StepRow]]:
    """The losses of all micro-batches but the last one's, which only ends the last step, and the steps."""
    undo: list[Undo] = []
    Roots(recorder).watch(undo)
    undo += [*hook_module(recorder, engine, engine), *hook_collectives(recorder), *hook_deepspeed(recorder, engine)]
    assembler, losses = StepAssembler(recorder), []
    for _ in range(PARTS * steps + 1):
        loss = engine(torch.randn(3, 2)).pow(2).mean()
        engine.backward(loss)
        losses.append(loss.item())
    assembler.drain()
    while undo:
        undo.pop()()
    return losses[:-1], [resolve(record, CpuClock().ms, 0.0) for record in assembler.finished]


def test_a_step_ends_with_what_the_engine_reduces_behind_its_last_backward(recorder: EventLog) -> None:
    engine = DeepSpeedEngine()
    original = vars(DeepSpeedEngine)["allreduce_gradients"]
    losses, rows = trained(recorder, engine, 3)
    assert [row.step for row in rows] == [0, 1, 2]
    assert vars(DeepSpeedEngine)["allreduce_gradients"] is original
    for row in rows:
        values = dict(zip(STEP_COLUMNS, row.values, strict=False))
        assert values["exposed"] >= WAIT_MS
        assert values["barrier"] >= PARTS * WAIT_MS
        assert sum(values[name] for name in PHASES) <= values["duration"], "nothing counts twice"
        assert values["loss"] == pytest.approx(sum(losses[PARTS * row.step : PARTS * (row.step + 1)]) / PARTS)


def test_what_it_is_to_the_probe(recorder: EventLog) -> None:
    engine = DeepSpeedEngine()
    assert recorder.last_step == -1
    assert parallel.kind_of(engine) == parallel.DEEPSPEED
    assert not parallel.is_sharded(engine)
    assert parallel.bare(engine) is engine.module
    assert parallel.name_of(engine) == "Linear"
    weight: Any = engine.module.weight
    weight.ds_numel, weight.data = 400, torch.empty(0)
    assert sum(count for count, _ in parallel.sizes(engine)) == 402


def test_another_engine_is_left_alone(recorder: EventLog) -> None:
    watched, other = DeepSpeedEngine(), DeepSpeedEngine()
    undo = hook_deepspeed(recorder, watched)
    for _ in range(PARTS):
        other.backward(other(torch.randn(3, 2)).pow(2).mean())
    assert recorder.last_step == -1
    while undo:
        undo.pop()()
