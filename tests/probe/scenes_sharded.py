"""Sharded models on four ranks: each phase of rank 1 is slow in one step, and gradients are accumulated in another."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from tests.probe.probe_stage import WIDTH, SlowSGD, batch, dist_rank, late, note, perform, scene, watched

SLOW_RANK = 1
SLOW_S = 0.5  # more than the others come late by themselves on a busy machine
# The step in which each phase is slow: what follows a sync point belongs to the next step.
SLOW = {"forward": 1, "backward": 2, "input": 3, "optimizer": 4}
PARTS_IN, STEPS = 5, 6


class Layer(nn.Linear):
    """What is sharded by itself."""


class Net(nn.Module):
    """Two layers; sleeps between them in forward and in backward."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Layer(WIDTH, WIDTH), Layer(WIDTH, WIDTH)
        self.forward_s = self.backward_s = 0.0

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        time.sleep(self.forward_s)
        y: Tensor = self.second(late(x, self.backward_s))
        return y


def play(model: nn.Module, net: Net, *, accumulates: bool = True) -> None:
    """Train; the parts of one step are two micro-batches, of which the first reduces nothing."""
    optimizer, losses = SlowSGD(model.parameters(), lr=0.01), []
    mine = dist_rank() == SLOW_RANK
    with watched(model) as monitor:
        for step in range(STEPS + 1):
            slow = {phase: SLOW_S if mine and at == step else 0.0 for phase, at in SLOW.items()}
            with monitor.phase("input"):
                time.sleep(slow["input"])
            net.forward_s, net.backward_s = slow["forward"], slow["backward"]
            parts = 2 if accumulates and step == PARTS_IN else 1
            for part in range(parts):
                if accumulates:
                    model.set_requires_gradient_sync(part == parts - 1)  # type: ignore[operator]
                loss = model(batch()).pow(2).mean()
                loss.backward()
            optimizer.seconds = SLOW_S if mine and step + 1 == SLOW["optimizer"] else 0.0
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            monitor.log(loss=loss.detach())
    note(losses=losses)


def shard(*shape: int) -> None:
    net, names = Net(), ("replicate", "shard")[-len(shape) :]
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    for layer in (net.first, net.second):
        fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    play(net, net)


@scene
def fsdp2() -> None:
    shard(dist.get_world_size())


@scene
def hsdp() -> None:
    shard(2, dist.get_world_size() // 2)


@scene
def replicated() -> None:
    from torch.distributed._composable.replicate_with_fsdp import replicate

    net, mesh = Net(), init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in (net.first, net.second, net):
        replicate(layer, mesh=mesh)
    play(net, net)


@scene
def fsdp1() -> None:
    net = Net()
    sharded = FullyShardedDataParallel(net, auto_wrap_policy=ModuleWrapPolicy({Layer}), device_id=torch.device("cpu"))
    play(sharded, net, accumulates=False)


if __name__ == "__main__":
    perform()
