"""What ranks say of themselves beside their steps: bad losses, collections, the loader, DDP's settings."""

from __future__ import annotations

import gc
import threading
import time
from typing import Any

import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from tests.probe.probe_stage import SLOW_S, STEPS, Toy, batch, dist_rank, hold, perform, scene, toy, train, watched
from tests.probe.scenes_phases import Rows


@scene
def losses_that_are_not_finite() -> None:
    """Of two micro-batches a step. Rank 0 logs what is no number instead."""
    bad: dict[int, tuple[Any, Any]] = {1: (1.0, torch.tensor(float("nan"))), 3: (float("-inf"), torch.tensor([2.0]))}
    odd: dict[int, tuple[Any, Any]] = {2: ("low", torch.ones(2))}

    def log(step: int) -> None:
        for loss in (bad if dist_rank() == 1 else odd).get(step, (1.0, 2.0)):
            monitor.log(loss=loss)

    ddp = toy()
    with watched(ddp) as monitor:
        train(ddp, after=log)
        hold(monitor)


class SlowToGo:
    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        time.sleep(SLOW_S)


def collect() -> None:
    SlowToGo()
    gc.collect(0)


@scene
def collections() -> None:
    """Rank 1 collects on its training thread, rank 0 in another."""

    def tidy(_step: int) -> None:
        if dist_rank() == 1:
            collect()
        else:
            other = threading.Thread(target=collect)
            other.start()
            other.join()

    gc.disable()
    ddp = toy()
    with watched(ddp) as monitor:
        train(ddp, after=tidy)
        hold(monitor)
    gc.enable()


@scene
def loaders() -> None:
    """Rank 1 reads its loader to the end, rank 0 leaves a batch; both evaluate after that."""
    ddp = toy()
    rows: Any = torch.ones(STEPS + 1 + (dist_rank() == 0), *batch().shape[1:])
    loader: Any = DataLoader(rows, num_workers=dist_rank(), multiprocessing_context="fork" if dist_rank() else None)
    with watched(ddp) as monitor:
        for number, x in enumerate(loader):
            ddp(x).sum().backward()
            if number == STEPS and dist_rank() == 0:
                break
        with monitor.phase("eval"):
            list(DataLoader(Rows(0.0)))
        hold(monitor)


@scene
def the_usual_settings() -> None:
    ddp = toy()
    with watched(ddp) as monitor:
        train(ddp)
        hold(monitor)


class Mixed(Toy):
    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.ones(2, dtype=torch.float64))


@scene
def other_settings() -> None:
    """With the user's hook inside ours."""
    ddp = DistributedDataParallel(Mixed(), find_unused_parameters=True, gradient_as_bucket_view=True)
    ddp.register_comm_hook(None, fp16_compress_hook)
    with watched(ddp, buckets=True) as monitor:
        train(ddp)
        hold(monitor)


@scene
def a_static_graph() -> None:
    ddp = toy(static_graph=True)
    ddp.register_comm_hook(None, fp16_compress_hook)
    with watched(ddp) as monitor:
        train(ddp)
        hold(monitor)


if __name__ == "__main__":
    perform()
