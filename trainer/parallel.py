"""How the model and its optimizer are spread over the ranks: DDP with its settings, ZeRO, or FSDP."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from .config import Config
from .launch import Place
from .model import GPT


class Spread:
    """What the options say of the model of one rank.

    Args:
        config: the options.
        place: this rank's place. A rank that is alone in a larger job trains without communication.
        group: the ranks that train together; all of them for None.
    """

    def __init__(self, config: Config, place: Place, group: dist.ProcessGroup | None = None) -> None:
        self._config, self._place, self._group = config, place, group
        self._is_joint = dist.is_initialized() and (place.world_size > 1 or dist.get_world_size() == 1)

    def shard(self, model: GPT) -> None:
        """Shard the parameters with FSDP2, if that is asked for: before the optimizer is made."""
        if not (self._config.fsdp and self._is_joint):
            return
        from torch.distributed.device_mesh import DeviceMesh
        from torch.distributed.fsdp import fully_shard

        mesh = DeviceMesh.from_group(self._group or dist.group.WORLD, self._place.device.type)  # type: ignore[arg-type]
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """AdamW, each rank with the state of its part of the parameters if ZeRO is asked for."""
        if not (self._config.zero and self._is_joint):
            return torch.optim.AdamW(model.parameters(), lr=self._config.lr)
        from torch.distributed.optim import ZeroRedundancyOptimizer

        zero: torch.optim.Optimizer = ZeroRedundancyOptimizer(
            model.parameters(), torch.optim.AdamW, process_group=self._group, lr=self._config.lr
        )
        return zero

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model in DistributedDataParallel with its settings; as it is where FSDP has it, or without ranks."""
        config, device = self._config, self._place.device
        if config.dp:
            return DataParallel(model)
        if not self._is_joint or config.fsdp:
            return model
        # PowerSGD reduces twice a bucket, the second time from Gloo's threads: several buckets could overtake others.
        one_bucket = config.comm_hook == "powersgd" and device.type == "cpu"
        ddp = DistributedDataParallel(
            model,
            device_ids=[device.index] if device.type == "cuda" else None,
            process_group=self._group,
            bucket_cap_mb=1024.0 if one_bucket else config.bucket_cap_mb,
            gradient_as_bucket_view=config.bucket_view,
            static_graph=config.static_graph,
        )
        _compress(ddp, config.comm_hook, self._group)
        return ddp

    def holding_back(self, model: Any, left: int) -> AbstractContextManager[None]:
        """Around a micro-batch, `left` of which are to come: the gradients are reduced with the last one alone."""
        if self._config.fsdp and self._is_joint:
            model.set_requires_gradient_sync(left == 0 or self._config.sync_every)
        if left and not self._config.sync_every and isinstance(model, DistributedDataParallel):
            held: AbstractContextManager[None] = model.no_sync()
            return held
        return nullcontext()


def _compress(ddp: DistributedDataParallel, hook: str, group: dist.ProcessGroup | None) -> None:
    if hook == "fp16":
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

        ddp.register_comm_hook(group, fp16_compress_hook)
    elif hook == "powersgd":
        from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

        ddp.register_comm_hook(PowerSGDState(group, start_powerSGD_iter=2), powerSGD_hook)
