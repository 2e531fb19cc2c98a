"""One rank of a job that `overhead.py` launches: trains blocks of steps as it is told, and writes down what they took.

    overhead_rank.py FOLDER [peer]

Rank 0 waits for `FOLDER/<n>.go` ("SIZE MODE", or "end"), all ranks train that block on a fresh DDP wrapper, and rank 0
leaves its figures in `FOLDER/<n>.json`. With `peer` the job was launched by `traceml run`, and its mode `with` is what
the peer's quickstart shows for a loop of one's own: `traceml.init(mode="auto")` once, `trace_step(model)` around steps.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim import optimizer as optimizers

import ddpmon

SETTLE_S = 1.5  # what attach starts (threads, the store, the first frames) is not a price a step
PATCHED = (
    (torch.nn.Module, "__call__"),
    (torch.Tensor, "backward"),
    (torch.autograd, "backward"),
    (torch.Tensor, "to"),
)
MODES = ("without", "with", "buckets")


@dataclass(frozen=True)
class Size:
    """A stack of square layers, and the steps of a block."""

    title: str
    width: int
    depth: int
    batch: int
    steps: int


SIZES = (
    Size("tiny", 64, 2, 16, 400),
    Size("20 ms", 512, 6, 192, 40),
    Size("200 ms", 512, 6, 1920, 8),
)


@dataclass(frozen=True)
class Block:
    """One block of rank 0: a step's wall time, CPU time of the training thread and the probe's own account in us.

    `aside_ns` is the CPU time of the tool's other threads in the block, `wall_ns` the block's length.
    """

    wall_us: float
    cpu_us: float
    own_us: float
    aside_ns: int
    wall_ns: int
    buckets: int


class Peer:
    """The peer in this process, and what it patches, put in place only where it is to be measured."""

    def __init__(self) -> None:
        before = [getattr(owner, name) for owner, name in PATCHED]
        import traceml_ai as traceml  # type: ignore[import-not-found, unused-ignore]

        traceml.init(mode="auto")
        self._trace_step: Any = traceml.trace_step
        self._off = before
        self._on = [getattr(owner, name) for owner, name in PATCHED]
        self._hooks: list[dict[int, Any]] = [{}, {}]

    def switch(self, on: bool) -> None:
        """Install its patches, or take them out together with the optimizer hooks that it registers as it goes."""
        for (owner, name), patch in zip(PATCHED, self._on if on else self._off, strict=True):
            setattr(owner, name, patch)
        hooks: tuple[Any, Any] = (optimizers._global_optimizer_pre_hooks, optimizers._global_optimizer_post_hooks)
        for kept, live in zip(self._hooks, hooks, strict=True):
            if on:
                live.update(kept)
            else:
                kept.update(live)
                live.clear()

    def step(self, model: torch.nn.Module) -> AbstractContextManager[Any]:
        """What stands around a step."""
        context: AbstractContextManager[Any] = self._trace_step(model)
        return context


class Player:
    """Trains blocks."""

    def __init__(self, peer: Peer | None) -> None:
        torch.manual_seed(0)
        self._peer = peer
        self._layers = {size.title: layers(size) for size in SIZES}
        self._inputs = {size.title: torch.randn(size.batch, size.width) for size in SIZES}

    def play(self, size: Size, mode: str) -> Block:
        """Settle, then train and time `size.steps` steps."""
        ddp = DistributedDataParallel(self._layers[size.title], bucket_cap_mb=1)
        traced = self._peer if mode != "without" else None
        if self._peer is not None:
            self._peer.switch(on=traced is not None)
        watched = self._peer is None and mode != "without"
        monitor = ddpmon.attach(ddp, name="overhead", buckets=mode == "buckets") if watched else None
        self._settle(size, ddp, traced, monitor)
        own, aside = 0 if monitor is None else monitor.cost_ns, aside_ns()
        wall, cpu = time.perf_counter_ns(), time.thread_time_ns()
        self._train(size, ddp, traced, monitor, size.steps)
        cpu, wall = time.thread_time_ns() - cpu, time.perf_counter_ns() - wall
        own, aside = (0 if monitor is None else monitor.cost_ns) - own, aside_ns() - aside
        buckets = int(ddp._get_ddp_logging_data()["num_buckets_reduced"])
        if monitor is not None:
            monitor.detach()
        steps = size.steps * 1e3
        return Block(wall / steps, cpu / steps, own / steps, aside, wall, buckets)

    def _settle(self, size: Size, ddp: Any, traced: Peer | None, monitor: ddpmon.Monitor | None) -> None:
        began, settling = time.monotonic(), torch.ones(())
        while settling:
            self._train(size, ddp, traced, monitor, max(2, size.steps // 10))
            settling.fill_(time.monotonic() - began < SETTLE_S)
            dist.broadcast(settling, 0)  # rank 0 decides for all
        dist.barrier()

    def _train(self, size: Size, ddp: Any, traced: Peer | None, monitor: ddpmon.Monitor | None, steps: int) -> None:
        x = self._inputs[size.title]
        optimizer = torch.optim.SGD(ddp.parameters(), lr=1e-4)
        nothing = nullcontext()
        for _ in range(steps):
            with nothing if traced is None else traced.step(ddp):
                loss = ddp(x).square().mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            if monitor is not None:
                monitor.log(loss=loss, samples=len(x))


def layers(size: Size) -> torch.nn.Module:
    """The model."""
    pairs = ((torch.nn.Linear(size.width, size.width), torch.nn.ReLU()) for _ in range(size.depth))
    return torch.nn.Sequential(*(part for pair in pairs for part in pair))


def aside_ns() -> int:
    """CPU time so far of the threads that ddpmon or the peer has started in this process."""
    total = 0
    for thread in threading.enumerate():
        if thread.name.lower().startswith(("ddpmon", "traceml")):
            stat = Path(f"/proc/self/task/{thread.native_id}/schedstat")
            total += int(stat.read_text().split()[0]) if stat.exists() else 0
    return total


def next_order(folder: Path, number: int) -> tuple[int, int]:
    """The next block's size and mode by their places, (-1, -1) at the end; rank 0 waits for it and tells the others."""
    order = torch.full((2,), -1)
    if dist.get_rank() == 0:
        path = folder / f"{number}.go"
        while not path.exists() and os.getppid() != 1:
            time.sleep(0.02)
        words = path.read_text().split() if path.exists() else ["end"]
        if words != ["end"]:
            order = torch.tensor([int(words[0]), MODES.index(words[1])])
    dist.broadcast(order, 0)
    return int(order[0]), int(order[1])


def main() -> None:
    folder = Path(sys.argv[1])
    peer = Peer() if sys.argv[2:] == ["peer"] else None
    sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 (it lasts; the line on how to watch comes once a block)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    player, number = Player(peer), 0
    while True:
        size, mode = next_order(folder, number)
        if size < 0:
            break
        block = player.play(SIZES[size], MODES[mode])
        if dist.get_rank() == 0:
            (folder / "written").write_text(json.dumps(asdict(block)))
            (folder / "written").replace(folder / f"{number}.json")
        number += 1
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
