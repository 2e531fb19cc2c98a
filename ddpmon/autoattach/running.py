"""Watches the models of a training that runs already, as `ddpmon inject` asks for."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch.nn.parallel import DataParallel, DistributedDataParallel

from ddpmon.autoattach.gate import Gate, is_waiting
from ddpmon.autoattach.models import built
from ddpmon.probe import monitor
from ddpmon.probe.parallel import DEEPSPEED, group_of, is_sharded, kind_of
from ddpmon.probe.registration import say

_OTHER_KINDS = (  # modules that need not be loaded, and their class of models
    ("torch.distributed.fsdp", "FSDPModule"),
    ("torch.distributed.fsdp", "FullyShardedDataParallel"),
    ("deepspeed.runtime.engine", "DeepSpeedEngine"),
    ("torch._dynamo.eval_frame", "OptimizedModule"),  # last: it takes the place of the model that it wraps
)


def parallel_models() -> list[torch.nn.Module]:
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


def watch_running() -> None:
    """Watch the models of this process from the same step on as all other ranks; called on the main thread.

    It returns at once. What the ranks have in common are the collectives that they have begun: those of DDP's own
    process group, and for a sharded model or DeepSpeed those of all groups, because no single one has all of them.
    """
    if monitor.active() is not None or is_waiting() or os.environ.get("DDPMON") == "0":
        return
    models = parallel_models()
    parallel = [model for model in models if kind_of(model) is not None]
    if not parallel:
        if dist.is_initialized():
            say("this rank is not watched: it has no DDP, FSDP, DataParallel or DeepSpeed model")
        return
    groups = [group for model in parallel if (group := group_of(model)) is not None] if dist.is_initialized() else []
    group = max(groups, key=dist.get_world_size, default=None)
    if group is None or dist.get_world_size(group) == 1:
        built(models)
        return
    in_many_groups = any(is_sharded(model) or kind_of(model) == DEEPSPEED for model in parallel)
    Gate(models, group, [*dist.distributed_c10d._world.pg_map] if in_many_groups else [group]).open_later()
