"""Row 7: what a mark and a step cost the training thread.

The parts of a mark are timed alone, in bunches so short that no launch queue fills. Then blocks of steps are trained in
turns, without ddpmon and with it, each after a second of settling: what a block took above the one before it, median
and quartiles, for a model of tiny kernels (the host sets the pace: all that ddpmon costs shows) and a larger one. On a
GPU 2 minutes.

    python bench/gpu/row_cost.py [--rehearse]
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from course_device import Device
from course_figures import Figures, run_row
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ddpmon
from ddpmon.probe.clock import Clock, CpuClock, CudaClock
from ddpmon.probe.device_copies import DeviceCopies
from ddpmon.probe.loss import LossReader

_BUDGET_US = 30.0  # of a step, on the training thread
_BUNCH, _BUNCHES = 100, 100
_PAIRS, _SETTLE_S = 10, 1.0
_SIZES = {"tiny kernels": (64, 20, 16), "large kernels": (4096, 8, 4096)}  # width, layers, batch
_REHEARSED = {"tiny kernels": (16, 2, 4), "larger kernels": (64, 4, 16)}


def us_of(job: Callable[[], object], device: Device) -> float:
    """Microseconds of the host for one call: the median over bunches."""
    spent = []
    for _ in range(_BUNCHES):
        began = time.perf_counter_ns()
        for _ in range(_BUNCH):
            job()
        spent.append((time.perf_counter_ns() - began) / 1e3 / _BUNCH)
        device.finish()
    return statistics.median(spent)


def parts(figures: Figures, device: Device) -> float:
    """What the parts of a mark cost; returns the mark itself."""
    clock: Clock = CudaClock(device.at) if device.is_gpu else CpuClock()

    def mark() -> None:
        clock.recycle([clock.mark()])

    jobs: dict[str, Callable[[], object]] = {"a mark": mark}
    reader = LossReader(DeviceCopies(clock) if isinstance(clock, CudaClock) else None)
    loss = torch.ones((), device=device.at)
    jobs["a loss"] = lambda: reader.take(loss)
    if device.is_gpu:
        stream: Any = torch.cuda.current_stream()
        event: Any = torch.cuda.Event(enable_timing=True)
        record: Any = getattr(torch.cuda.Event.__base__, "record", torch.cuda.Event.record)
        jobs |= {
            "torch.cuda.current_stream": lambda: torch.cuda.current_stream(device.at),
            "Event.record": lambda: event.record(stream),
            "the base class's record": lambda: record(event, stream),
            "a new event, recorded": lambda: record(torch.cuda.Event(enable_timing=True), stream),
        }
    found = {name: us_of(job, device) for name, job in jobs.items()}
    figures.put({f"{name}, µs": us for name, us in found.items()})
    return found["a mark"]


class Blocks:
    """Blocks of steps of one model."""

    def __init__(self, device: Device, width: int, layers: int, batch: int) -> None:
        self._device = device
        torch.manual_seed(0)
        net = nn.Sequential(*(nn.Linear(width, width) for _ in range(layers))).to(device.at)
        self._ddp = DistributedDataParallel(net, device_ids=device.ids)
        self._optimizer = torch.optim.SGD(self._ddp.parameters(), lr=1e-6, foreach=True)
        self._x = torch.randn(batch, width, device=device.at)
        self._monitor: ddpmon.Monitor | None = None
        self.own_us: list[float] = []
        self._train_for(_SETTLE_S)
        self._steps = max(20, int(0.5e6 / self._block(20)))

    def pair_us(self) -> tuple[float, float]:
        """Microseconds of a step in a block without ddpmon, and in one with it."""
        without = self._settled_block()
        self._monitor = ddpmon.attach(self._ddp, name="cost")
        own, with_it = self._monitor.cost_ns, self._settled_block()
        self.own_us.append((self._monitor.cost_ns - own) / 1e3 / max(1, self._trained))
        self._monitor.detach()
        self._monitor = None
        return without, with_it

    def _settled_block(self) -> float:
        self._trained = 0
        self._train_for(_SETTLE_S)
        return self._block(self._steps)

    def _train_for(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._block(10)

    def _block(self, steps: int) -> float:
        self._device.finish()
        began = time.perf_counter_ns()
        for _ in range(steps):
            self._step()
        self._device.finish()
        self._trained = getattr(self, "_trained", 0) + steps
        return (time.perf_counter_ns() - began) / 1e3 / steps

    def _step(self) -> None:
        loss = self._ddp(self._x).square().mean()
        loss.backward()
        self._optimizer.step()
        self._optimizer.zero_grad()
        if self._monitor is not None:
            self._monitor.log(loss=loss.detach(), samples=len(self._x))


def measure(figures: Figures, rehearse: bool) -> None:
    """Time a mark, then both sizes in turns."""
    device = Device(rehearse)
    device.join()
    mark_us = parts(figures, device)
    worst, said = 0.0, [f"a mark {mark_us:.1f} µs"]
    for size, shape in (_REHEARSED if rehearse else _SIZES).items():
        blocks = Blocks(device, *shape)
        pairs = [blocks.pair_us() for _ in range(2 if rehearse else _PAIRS)]
        low, more, high = statistics.quantiles((with_it - without for without, with_it in pairs), n=4)
        usual = statistics.median(without for without, _ in pairs)
        figures.put({f"{size}: step µs": usual, f"{size}: more µs": more})
        figures.put({f"{size}: quartiles": f"{low:.1f}..{high:.1f}"})
        figures.put({f"{size}: own account µs": statistics.median(blocks.own_us)})
        said.append(f"{size}: +{more:.1f} µs [{low:.1f} .. {high:.1f}] on a step of {usual:.0f} µs")
        worst = max(worst, more)
    figures.say("; ".join(said))
    figures.conclude(worst <= _BUDGET_US, f"a step takes {worst:.1f} µs more; the budget is {_BUDGET_US:.0f} µs")


if __name__ == "__main__":
    run_row(measure, __doc__)
