"""Prints how soon a late rank of a sharded model is named, with its phase, and what a healthy run says.

    python bench/sharded.py [--kinds fsdp2,hsdp] [--ranks 2,4] [--late-ms 100]

The kinds zero1, zero2 and zero3 are DeepSpeed's, where it is installed. Gloo ranks on this machine; rank 1 is late by
so much in one phase from step 30 on. A row says which rank and phase were named, how many steps after step 30, and
since which step. Nothing is judged here.
"""

from __future__ import annotations

import argparse
import os
import socket
import tempfile
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import ddpmon
from ddpmon.snapshot import Snapshot
from ddpmon.watcher.observer import Observer

SLOW, SINCE, STEPS, WIDTH, LAYERS, USUAL_S = 1, 30, 75, 64, 3, 0.02
FAULTS = ("healthy", "input", "forward", "backward", "optimizer")


class Late(torch.autograd.Function):
    """The identity, whose gradient comes late."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, seconds: float) -> Tensor:
        """Return the input."""
        ctx.seconds = seconds
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, None]:
        """Sleep."""
        time.sleep(ctx.seconds)
        return grads[0], None


class Net(nn.Module):
    """Residual layers; sleeps in the middle of forward and backward."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(LAYERS))
        self.forward_s = self.backward_s = 0.0

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layers."""
        for place, layer in enumerate(self.layers):
            x = x + layer(x)
            if place == 1:
                time.sleep(self.forward_s)
                x = Late.apply(x, self.backward_s)  # type: ignore[no-untyped-call]
        return x


def sharded(kind: str, ranks: int) -> Net:
    """The model, sharded over all ranks, or over pairs of them whose gradients are then reduced."""
    shape, names = ((ranks,), ("shard",)) if kind == "fsdp2" else ((2, ranks // 2), ("replicate", "shard"))
    net, mesh = Net(), init_device_mesh("cpu", shape, mesh_dim_names=names)
    for layer in net.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    return net


def engine_of(net: Net, stage: int) -> Any:
    """DeepSpeed's engine with that stage of ZeRO, and Adam."""
    import deepspeed

    deepspeed.init_distributed("gloo")
    adam = {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}}
    config = {"train_micro_batch_size_per_gpu": 8, "optimizer": adam, "zero_optimization": {"stage": stage}}
    return deepspeed.initialize(model=net, model_parameters=net.parameters(), config=config)[0]


def train(kind: str, rank: int, ranks: int, fault: str, late_s: float) -> None:
    """What one rank does."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    torch.manual_seed(0)
    by_deepspeed = kind.startswith("zero")
    net = Net() if by_deepspeed else sharded(kind, ranks)
    model: Any = engine_of(net, int(kind[-1])) if by_deepspeed else net
    optimizer = model.optimizer.optimizer if by_deepspeed else torch.optim.SGD(net.parameters(), 0.01)
    monitor = ddpmon.attach(model, name=f"{kind}-{ranks}-{fault}")
    for step in range(STEPS):
        late = {
            name: USUAL_S / 4 + (late_s if rank == SLOW and step >= SINCE and fault == name else 0) for name in FAULTS
        }
        with monitor.phase("input"):
            time.sleep(late["input"])
        net.forward_s, net.backward_s = late["forward"], late["backward"]
        loss = model(torch.randn(8, WIDTH)).pow(2).mean()
        (model.backward if by_deepspeed else torch.autograd.backward)(loss)
        _step(model if by_deepspeed else optimizer, optimizer, late["optimizer"])
    dist.barrier()
    time.sleep(2.0)
    monitor.detach()
    os._exit(0)


def _step(steps: Any, optimizer: torch.optim.Optimizer, seconds: float) -> None:
    """What `steps`, with a step of the optimizer that takes longer: it sleeps where a hook of the user's runs."""
    handle = optimizer.register_step_post_hook(lambda *_: time.sleep(seconds))
    steps.step()
    handle.remove()
    steps.zero_grad()


def case(kind: str, ranks: int, fault: str, late_s: float) -> str:
    """Train, watch, and say what was found."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free.getsockname()[1]))
    os.environ["WORLD_SIZE"] = os.environ["LOCAL_WORLD_SIZE"] = str(ranks)
    began, pids = time.time(), []
    for rank in range(ranks):
        os.environ["RANK"] = os.environ["LOCAL_RANK"] = str(rank)
        if not (pid := os.fork()):
            train(kind, rank, ranks, fault, late_s)
        pids.append(pid)
    found, last = follow(pids)
    took = f"{time.time() - began:.0f} s"
    return f"{kind:<6} {ranks} ranks  {fault:<10} {found or 'nobody is named'}; {last}; {took}"


def follow(pids: list[int]) -> tuple[str, str]:
    """The first straggler that a watcher names, and the run's figures at the end."""
    observer, found, last = Observer(None), "", ""
    left = {*pids}
    while left:
        left -= {pid for pid in left if os.waitpid(pid, os.WNOHANG)[0]}
        snapshot = observer.tick()
        found = found or _named(snapshot)
        if snapshot.job.step_ms:
            last = f"{snapshot.job.step_ms:.0f} ms a step"
        time.sleep(0.25)
    observer.close()
    return found, last


def _named(snapshot: Snapshot) -> str:
    for finding in snapshot.findings:
        if finding.kind == "straggler" and snapshot.run is not None:
            after = (snapshot.run.step or 0) - SINCE
            return f"rank {finding.ranks[0]} in {finding.phase}, {after} steps later, since step {finding.since_step}"
    return ""


def main() -> None:
    """Print one line a case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", default="fsdp2,hsdp")
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--faults", default=",".join(FAULTS))
    parser.add_argument("--late-ms", type=float, default=100.0)
    wanted = parser.parse_args()
    for kind in wanted.kinds.split(","):
        for ranks in map(int, wanted.ranks.split(",")):
            for fault in wanted.faults.split(",") if kind != "hsdp" or ranks > 2 else ():
                with tempfile.TemporaryDirectory() as folder:
                    os.environ["XDG_RUNTIME_DIR"] = tempfile.tempdir = folder
                    print(case(kind, ranks, fault, wanted.late_ms / 1e3), flush=True)
                    tempfile.tempdir = None


if __name__ == "__main__":
    main()
