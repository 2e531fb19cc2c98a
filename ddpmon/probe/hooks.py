"""Hooks on the DDP module, the optimizer and the DataLoader: they leave marks with the EventLog, and nothing else."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import nullcontext
from threading import get_ident
from time import perf_counter_ns
from types import SimpleNamespace
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.data.dataloader import _BaseDataLoaderIter

from ddpmon.probe.backward_detector import BackwardDetector
from ddpmon.probe.event_log import EventLog
from ddpmon.probe.parallel import DDP, kind_of, syncs

Undo = Callable[[], None]
Pickled = tuple[type[SimpleNamespace], tuple[()], dict[str, Callable[..., None]]]
Given = tuple[tuple[Any, ...], dict[str, Any]]  # what a forward gets


def without_effect(*hooks: str) -> Pickled:
    """What `__reduce__` returns of an object with hooks: one whose hooks do nothing, where ddpmon is not installed."""
    return SimpleNamespace, (), dict.fromkeys(hooks, nullcontext().__exit__)


def hook_module(recorder: EventLog, module: torch.nn.Module, ddp: Any, under_way: Given | None = None) -> list[Undo]:
    """Time the forward of `module` (the parallel model, or its compiled wrapper) and the backwards that follow.

    `under_way` is what the forward is given that has begun already: it is timed from now on.
    """
    trigger = BackwardDetector(recorder, module, ddp)
    joined = [] if under_way is None else [_join(recorder, module, ddp, trigger, under_way)]
    if (
        kind_of(ddp) == DDP
        and module is ddp
        and "forward" not in vars(ddp)
        and getattr(ddp, "_compiled_call_impl", None) is None
    ):
        return [trigger.stop, *joined, _wrap_forward(recorder, ddp, trigger)]
    hooks = ForwardHooks(recorder, ddp, trigger)
    # Before the hook in which a sharded model gathers its parameters, and after the one that frees them.
    handles = [
        module.register_forward_pre_hook(hooks.before, prepend=True, with_kwargs=True),
        module.register_forward_hook(hooks.after),
    ]
    return [trigger.stop, *joined, *(handle.remove for handle in handles)]


def _join(recorder: EventLog, module: torch.nn.Module, ddp: Any, trigger: BackwardDetector, under_way: Given) -> Undo:
    """Time the rest of the forward that a hook of `module` has called this from."""
    is_over = False

    def ends(_module: torch.nn.Module, _args: Any, output: Any) -> None:
        nonlocal is_over
        if not is_over and output is not None:
            trigger.forward_ends(output)
        is_over = True
        if sys.exc_info()[0] is None:  # after an exception torch walks its own hooks: the next forward takes this out
            handle.remove()

    recorder.forward_begins(_syncs(recorder, ddp))
    if recorder.on_input is not None:
        recorder.charge(recorder.on_input, *under_way)
    ends._torchdynamo_disable = True  # type: ignore[attr-defined]
    handle = module.register_forward_hook(ends, always_call=True)
    return handle.remove


def _syncs(recorder: EventLog, ddp: Any) -> bool:
    """`syncs`, which raises once the process group is destroyed."""
    try:
        return syncs(ddp)
    except Exception as error:
        recorder.on_error(error)
        return False


def _wrap_forward(recorder: EventLog, ddp: Any, trigger: BackwardDetector) -> Undo:
    """Wrap `forward` where the class of `ddp` has it: module hooks send every call through torch's slow path."""
    owner: Any = next(kind for kind in type(ddp).__mro__ if "forward" in vars(kind))
    original = owner.forward
    inner = original if recorder.on_input is None else _told(recorder, original)
    watched: Any = ddp
    is_grad_enabled, mark, put = torch.is_grad_enabled, recorder.clock.mark, recorder.log.append

    @functools.wraps(original)
    def forward(module: Any, *args: Any, **kwargs: Any) -> Any:
        if module is not watched or not is_grad_enabled() or recorder.paused:
            return original(module, *args, **kwargs)
        if recorder.sampling:
            recorder.forward_begins(watched.require_backward_grad_sync)
        else:
            try:
                put(("forward", mark()))
                recorder.in_backward = False
                recorder.syncing |= watched.require_backward_grad_sync
            except Exception as error:
                recorder.on_error(error)
        output = inner(module, *args, **kwargs)
        if watched is None:
            return output
        if recorder.sampling or recorder.due or not trigger.steady or not trigger.witness.requires_grad:
            trigger.forward_ends(output)
        else:
            try:
                put(("forwarded", mark()))
                recorder.due = True
            except Exception as error:
                recorder.on_error(error)
        return output

    def undo() -> None:
        nonlocal watched
        watched = None
        if owner.forward is forward:
            owner.forward = original

    owner.forward = forward
    return undo


def _told(recorder: EventLog, forward: Any) -> Any:
    """A forward that tells what it gets."""

    @functools.wraps(forward)
    def telling(module: Any, *args: Any, **kwargs: Any) -> Any:
        if recorder.on_input is not None:
            recorder.charge(recorder.on_input, args, kwargs)
        return forward(module, *args, **kwargs)

    return telling


class ForwardHooks:
    """The two hooks of a forward, of a compiled model or one that is not DDP. Copies of them have no effect."""

    def __init__(
        self,
        recorder: EventLog | None = None,
        ddp: Any = None,
        trigger: BackwardDetector | None = None,
    ) -> None:
        self._recorder = recorder
        self._ddp = ddp
        self._trigger = trigger
        self._under_way = False

    def before(self, _module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        """Forward begins."""
        recorder, ddp = self._recorder, self._ddp
        if recorder is not None and ddp is not None and torch.is_grad_enabled() and not recorder.paused:
            self._under_way = True
            recorder.forward_begins(_syncs(recorder, ddp))
            if recorder.on_input is not None:
                recorder.charge(recorder.on_input, args, kwargs)

    def after(self, _module: torch.nn.Module, _args: Any, output: Any) -> None:
        """It ends."""
        if self._trigger is not None and torch.is_grad_enabled() and self._under_way:
            self._under_way = False
            self._trigger.forward_ends(output)

    # What torch.compile reads: a hook that was there before the model was compiled is not inlined.
    before._torchdynamo_disable = True  # type: ignore[attr-defined]
    after._torchdynamo_disable = True  # type: ignore[attr-defined]

    def __deepcopy__(self, _: object) -> ForwardHooks:
        return ForwardHooks()

    def __reduce__(self) -> Pickled:
        return without_effect("before", "after")


def hook_optimizer(recorder: EventLog, optimizer: torch.optim.Optimizer | None) -> list[Undo]:
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

    __slots__ = ("_mark", "_put", "_recorder", "busy", "silent")

    def __init__(self, recorder: EventLog) -> None:
        self.silent = False
        self.busy = False
        self._recorder = recorder
        self._mark, self._put = recorder.clock.mark, recorder.log.append

    def before(self, _optimizer: Any, _args: Any, _kwargs: Any) -> None:
        """A step begins."""
        began = perf_counter_ns() if self._recorder.sampling else 0
        try:
            if not self.silent:
                mark, put = self._mark, self._put
                put(("optimizer", mark()))
        except Exception as error:
            self._fail(error)
        if began:
            self._recorder.spend("optimizer", began)

    def after(self, _optimizer: Any, _args: Any, _kwargs: Any) -> None:
        """It ends."""
        began = perf_counter_ns() if self._recorder.sampling else 0
        try:
            if not self.silent:
                mark, put = self._mark, self._put
                put(("optimized", mark()))
        except Exception as error:
            self._fail(error)
        if began:
            self._recorder.spend("optimized", began)

    def _fail(self, error: Exception) -> None:
        self.busy = True
        self._recorder.on_error(error)
        self.busy = False


def hook_loader(recorder: EventLog) -> list[Undo]:
    """Time `__next__` of every DataLoader iterator on the training thread."""
    original = _BaseDataLoaderIter.__next__

    def timed_next(iterator: Any) -> Any:
        if get_ident() != recorder.thread:
            return original(iterator)
        began = _load_begins(recorder)
        ended = False
        try:
            return original(iterator)
        except StopIteration:
            ended = True
            raise
        finally:
            _load_ends(recorder, began, iterator, ended)

    _BaseDataLoaderIter.__next__ = timed_next  # type: ignore[method-assign, assignment]

    def undo() -> None:
        if _BaseDataLoaderIter.__next__ is timed_next:
            _BaseDataLoaderIter.__next__ = original  # type: ignore[method-assign]

    return [undo]


def _load_begins(recorder: EventLog) -> int:
    began = perf_counter_ns()
    try:
        recorder.log.append(("load", began, None if recorder.last_step >= 0 else recorder.clock.mark()))
    except Exception as error:
        recorder.on_error(error)
    if recorder.sampling:
        recorder.spend("load", began)
    return began


def _load_ends(recorder: EventLog, began: int, iterator: Any, ended: bool) -> None:
    now = perf_counter_ns()
    try:
        loader = (getattr(iterator, "_num_workers", 0), getattr(iterator, "_num_yielded", 0), ended)
        recorder.log.append(("loaded", now, now - began, loader))
    except Exception as error:
        recorder.on_error(error)
    if recorder.sampling:
        recorder.spend("loaded", now)
