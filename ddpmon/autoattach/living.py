"""Watches models of a training that runs already, as `ddpmon inject` asks for.

Steps have no numbers that a rank could look up, and the ranks get the request one after another. They must begin with
the same step. What all of them count alike are the collectives that they have begun: the last rank that is asked names
such a number some seconds ahead, in the training's own store, and each rank begins with its first forward behind it. A
thread asks the store, and the training thread reads the numbers in its forwards. A training may be asked again: each
time as many requests as there are ranks belong together.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any
from weakref import ref

import torch
import torch.distributed as dist
from torch.nn.parallel import DataParallel, DistributedDataParallel

from ddpmon.autoattach.models import built
from ddpmon.probe import monitor
from ddpmon.probe.hooks import Pickled, without_effect
from ddpmon.probe.registration import say
from ddpmon.probe.run_life import launch

_AHEAD_S = 3.0  # the start is so far ahead: each rank reads it 15 times before, at `_EVERY_S`
_AHEAD_FORWARDS = 8
_EVERY_S = 0.2
_OTHER_KINDS = (  # modules that need not be loaded, and their class of models
    ("torch.distributed.fsdp", "FSDPModule"),
    ("torch.distributed.fsdp", "FullyShardedDataParallel"),
    ("torch._dynamo.eval_frame", "OptimizedModule"),  # last: it takes the place of the model that it wraps
)
_waiting: list[_Gate] = []


def living_models() -> list[torch.nn.Module]:
    """The data parallel models of this process. The interpreter stands still meanwhile: 0.1 s for a million objects."""
    kinds: list[type] = [DistributedDataParallel, DataParallel]
    kinds += [
        kind for module, name in _OTHER_KINDS if (kind := getattr(sys.modules.get(module), name, None)) is not None
    ]
    every = [each for kind in kinds for each in _with_subclasses(kind)]
    order = {kind: place for place, kind in enumerate(every)}
    # An object refers to its class. This looks through all objects in C.
    found = [each for each in gc.get_referrers(*every) if type(each) in order]
    return sorted(found, key=lambda model: order[type(model)])


def _with_subclasses(kind: type) -> Iterator[type]:
    """`kind` and all classes below it: `fully_shard` makes one for each class of modules."""
    yield kind
    below: type
    for below in type.__subclasses__(kind):
        yield from _with_subclasses(below)


def watch_living() -> None:
    """Watch the models that live here from the same step on as all other ranks; called on the main thread."""
    if monitor.active() is not None or _waiting or os.environ.get("DDPMON") == "0":
        return
    models = living_models()
    if not models:
        return
    if not dist.is_initialized() or dist.get_world_size() == 1:
        built(models)
        return
    gate = _Gate(models)
    _waiting.append(gate)
    threading.Thread(target=gate.wait, name="ddpmon-inject", daemon=True).start()


def collectives() -> int:
    """How many collectives this rank has begun, in all groups together; on all ranks the same at the same line.

    Raises:
        RuntimeError: a backend does not count them.
    """
    groups: list[Any] = [*dist.distributed_c10d._world.pg_map]
    return sum(group._get_sequence_number_for_group() for group in groups)


class _Gate:
    """Lets this rank begin behind a number of collectives that all ranks have agreed on.

    Attributes:
        start: that number, None before it is known.
    """

    def __init__(self, models: list[torch.nn.Module]) -> None:
        self.start: int | None = None
        self._models = [ref(model) for model in models]  # the script may drop them before all ranks were asked
        self._seen: list[tuple[float, int]] = []  # the first and the last forward: when, and how many collectives
        self._forwards = 0
        self._hooks = [model.register_forward_pre_hook(self._before_forward, prepend=True) for model in models]

    def _before_forward(self, _model: torch.nn.Module, _given: Any) -> None:
        """The forward of a model begins; never raises."""
        if not self._hooks:  # a copy of a model has kept its hook
            return
        try:
            self._look()
        except Exception as error:
            self._end(f"cannot watch this run ({type(error).__name__}: {error}); training goes on unwatched")

    _before_forward._torchdynamo_disable = True  # type: ignore[attr-defined]  # as in `probe/hooks.py`

    def __deepcopy__(self, _: object) -> _Gate:
        return self

    def __reduce__(self) -> Pickled:
        return without_effect("_before_forward")

    def _look(self) -> None:
        now, start = collectives(), self.start
        before = self._seen[-1][1] if self._seen else now
        self._seen[1:] = [(time.monotonic(), now)]
        self._forwards += 1
        if start is None or now < start:
            return
        if before >= start:
            self._end("this rank is not watched: it learned too late when to begin")
            return
        models = [model for each in self._models if (model := each()) is not None]
        self._end()
        built(models)  # at the next forward

    def _end(self, reason: str = "") -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._models = [], []
        _waiting.clear()
        if reason:
            say(reason)

    def wait(self) -> None:
        """Agree with the other ranks on the start, on a thread of its own; until all have been asked."""
        try:
            store, key = dist.distributed_c10d._get_default_store(), f"ddpmon/inject/{launch().restart}"
            before, own = divmod(store.add(f"{key}/ranks", 1) - 1, dist.get_world_size())
            start = f"{key}/start/{before}"
            if own == dist.get_world_size() - 1:
                store.set(start, str(self._ahead()))
            while not store.check([start]):
                time.sleep(_EVERY_S)
            self.start = int(store.get(start))
        except Exception as error:
            self._end(f"cannot watch this run ({type(error).__name__}: {error}); training goes on unwatched")

    def _ahead(self) -> int:
        """The number of collectives some forwards and seconds ahead, at the pace of the forwards seen."""
        while self._forwards < _AHEAD_FORWARDS:
            time.sleep(_EVERY_S)
        (since, first), (until, last) = self._seen
        done = last - first
        pace = done / max(until - since, 1e-3)
        return last + max(int(pace * _AHEAD_S), _AHEAD_FORWARDS * done // (self._forwards - 1), 1)
