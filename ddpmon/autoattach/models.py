"""Finds the model of a run whose script does not call `attach`: the data parallel model that is trained.

A model is looked at when it is built and attached to at its first forward with gradients, because a job may build
models that it never trains (a teacher, an average of the weights). Of several that are trained, such as the two of a
GAN, the one with most parameters is watched. Everything here runs on the training thread and never raises.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any
from weakref import WeakKeyDictionary

import torch

from ddpmon.autoattach import horovod
from ddpmon.autoattach.sources import read_sources
from ddpmon.probe import monitor
from ddpmon.probe.assembly import leave_untraced
from ddpmon.probe.hooks import Given, Pickled, without_effect
from ddpmon.probe.parallel import bare, inside, name_of, sizes
from ddpmon.probe.registration import say

_PATIENCE = 8  # forwards of a trained model while another that was built has had none: that one is not trained


class _Search:
    """The models that were built and not decided on.

    Attributes:
        forwards: model -> its forwards with gradients so far.
        progress: of the watched model when the newest of them was built.
    """

    def __init__(self) -> None:
        self.forwards: WeakKeyDictionary[torch.nn.Module, int] = WeakKeyDictionary()
        self.progress = (-1, 0)
        self._hooks: WeakKeyDictionary[torch.nn.Module, Any] = WeakKeyDictionary()

    def add(self, model: torch.nn.Module) -> None:
        """Look at every forward of a new model from now on; torch.compile's wrapper takes the place of its model."""
        wrapped = inside(model)
        if wrapped is not model:
            if wrapped not in self.forwards:
                return
            self._forget(wrapped)
        self.forwards[model] = 0
        self._hooks[model] = model.register_forward_pre_hook(self.before_forward, prepend=True, with_kwargs=True)
        self.progress = _progress()

    def before_forward(self, model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The forward of a model begins; never raises."""
        try:
            if torch.is_grad_enabled() and not _is_capturing():
                self.seen(model, (args, kwargs))
        except Exception as error:
            self.end()
            say(f"cannot watch this run ({type(error).__name__}: {error}); training goes on unwatched")

    before_forward._torchdynamo_disable = True  # type: ignore[attr-defined]  # as in `probe/hooks.py`

    def __deepcopy__(self, _: object) -> _Search:
        return self

    def __reduce__(self) -> Pickled:
        return without_effect("before_forward")

    def _forget(self, model: torch.nn.Module) -> None:
        del self.forwards[model]
        self._hooks.pop(model).remove()

    def seen(self, model: torch.nn.Module, given: Given) -> None:
        """A forward of `model` with gradients begins, and is `given` arguments and keywords."""
        if model not in self.forwards:
            return
        self.forwards[model] += 1
        if monitor.active() is not None:
            self._after_another(model, given)
        elif (best := self._trained(model)) is not None:
            others = len(self._outermost()) - 1
            self.end()
            _attach(best, others, given if best is model else None)

    def end(self) -> None:
        """Look at no forward any more."""
        for model in [*self.forwards]:
            self._forget(model)

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

    def _after_another(self, model: torch.nn.Module, given: Given) -> None:
        """A model is watched already. `model` follows it if it wraps the same module, or if that one has stopped."""
        watched = monitor.active()
        if watched is None or not watched.automatic:
            self.end()
        elif bare(inside(model)) is bare(inside(watched.model)):
            self.end()
            _attach(model, 0, given)
        elif self.forwards[model] > 1 and _progress() == self.progress:
            self.end()
            watched.detach()
            _attach(model, 0, given)
        elif self.forwards[model] >= _PATIENCE:
            self.end()


_search = _Search()


def built(made: Any) -> None:
    """A data parallel model has been made: a module, a list that `fully_shard` takes as one, or Horovod's optimizer."""
    if os.environ.get("DDPMON") == "0":
        return
    try:
        leave_untraced()
        if horovod.wraps(made):
            horovod.find_model(made, _search.add)
            return
        for model in made if isinstance(made, Iterable) and not isinstance(made, torch.nn.Module) else (made,):
            _search.add(model)
    except Exception as error:
        say(f"cannot watch this run ({type(error).__name__}: {error}); training goes on unwatched")


def _attach(model: torch.nn.Module, others: int, under_way: Given | None) -> None:
    several = f"watching {name_of(inside(model))} ({_size(model):,} parameters), the largest of {others + 1} models"
    monitor.attach_automatically(model, f"{several} that were built" if others else "", read_sources, under_way)


def _is_capturing() -> bool:
    """Whether a CUDA graph is being captured: what attaching does on the device would end that."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def _size(model: torch.nn.Module) -> int:
    return sum(count for count, _ in sizes(model))


def _progress() -> tuple[int, int]:
    """The steps that the watched model has finished, and its forwards with gradients: a step may have many."""
    watched = monitor.active()
    return (-1, 0) if watched is None else (watched.steps, watched.forwards)
