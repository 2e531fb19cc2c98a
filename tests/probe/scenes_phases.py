"""One rank is slow in one place of the step; the test asks where the others saw it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import barrier as imported_barrier
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from tests.probe.probe_stage import (
    SLOW_S,
    STEPS,
    WIDTH,
    SlowSGD,
    Toy,
    batch,
    dist_rank,
    note,
    perform,
    scene,
    toy,
    train,
    watched,
)


class Rows(Dataset[Tensor]):
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return STEPS + 1

    def __getitem__(self, index: int) -> Tensor:
        time.sleep(self.seconds)
        return torch.ones(WIDTH)


def laboured(**slow: float) -> None:
    """Train with a delay in one phase of rank 1."""
    mine: dict[str, Any] = slow if dist_rank() == 1 else {}
    model = Toy(mine.get("forward", 0.0), mine.get("backward", 0.0))
    ddp = DistributedDataParallel(model)
    optimizer = SlowSGD(ddp.parameters(), lr=0.01)
    optimizer.seconds = mine.get("optimizer", 0.0)
    with watched(ddp, optimizer=optimizer) as monitor:
        for x in DataLoader(Rows(mine.get("input", 0.0))):
            loss = ddp(x).pow(2).mean()
            loss.backward()
            optimizer.step()
            monitor.log(loss=loss, samples=len(x))
            time.sleep(mine.get("other", 0.0))


@scene
def slow_input() -> None:
    laboured(input=SLOW_S)


@scene
def slow_forward() -> None:
    laboured(forward=SLOW_S)


@scene
def slow_backward() -> None:
    laboured(backward=SLOW_S)


@scene
def slow_optimizer() -> None:
    laboured(optimizer=SLOW_S)


def closing(make: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer], slow: dict[str, float]) -> None:
    """Forward and backward within the optimizer's step, with a delay in one phase of rank 1."""
    mine: dict[str, Any] = slow if dist_rank() == 1 else {}
    ddp = DistributedDataParallel(Toy(mine.get("forward", 0.0), mine.get("backward", 0.0)))
    optimizer: Any = make(ddp.parameters())
    with watched(ddp) as monitor:
        for x in DataLoader(Rows(mine.get("input", 0.0))):

            def closure(x: Tensor = x) -> Tensor:
                optimizer.zero_grad()
                loss: Tensor = ddp(x).pow(2).mean()
                loss.backward()
                time.sleep(mine.get("optimizer", 0.0))
                return loss

            monitor.log(loss=optimizer.step(closure))


@scene
def slow_input_of_a_closure() -> None:
    closing(torch.optim.Adam, {"input": SLOW_S})


@scene
def slow_forward_of_a_closure() -> None:
    closing(torch.optim.Adam, {"forward": SLOW_S})


@scene
def slow_backward_of_a_closure() -> None:
    closing(torch.optim.Adam, {"backward": SLOW_S})


@scene
def slow_optimizer_of_a_closure() -> None:
    """The optimizer calls it three times."""
    closing(partial(torch.optim.LBFGS, max_iter=3, tolerance_grad=0, tolerance_change=0), {"optimizer": SLOW_S})


@scene
def slow_other() -> None:
    laboured(other=SLOW_S)


def dawdle(rank: int) -> None:
    if dist_rank() == rank:
        time.sleep(SLOW_S)


def meeting(meet: Callable[[], object]) -> None:
    ddp = toy()

    def after(_step: int) -> None:
        dawdle(1)
        meet()

    with watched(ddp):
        train(ddp, after=after)


@scene
def late_for_a_barrier() -> None:
    meeting(lambda: dist.barrier())


@scene
def late_for_a_barrier_imported_before() -> None:
    meeting(imported_barrier)


@scene
def late_for_a_sum_waited_for() -> None:
    def meet() -> None:
        work: Any = dist.all_reduce(torch.ones(1), async_op=True)
        work.wait()

    meeting(meet)


class Counting(nn.Module):
    """Sums over the ranks inside forward."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        dist.all_reduce(torch.ones(1))
        y: Tensor = self.linear(x)
        return y


@scene
def late_for_a_sum_in_forward() -> None:
    ddp = DistributedDataParallel(Counting())
    with watched(ddp):
        train(ddp, after=lambda _step: dawdle(1))


@scene
def late_for_the_buffers() -> None:
    """DDP spreads rank 0's batch-norm buffers at the start of forward."""
    ddp = DistributedDataParallel(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH)))
    with watched(ddp):
        train(ddp, after=lambda _step: dawdle(0))


@scene
def evaluating() -> None:
    """Rank 1 does all that a step has, slowly, but under a name of its own."""
    ddp, other = toy(), Toy(forward_s=SLOW_S if dist_rank() == 1 else 0.0)
    optimizer = SlowSGD(other.parameters(), lr=0.01)

    def evaluate(_step: int) -> None:
        with monitor.phase("eval"):
            for x in DataLoader(Rows(0.0)):
                other(x).sum().backward()
                optimizer.step()
                break

    with watched(ddp) as monitor:
        train(ddp, after=evaluate)


@scene
def named_loading() -> None:
    """The loader is read within a phase that says so too."""
    ddp = toy()
    rows = iter(DataLoader(Rows(SLOW_S if dist_rank() == 1 else 0.0)))

    def fetch(_step: int) -> None:
        with monitor.phase("input"):
            next(rows)

    with watched(ddp) as monitor:
        train(ddp, after=fetch)


@scene
def loader_of_ones_own() -> None:
    ddp = toy()

    def fetch(_step: int) -> None:
        with monitor.phase("input"):
            dawdle(1)

    with watched(ddp) as monitor:
        train(ddp, after=fetch)
    monitor.log(loss=1.0)  # after detach: a no-op
    with monitor.phase("eval"):
        note(enabled=monitor.enabled, alive=bool(batch().sum() > 0))


if __name__ == "__main__":
    perform()
