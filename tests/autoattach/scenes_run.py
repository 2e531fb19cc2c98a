"""Trainings that know nothing of ddpmon, for ranks that `ddpmon run` starts: each is a scene, and a run of its own."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from tests.probe.probe_stage import STEPS, dist_rank, folder, leave, wait_for

SAMPLES, LENGTH, WORDS, PARTS = 3, 5, 11, 2
PATIENCE = 8  # forwards after which a model that was never trained is not waited for


class Words(nn.Module):
    """A model of token ids that returns its loss, as minGPT does."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(WORDS, width), nn.Linear(width, WORDS)

    def forward(self, ids: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.head(self.embed(ids))
        return logits, cross_entropy(logits.flatten(0, 1), targets.flatten())


def ids() -> Tensor:
    return torch.randint(WORDS, (SAMPLES, LENGTH))


def accumulating() -> list[float]:
    """A loop without a DataLoader, with a GradScaler, that divides the loss itself and keeps DDP from reducing."""
    model, losses = DistributedDataParallel(Words()), []
    optimizer, scaler = torch.optim.SGD(model.parameters(), 0.1), torch.amp.GradScaler("cpu")
    for _ in range(STEPS + 1):
        total = 0.0
        for part in range(PARTS):
            model.require_backward_grad_sync = part == PARTS - 1
            _, loss = model(ids(), ids())
            loss = loss / PARTS
            scaler.scale(loss).backward()
            total += loss.item()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        losses.append(total)
    return losses


def loading() -> list[float]:
    """A DataLoader with a worker, and an evaluation with larger batches in each step."""
    model, losses = DistributedDataParallel(nn.Linear(2, 1)), []
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    rows = torch.randn(SAMPLES * (STEPS + 1), 2)
    for (x,) in DataLoader(TensorDataset(rows), SAMPLES, num_workers=1):
        loss = mse_loss(model(x), x[:, :1])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        with torch.no_grad():
            model(rows)
    return losses


def two_models() -> list[float]:
    """A GAN: the generator is the larger one, and trained behind the discriminator."""
    make, judge = (DistributedDataParallel(nn.Linear(2, width)) for width in (2, 1))
    losses = []
    by_judge, by_make = (torch.optim.SGD(model.parameters(), 0.1) for model in (judge, make))
    for _ in range(STEPS + 2):
        (judge(torch.randn(SAMPLES, 2)).mean() - judge(make(torch.randn(SAMPLES, 2)).detach()).mean()).backward()
        by_judge.step()
        by_judge.zero_grad()
        loss = -judge.module(make(torch.randn(SAMPLES, 2))).mean()
        loss.backward()
        by_make.step()
        by_make.zero_grad()
        losses.append(loss.item())
    return losses


def teaching() -> list[float]:
    """A larger model that teaches and is never trained."""
    teacher, model = (DistributedDataParallel(nn.Linear(2, width)) for width in (64, 1))
    losses, optimizer = [], torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(PATIENCE + STEPS):
        x = torch.randn(SAMPLES, 2)
        with torch.no_grad():
            wanted = teacher(x)[:, :1]
        loss = mse_loss(model(x), wanted)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses[PATIENCE - 1 :]


def simply(model: nn.Module, steps: int = STEPS + 1) -> list[float]:
    """The plainest loop there is."""
    losses, optimizer = [], torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(steps):
        loss = model(torch.randn(SAMPLES, 2)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def compiled() -> list[float]:
    return simply(torch.compile(DistributedDataParallel(nn.Linear(2, 2)), backend="eager"))  # type: ignore[arg-type]


def compiled_inside() -> list[float]:
    return simply(DistributedDataParallel(torch.compile(nn.Linear(2, 2), backend="eager")))


def one_after_another() -> list[float]:
    """A second training in the same process, once the first is over."""
    name, os.environ["DDPMON_NAME"] = os.environ["DDPMON_NAME"], "the first"
    simply(DistributedDataParallel(nn.Linear(2, 4)))
    os.environ["DDPMON_NAME"] = name
    return simply(DistributedDataParallel(nn.Linear(2, 2)), STEPS + 2)[1:]


def never_trained() -> list[float]:
    """A model that nothing is ever differentiated through, and then one that is trained."""
    name, os.environ["DDPMON_NAME"] = os.environ["DDPMON_NAME"], "idle"
    idle = DistributedDataParallel(nn.Linear(2, 4))
    for _ in range(PATIENCE):
        idle(torch.randn(SAMPLES, 2))
    os.environ["DDPMON_NAME"] = name
    return simply(DistributedDataParallel(nn.Linear(2, 2)), STEPS + 2)[1:]


def patched() -> list[float]:
    """A script that puts a constructor and a forward of its own into DDP."""
    kind: Any = DistributedDataParallel
    constructor, forward = kind.__init__, kind.forward
    kind.__init__ = lambda model, *given: constructor(model, *given)
    kind.forward = lambda model, *given: forward(model, *given) * 2
    try:
        return simply(DistributedDataParallel(nn.Linear(2, 2)))
    finally:
        kind.__init__, kind.forward = constructor, forward


def attached_late() -> list[float]:
    """The script attaches itself, behind its first step, and logs losses of its own."""
    import ddpmon

    model, os.environ["DDPMON_NAME"] = DistributedDataParallel(nn.Linear(2, 2)), "before"
    simply(model, 1)
    monitor = ddpmon.attach(model, name="its own")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(STEPS + 1):
        model(torch.randn(SAMPLES, 2)).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        monitor.log(loss=100.0 + step, tokens=7, step=1000 + step, total=2000)
    return [100.0 + step for step in range(STEPS + 1)]


def sharded() -> list[float]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model, mesh = nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 2)), init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return simply(model)


def other_backend() -> list[float]:
    """DDP over a process group of a backend that somebody else has registered, as SageMaker's is."""
    dist.Backend.register_backend("elsewhere", _elsewhere, devices=["cpu"])
    group = dist.new_group(backend="elsewhere")
    return simply(DistributedDataParallel(nn.Linear(2, 2), process_group=group))


def _elsewhere(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    return dist.ProcessGroupGloo(store, rank, size, timeout)


SCENES: dict[str, Callable[[], list[float]]] = {
    play.__name__: play
    for play in (
        accumulating,
        loading,
        two_models,
        teaching,
        compiled,
        compiled_inside,
        one_after_another,
        never_trained,
    )
} | {"its own": attached_late, "sharded": sharded, "other_backend": other_backend, "patched": patched}


def perform() -> None:
    """Play the scenes of the command line; between two of them the run of the last one ends."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for name in sys.argv[2:]:
        torch.manual_seed(dist_rank())
        os.environ["DDPMON_NAME"] = name
        losses = SCENES[name]()
        (folder() / f"{name}.{dist_rank()}.json").write_text(json.dumps({"losses": losses}))
        if "DDPMON_RUN" in os.environ:
            _end_run(name)
    leave()


def _end_run(name: str) -> None:
    from ddpmon.probe import monitor

    watched: Any = monitor.active()
    wait_for(f"{name}.release")
    if watched is not None:
        watched.detach()


if __name__ == "__main__":
    perform()
