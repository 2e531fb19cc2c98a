"""Hooks on the DDP module, the optimizer and the DataLoader: they leave marks with the Recorder, and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.data.dataloader import _BaseDataLoaderIter

from ddpmon.probe.step import Recorder
from ddpmon.probe.trigger import Trigger

Undo = Callable[[], None]


def hook_module(recorder: Recorder, module: torch.nn.Module, ddp: DistributedDataParallel) -> list[Undo]:
    """Time the forward of `module` (the DDP module, or its compiled wrapper) and the backwards that follow."""
    trigger = Trigger(recorder, module, ddp)
    hooks = ForwardHooks(recorder, ddp, trigger)
    handles = [module.register_forward_pre_hook(hooks.before), module.register_forward_hook(hooks.after)]
    return [trigger.stop, *(handle.remove for handle in handles)]


class ForwardHooks:
    """The two hooks of a forward. A pickled module takes ones along that do nothing."""

    def __init__(
        self,
        recorder: Recorder | None = None,
        ddp: DistributedDataParallel | None = None,
        trigger: Trigger | None = None,
    ) -> None:
        self._recorder = recorder
        self._ddp = ddp
        self._trigger = trigger

    def before(self, _module: torch.nn.Module, _args: Any) -> None:
        """Forward begins."""
        recorder, ddp = self._recorder, self._ddp
        if recorder is None or ddp is None or not torch.is_grad_enabled():
            return
        began = perf_counter_ns()
        try:
            recorder.forward_begins(ddp.require_backward_grad_sync)
        except Exception as error:
            recorder.on_error(error)
        recorder.cost_ns += perf_counter_ns() - began

    def after(self, _module: torch.nn.Module, _args: Any, output: Any) -> None:
        """It ends."""
        recorder, trigger = self._recorder, self._trigger
        if recorder is None or trigger is None or not torch.is_grad_enabled():
            return
        began = perf_counter_ns()
        try:
            if recorder.forward_ends():
                trigger.follow(output)
        except Exception as error:
            recorder.on_error(error)
        recorder.cost_ns += perf_counter_ns() - began

    # What torch.compile reads: a hook that was there before the model was compiled is not inlined.
    before._torchdynamo_disable = True  # type: ignore[attr-defined]
    after._torchdynamo_disable = True  # type: ignore[attr-defined]

    def __reduce__(self) -> tuple[type[ForwardHooks], tuple[()]]:
        return ForwardHooks, ()


def hook_optimizer(recorder: Recorder, optimizer: torch.optim.Optimizer | None) -> list[Undo]:
    """Time `optimizer.step`, of every optimizer where none is given; a step inside a step counts once."""
    timer = _OptimizerTimer(recorder)
    if optimizer is not None:
        handles = [optimizer.register_step_pre_hook(timer.before), optimizer.register_step_post_hook(timer.after)]
    else:
        handles = [register_optimizer_step_pre_hook(timer.before), register_optimizer_step_post_hook(timer.after)]

    def undo() -> None:
        timer.silent = True
        if not timer.busy:  # torch walks its hooks while ours runs: taking one out then would raise into the step
            for handle in handles:
                handle.remove()

    return [undo]


class _OptimizerTimer:
    """The two hooks of an optimizer's step."""

    def __init__(self, recorder: Recorder) -> None:
        self.silent = False
        self.busy = False
        self._recorder = recorder
        self._running: list[tuple[Any, str]] = []  # per step under way: its mark, and the phase that it interrupted

    def before(self, _optimizer: Any, _args: Any, _kwargs: Any) -> None:
        """A step begins."""
        if self.silent:
            return
        recorder, began = self._recorder, perf_counter_ns()
        self.busy = True
        try:
            if self._running and recorder.phase != "optimizer":  # left by a step that raised
                self._running.clear()
            left = recorder.enter("optimizer")
            self._running.append((recorder.clock.mark(), left))
        except Exception as error:
            recorder.on_error(error)
        self.busy = False
        recorder.cost_ns += perf_counter_ns() - began

    def after(self, _optimizer: Any, _args: Any, _kwargs: Any) -> None:
        """It ends."""
        if self.silent or not self._running:
            return
        recorder, began = self._recorder, perf_counter_ns()
        self.busy = True
        try:
            start, left = self._running.pop()
            if not self._running:
                recorder.span("optimizer", start, None)
            recorder.enter(left)
        except Exception as error:
            recorder.on_error(error)
        self.busy = False
        recorder.cost_ns += perf_counter_ns() - began


def hook_loader(recorder: Recorder) -> list[Undo]:
    """Time `__next__` of every DataLoader iterator on the training thread."""
    original = _BaseDataLoaderIter.__next__

    def timed_next(iterator: Any) -> Any:
        if threading.get_ident() != recorder.thread:
            return original(iterator)
        phase = recorder.charge(_load_begins, recorder)
        ended = False
        began = perf_counter_ns()
        try:
            return original(iterator)
        except StopIteration:
            ended = True
            raise
        finally:
            recorder.charge(_load_ends, recorder, phase, perf_counter_ns() - began, iterator, ended)

    _BaseDataLoaderIter.__next__ = timed_next  # type: ignore[method-assign, assignment]

    def undo() -> None:
        if _BaseDataLoaderIter.__next__ is timed_next:
            _BaseDataLoaderIter.__next__ = original  # type: ignore[method-assign]

    return [undo]


def _load_begins(recorder: Recorder) -> str:
    if recorder.last_step < 0:
        recorder.touch(recorder.clock.mark())
    return recorder.enter("input")


def _load_ends(recorder: Recorder, phase: str | None, ns: int, iterator: Any, ended: bool) -> None:
    recorder.loaded(ns)
    if not recorder.paused:  # an evaluation's loader is not the training's
        recorder.loader = (getattr(iterator, "_num_workers", 0), getattr(iterator, "_num_yielded", 0), ended)
    recorder.enter(phase or "other")
