"""On a GPU, one rank with NCCL or two with Gloo: device time, and not one synchronisation of ours."""

from __future__ import annotations

import os
import time

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from tests.probe.probe_stage import SLOW_S, STEPS, WIDTH, note, play_all, scene, watched

WARM_UP = 3  # steps: in the second forward DDP rebuilds its buckets, which synchronises; so does compiling
SPIN_CYCLES = 200_000_000  # a tenth of a second at 2 GHz


class Spinning(nn.Module):
    """Keeps the device busy in forward, and lets the host go on."""

    def __init__(self, cycles: int) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.cycles = cycles

    def forward(self, x: Tensor) -> Tensor:
        if self.cycles:
            torch.cuda._sleep(self.cycles)
        y: Tensor = self.linear(x)
        return y


def spin_ms() -> float:
    """What the spinning takes on this device."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(SPIN_CYCLES)
    start.record()
    torch.cuda._sleep(SPIN_CYCLES)
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end))


class Late(Dataset[Tensor]):
    """A dataset whose items take their time."""

    def __len__(self) -> int:
        return STEPS + 1

    def __getitem__(self, index: int) -> Tensor:
        time.sleep(SLOW_S)
        return torch.ones(WIDTH)


def train(
    cycles: int = 0,
    *,
    rank_0_only: bool = False,
    compiled: bool = False,
    half: bool = False,
    late: bool = False,
    checked: bool = True,
    **options: bool,
) -> None:
    """No value leaves the device, and DDP is warm: whatever synchronises is the monitor's."""
    device = torch.device("cuda", torch.cuda.current_device())
    cycles = 0 if rank_0_only and dist.get_rank() else cycles
    ddp = DistributedDataParallel(Spinning(cycles).to(device), device_ids=[device.index])
    model: nn.Module = torch.compile(ddp) if compiled else ddp  # type: ignore[assignment]  # a wrapper of the module
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    ones = torch.ones(2, WIDTH, device=device)

    def train_once(step: int) -> Tensor:
        with torch.autocast("cuda", torch.bfloat16, enabled=half):
            loss: Tensor = model(ones).float().sum() * 0 + step
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    for step in range(WARM_UP):
        train_once(step)
    batches = DataLoader(Late()) if late else range(STEPS + 1)
    with watched(model, **options) as monitor:
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error" if checked else "default")
        for step, _ in enumerate(batches):
            monitor.log(loss=train_once(step), samples=2)
        torch.cuda.set_sync_debug_mode("default")
        note(enabled=monitor.enabled, spin_ms=spin_ms() if cycles else 0.0)


@scene
def spinning_in_forward() -> None:
    train(SPIN_CYCLES)


@scene
def quick() -> None:
    train()


@scene
def with_buckets() -> None:
    train(buckets=True)


@scene
def compiled() -> None:
    train(compiled=True)


@scene
def in_half_precision() -> None:
    train(half=True)


@scene
def starving() -> None:
    train(late=True)


@scene
def starving_behind_the_device() -> None:
    train(5 * SPIN_CYCLES, late=True)


@scene
def one_of_two_spins() -> None:
    train(SPIN_CYCLES, rank_0_only=True, checked=False)  # Gloo itself synchronises


if __name__ == "__main__":
    alone = os.environ["WORLD_SIZE"] == "1"
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    device_id = torch.device("cuda", torch.cuda.current_device()) if alone else None
    dist.init_process_group("nccl" if alone else "gloo", device_id=device_id)
    play_all()
