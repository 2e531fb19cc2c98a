"""What a data parallel model is to the probe: DDP, DataParallel, Horovod's, DeepSpeed's, or a sharded one (FSDP).

A sharded model is reduced by collectives that torch calls from Python, in its backward: `probe/collectives.py` times
these, and the last one of a backward is the sync point. DDP's own reduction is in C++.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch.nn.parallel import DataParallel, DistributedDataParallel

from ddpmon.parts import wire_text

DDP, DP, FSDP2, FSDP1, REPLICATE = "ddp", "dp", "fsdp2", "fsdp1", "replicate"
HOROVOD, DEEPSPEED = "horovod", "deepspeed"
HOROVOD_OPTIMIZERS: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # model -> the optimizer that reduces for it


def kind_of(model: Any) -> str | None:
    """How `model` is made parallel: "ddp", "fsdp2" and so on; None if in no way."""
    if isinstance(model, DistributedDataParallel):
        return DDP
    if isinstance(model, DataParallel):
        return DP
    if isinstance(model, torch.nn.Module) and model in HOROVOD_OPTIMIZERS:
        return HOROVOD
    for module, name, kind in (
        ("deepspeed.runtime.engine", "DeepSpeedEngine", DEEPSPEED),
        ("torch.distributed._composable.replicate_with_fsdp", "ReplicateModule", REPLICATE),
        ("torch.distributed.fsdp", "FSDPModule", FSDP2),
        ("torch.distributed.fsdp", "FullyShardedDataParallel", FSDP1),
    ):
        found = getattr(sys.modules.get(module), name, None)  # a model of that kind has imported it
        if found is not None and isinstance(model, found):
            return kind
    return None


def inside(model: Any) -> Any:
    """The parallel model in torch.compile's wrapper; `model` itself where that is none.

    FullyShardedDataParallel has the attributes of what it wraps, so that attributes would not tell.
    """
    return vars(model).get("_modules", {}).get("_orig_mod", model) if hasattr(model, "__dict__") else model


def is_sharded(model: Any) -> bool:
    """Whether its gradients are reduced in its backward, by collectives that are called from Python."""
    return not is_wrapper(model) and kind_of(model) != HOROVOD


def is_wrapper(model: Any) -> bool:
    """Whether it holds the user's module as its attribute `module`."""
    return isinstance(model, DistributedDataParallel | DataParallel) or kind_of(model) == DEEPSPEED


def group_of(model: Any) -> Any:
    """The process group whose ranks are those of the run: of a sharded model and with DeepSpeed all ranks of the job.

    None for DataParallel, which is one process, and for Horovod, which has none.
    """
    is_whole_job = is_sharded(model) or kind_of(model) == DEEPSPEED
    return dist.group.WORLD if is_whole_job else getattr(model, "process_group", None)


def syncs(model: Any) -> bool:
    """Whether the next backward ends a step, as far as is known before.

    A sharded model shows it by its reductions; on a single rank it has none. With Horovod the optimizer's step
    ends a step, and with DeepSpeed what its engine does behind the backward.
    """
    if kind_of(model) in (HOROVOD, DEEPSPEED):
        return False
    return dist.get_world_size() == 1 if is_sharded(model) else getattr(model, "require_backward_grad_sync", True)


def bare(model: Any) -> torch.nn.Module:
    """The user's module: inside DDP's wrapper and torch.compile's; a sharded model is its own."""
    inner: Any = model.module if is_wrapper(model) else model
    found: torch.nn.Module = getattr(inner, "_orig_mod", inner)
    return found


def name_of(model: Any) -> str:
    """What the user calls the class of a model, which FSDP2 gives another class with the same name behind a prefix."""
    kind = type(model.module if kind_of(model) == FSDP1 else bare(model)).__name__
    prefix = {FSDP2: "FSDP", REPLICATE: "Replicate"}.get(kind_of(model) or "", "")
    return wire_text(kind.removeprefix(prefix))


def reduced(model: Any) -> list[torch.nn.Parameter]:
    """The parameters whose gradients are reduced."""
    ignored = getattr(model, "parameters_to_ignore", ())
    module: torch.nn.Module = model.module if is_wrapper(model) else model
    return [p for name, p in module.named_parameters() if p.requires_grad and name not in ignored]


def sizes(model: Any) -> Iterator[tuple[int, int]]:
    """Of each trained parameter its elements, those of all ranks together where it is sharded, and bytes of one.

    FullyShardedDataParallel holds plain tensors: of its parameters only the elements on this rank are counted.
    DeepSpeed empties the parameters that it has sharded, and keeps the number of their elements.
    """
    for parameter in model.parameters():
        if parameter.requires_grad:
            yield getattr(parameter, "ds_numel", parameter.numel()), parameter.element_size()
