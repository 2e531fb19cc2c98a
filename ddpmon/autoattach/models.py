"""Finds the model of a run whose script does not call `attach`: the data parallel model that is trained.

A model is looked at when it is built and attached to at its first forward with gradients, because a job may build
models that it never trains (a teacher, an average of the weights). Of several that are trained, such as the two of a
GAN, the one with most parameters is watched. Everything here runs on the training thread and never raises.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.nn.parallel import DistributedDataParallel

from ddpmon.autoattach.sources import callers, read_sources
from ddpmon.probe import monitor
from ddpmon.probe.parallel import bare, is_sharded, name_of, sizes
from ddpmon.probe.registration import say

_PATIENCE = 8  # forwards of a trained model while another that was built has had none: that one is not trained


class _Search:
    """The models that were built and not decided on.

    Attributes:
        forwards: model -> its forwards with gradients so far.
        steps: how many steps the watched model had finished when the newest of them was built.
    """

    def __init__(self) -> None:
        self.forwards: WeakKeyDictionary[torch.nn.Module, int] = WeakKeyDictionary()
        self.steps = -1
        self._undo: list[Callable[[], None]] = []

    def add(self, model: torch.nn.Module) -> None:
        """Look at every forward of a new model from now on."""
        if not self.forwards:
            self._undo.append(_hook_ddp())
        self.forwards[model] = 0
        if is_sharded(model):
            self._undo.append(model.register_forward_pre_hook(_before_forward, prepend=True).remove)
        self.steps = _steps()

    def seen(self, model: torch.nn.Module) -> None:
        """A forward of `model` with gradients begins."""
        if model not in self.forwards:
            return
        self.forwards[model] += 1
        if monitor.active() is not None:
            self._after_another(model)
        elif (best := self._trained(model)) is not None:
            others = len(self._outermost()) - 1
            self.end()
            _attach(best, others)

    def end(self) -> None:
        """Look at no forward any more."""
        self.forwards.clear()
        while self._undo:
            self._undo.pop()()

    def _outermost(self) -> list[torch.nn.Module]:
        """The models that lie in no other: FSDP shards blocks first, and then what they lie in."""
        inner = {id(part) for model in self.forwards for part in model.modules() if part is not model}
        return [model for model in self.forwards if id(model) not in inner]

    def _trained(self, model: torch.nn.Module) -> torch.nn.Module | None:
        """The largest of the models that are trained; None while another one may still turn out to be."""
        models = self._outermost()
        if model not in models or (self.forwards[model] < _PATIENCE and not all(map(self.forwards.get, models))):
            return None
        return max(filter(self.forwards.get, models), key=_size)

    def _after_another(self, model: torch.nn.Module) -> None:
        """A model is watched already. `model` follows it if it wraps the same module, or if that one has stopped."""
        watched = monitor.active()
        if watched is None or not watched.automatic:
            self.end()
        elif bare(model) is bare(getattr(watched.model, "_orig_mod", watched.model)):
            self.end()
            _attach(model, 0)
        elif self.forwards[model] > 1 and _steps() == self.steps:
            self.end()
            watched.detach()
            _attach(model, 0)
        elif self.forwards[model] >= _PATIENCE:
            self.end()


_search = _Search()


def built(made: Any) -> None:
    """A data parallel model has been made: a module, or a list of them that `fully_shard` takes as one."""
    try:
        for model in made if isinstance(made, Iterable) and not isinstance(made, torch.nn.Module) else (made,):
            _search.add(model)
    except Exception as error:
        say(f"cannot watch this run ({type(error).__name__}: {error}); training goes on unwatched")


def _hook_ddp() -> Callable[[], None]:
    """Notice forwards where all DDP models have them: in the class."""
    original = DistributedDataParallel.forward

    @functools.wraps(original)
    def forward(model: DistributedDataParallel, *args: Any, **kwargs: Any) -> Any:
        _before_forward(model)
        current = DistributedDataParallel.forward  # the probe's from this forward on, if it has just been attached
        return (original if current is forward else current)(model, *args, **kwargs)

    def undo() -> None:
        if DistributedDataParallel.forward is forward:
            DistributedDataParallel.forward = original  # type: ignore[method-assign]

    forward._torchdynamo_disable = True  # type: ignore[attr-defined]  # as in `probe/hooks.py`
    DistributedDataParallel.forward = forward  # type: ignore[method-assign]
    return undo


def _before_forward(model: torch.nn.Module, *_: Any) -> None:
    """The forward of a model begins; never raises."""
    try:
        if torch.is_grad_enabled():
            _search.seen(model)
    except Exception as error:
        _search.end()
        say(f"cannot watch this run ({type(error).__name__}: {error}); training goes on unwatched")


_before_forward._torchdynamo_disable = True  # type: ignore[attr-defined]


def _attach(model: torch.nn.Module, others: int) -> None:
    several = f"watching {name_of(model)} ({_size(model):,} parameters), the largest of {others + 1} models that are"
    remark = f"{several} trained or were built" if others else ""
    monitor.attach_automatically(_compiled(model) or model, remark, read_sources)


def _compiled(model: torch.nn.Module) -> torch.nn.Module | None:
    """torch.compile's wrapper of `model`, where that is what the training calls: it is in a frame above this one."""
    modules = (caller for caller in callers() if isinstance(caller, torch.nn.Module))
    return next((module for module in modules if module._modules.get("_orig_mod") is model), None)


def _size(model: torch.nn.Module) -> int:
    return sum(count for count, _ in sizes(model))


def _steps() -> int:
    watched = monitor.active()
    return -1 if watched is None else watched.steps
