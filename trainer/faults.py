"""Faults on request: what a slow disk, a busy device, a stalled host or a bug do to one rank."""

from __future__ import annotations

import gc
import math
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor, nn

from .fault import Fault

_IN_FORWARD = ("forward", "gc", "hang_forward", "raise")
_IN_BLOCK = (*_IN_FORWARD, "backward")
_IN_THE_LOOP = (*_IN_BLOCK, "host", "nan")


class Faults:
    """The faults of one rank; each kind strikes at most once in an optimizer step."""

    def __init__(self, faults: Sequence[Fault], rank: int, device: torch.device) -> None:
        self.mine = [fault for fault in faults if rank in fault.ranks]
        self.others = [fault for fault in faults if rank not in fault.ranks]
        self.device = device
        self.armed: dict[str, float] = {}
        self.cycles_per_ms = 0.0

    def delay_ms(self, kind: str, step: int) -> float:
        """Milliseconds by which `kind` is delayed in this step (0: not at all, infinite: without end)."""
        return sum(fault.ms for fault in self.mine if fault.kind == kind and fault.due(step))

    def input_delay_ms(self, step: int) -> float:
        """Milliseconds by which this step's data is late."""
        return self.delay_ms("input", step) + self.delay_ms("hang_input", step)

    @property
    def end_step(self) -> int | None:
        """The step before which the data ends; None if it does not."""
        return min((fault.start for fault in self.mine if fault.kind == "end"), default=None)

    def arm(self, step: int) -> None:
        """Make ready what strikes in this step; the input's faults travel with the data instead."""
        self.armed = {kind: ms for kind in _IN_THE_LOOP if (ms := self.delay_ms(kind, step))}

    def strike(self, kind: str) -> None:
        """Do what this step's fault of a kind does, if there is one and it has not been done yet."""
        if ms := self.armed.pop(kind, 0.0):
            _STRIKES.get(kind, Faults._delay)(self, ms)

    def spoil(self, loss: Tensor) -> Tensor:
        """The loss (a scalar), or what a `nan` makes of it."""
        return loss * math.nan if self.armed.pop("nan", 0.0) else loss

    def meet(self, step: int) -> None:
        """Wait for all ranks, where a `skip` makes others stay away; those go on."""
        if dist.is_initialized() and any(fault.kind == "skip" and fault.due(step) for fault in self.others):
            dist.barrier()

    def _delay(self, ms: float) -> None:
        if self.device.type == "cuda":
            # A sleeping host only shortens the queue of kernels: the device itself must be kept busy.
            _occupy_device(int(ms * self.cycles_per_ms))
        else:
            time.sleep(ms / 1000)

    def plant(self, block: nn.Module) -> None:
        """Put what strikes in forward and backward into `block`, whose output is a tensor of any shape."""
        if not any(fault.kind in _IN_BLOCK for fault in self.mine):
            return
        if self.device.type == "cuda":
            self.cycles_per_ms = _measure_cycles_per_ms()
        block.register_forward_hook(torch.compiler.disable(self._on_forward))

    def _on_forward(self, _block: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
        for kind in _IN_FORWARD:
            self.strike(kind)
        delayed: Tensor = _DelayedGradient.apply(output, self)  # type: ignore[no-untyped-call]
        return delayed


class _DelayedGradient(torch.autograd.Function):
    """The identity, whose gradient comes late."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, faults: Faults) -> Tensor:
        ctx.faults = faults
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, None]:
        ctx.faults.strike("backward")
        return grads[0], None


class _SlowToGo:
    """Part of a cycle, so that only the garbage collector finds it; then it takes its time."""

    def __init__(self, ms: float) -> None:
        self.ms = ms
        self.me = self

    def __del__(self) -> None:
        time.sleep(self.ms / 1000)


def _collect(_faults: Faults, ms: float) -> None:
    _SlowToGo(ms)
    gc.collect(0)


def _dawdle(_faults: Faults, ms: float) -> None:
    time.sleep(ms / 1000)


def _loop(_faults: Faults, _ms: float) -> NoReturn:
    rounds = 0
    while True:
        rounds += 1


def _raise(_faults: Faults, _ms: float) -> NoReturn:
    raise RuntimeError("an injected fault: forward has failed")


_STRIKES: dict[str, Callable[[Faults, float], None]] = {
    "gc": _collect,
    "hang_forward": _loop,
    "host": _dawdle,
    "raise": _raise,
}


def come_late(seconds: float) -> None:
    """Sleep; without end means until the parent process has gone: a loader's worker must not outlive its rank."""
    parent = os.getppid()
    if not math.isinf(seconds):
        time.sleep(seconds)
    else:
        while os.getppid() == parent:
            time.sleep(0.05)


_occupy_device: Callable[[int], None] = torch.cuda._sleep


def _measure_cycles_per_ms(cycles: int = 100_000_000) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    _occupy_device(cycles)
    start.record()
    _occupy_device(cycles)
    end.record()
    end.synchronize()
    return float(cycles / start.elapsed_time(end))
