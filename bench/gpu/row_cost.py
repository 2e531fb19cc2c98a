"""Row 7: what a mark and a step cost the training thread.

The parts of a mark are timed alone, in bunches so short that no launch queue fills. Then two models that are alike take
turns of ten steps, of which ddpmon watches one: what a turn took above the other's beside it, median and quartiles over
hundreds of pairs, for a model of tiny kernels (the host sets the pace: all that ddpmon costs shows) and a larger one.
Turns are that short because the speed of a host wanders: blocks of half a second differ by ten times what is looked
for. Two models of which none is watched are paired in the same way first, which shows how exact the comparison is.
The publisher's thread works beside both models, so that what it takes of the interpreter is measured by itself: turns
of the other model while ddpmon is attached, above such turns without it. On a GPU 3 minutes.

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
_TURN = 10  # steps
_ROUNDS, _REHEARSED_ROUNDS = 12, 2
_BLANK_S, _ATTACHED_S, _SETTLE_S = 1.0, 3.0, 0.5  # of a round
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


class Trained:
    """A model that is trained in turns of a few steps."""

    def __init__(self, device: Device, width: int, layers: int, batch: int) -> None:
        self._device = device
        torch.manual_seed(0)
        net = nn.Sequential(*(nn.Linear(width, width) for _ in range(layers))).to(device.at)
        self.ddp = DistributedDataParallel(net, device_ids=device.ids)
        self.optimizer = torch.optim.SGD(self.ddp.parameters(), lr=1e-6, foreach=True)
        self._x = torch.randn(batch, width, device=device.at)
        self.monitor: ddpmon.Monitor | None = None

    def turn_us(self) -> float:
        """Microseconds of a step in a turn that begins and ends with an idle device."""
        began = time.perf_counter_ns()
        for _ in range(_TURN):
            loss = self.ddp(self._x).square().mean()
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            if self.monitor is not None:
                self.monitor.log(loss=loss.detach(), samples=len(self._x))
        self._device.finish()
        return (time.perf_counter_ns() - began) / 1e3 / _TURN


class Pair:
    """Two models that are alike.

    Attributes:
        alike: microseconds by which a step of the second differs from the first's beside it while none is watched.
        more: while ddpmon watches the second.
        beside: by which a step of the first is longer while ddpmon watches the second, a round each.
        usual: microseconds of a step without ddpmon, a turn each.
        own: the probe's own account of a step, a round each.
    """

    def __init__(self, device: Device, shape: tuple[int, int, int]) -> None:
        self._first, self._second = Trained(device, *shape), Trained(device, *shape)
        self.alike: list[float] = []
        self.more: list[float] = []
        self.beside: list[float] = []
        self.usual: list[float] = []
        self.own: list[float] = []
        self._turns(_SETTLE_S, [])

    def round(self) -> None:
        """Turns without ddpmon, and then with it."""
        without = self._turns(_BLANK_S, self.alike)
        self.usual += without
        watched = self._second
        monitor = watched.monitor = ddpmon.attach(watched.ddp, name="cost", optimizer=watched.optimizer)
        self._turns(_SETTLE_S, [])
        own, steps = monitor.cost_ns, monitor.steps
        beside = self._turns(_ATTACHED_S, self.more)
        self.own.append((monitor.cost_ns - own) / 1e3 / max(1, monitor.steps - steps))
        monitor.detach()
        watched.monitor = None
        self.beside.append(statistics.median(beside) - statistics.median(without))

    def _turns(self, seconds: float, differences: list[float]) -> list[float]:
        """Take turns for so long, one after the other first; returns the first model's."""
        of_first, until, second_begins = [], time.monotonic() + seconds, False
        while time.monotonic() < until:
            order = (self._second, self._first) if second_begins else (self._first, self._second)
            took = {model: model.turn_us() for model in order}
            of_first.append(took[self._first])
            differences.append(took[self._second] - took[self._first])
            second_begins = not second_begins
        return of_first


def spread(values: list[float]) -> tuple[float, str]:
    """The median, and it with quartiles as text."""
    low, middle, high = statistics.quantiles(values, n=4)
    return middle, f"{middle:+.1f} [{low:.1f} .. {high:.1f}]"


def measure(figures: Figures, rehearse: bool) -> None:
    """Time a mark, then both sizes in turns."""
    device = Device(rehearse)
    device.join()
    mark_us = parts(figures, device)
    worst, said = 0.0, [f"a mark {mark_us:.1f} µs"]
    for size, shape in (_REHEARSED if rehearse else _SIZES).items():
        pair = Pair(device, shape)
        for _ in range(_REHEARSED_ROUNDS if rehearse else _ROUNDS):
            pair.round()
        usual = statistics.median(pair.usual)
        (more, shown), (_, alike), (beside, shown_beside) = map(spread, (pair.more, pair.alike, pair.beside))
        figures.put({f"{size}: step µs": usual, f"{size}: more µs": more, f"{size}: beside µs": beside})
        figures.put({f"{size}: pairs": len(pair.more), f"{size}: own account µs": statistics.median(pair.own)})
        said.append(f"{size}: {shown} µs on a step of {usual:.0f} µs, unwatched {alike}, beside {shown_beside}")
        worst = max(worst, more)
    figures.say("; ".join(said))
    figures.conclude(worst <= _BUDGET_US, f"a step takes {worst:.1f} µs more; the budget is {_BUDGET_US:.0f} µs")


if __name__ == "__main__":
    run_row(measure, __doc__)
