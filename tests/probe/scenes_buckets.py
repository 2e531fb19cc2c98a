"""Bucket detail with and without a communication hook of the user's."""

from __future__ import annotations

import time
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from tests.probe.probe_stage import WIDTH, note, perform, scene, train, watched

HOOK_S = 0.03


def several_buckets() -> DistributedDataParallel:
    layers = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(6)))
    return DistributedDataParallel(layers, bucket_cap_mb=0.0005)


class Slow:
    """A user's hook that counts its calls and takes its time before it reduces."""

    calls = 0

    def reduce(self, group: Any, bucket: Any) -> Any:
        self.calls += 1
        time.sleep(HOOK_S)
        return allreduce_hook(group, bucket)

    def register(self, ddp: DistributedDataParallel) -> None:
        # A lambda: DDP checks the annotations of what it is given, and ours are postponed.
        ddp.register_comm_hook(dist.group.WORLD, lambda group, bucket: self.reduce(group, bucket))


@scene
def no_hook() -> None:
    ddp = several_buckets()
    with watched(ddp, buckets=True):
        train(ddp)


@scene
def hook_before_attach() -> None:
    ddp, slow = several_buckets(), Slow()
    slow.register(ddp)
    with watched(ddp, buckets=True) as monitor:
        train(ddp)
        told = slow.calls
        monitor.log()
    train(ddp, steps=1)
    note(calls=told, after_detach=slow.calls - told)


@scene
def hook_after_attach() -> None:
    ddp, slow = several_buckets(), Slow()
    with watched(ddp, buckets=True):
        slow.register(ddp)
        try:
            ddp.register_comm_hook(dist.group.WORLD, allreduce_hook)
        except RuntimeError as error:
            note(second=str(error))
        train(ddp)
        note(calls=slow.calls)


@scene
def hook_without_detail() -> None:
    ddp, slow = several_buckets(), Slow()
    slow.register(ddp)
    with watched(ddp):
        train(ddp)
        note(calls=slow.calls)


@scene
def trained_already() -> None:
    """A hook in use cannot be wrapped any more: the run is watched without detail, and the hook stays."""
    ddp, slow = several_buckets(), Slow()
    slow.register(ddp)
    train(ddp, steps=3)
    before = slow.calls
    with watched(ddp, buckets=True):
        train(ddp)
        note(calls=slow.calls - before)


if __name__ == "__main__":
    perform()
