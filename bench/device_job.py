"""A made-up job on simulated devices: hosts that launch, devices that execute, a queue between them, and reductions.

A kernel starts once its host has launched it and the stream is free. A host that is 1,000 launches ahead waits for its
device. A reduction ends on all ranks at the same moment, and a device waits in it for the last one. Many seeds are
simulated at once: every quantity is [seeds, ranks]. Times are ms.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
MARKS = ("load", "loaded", "forward", "forwarded", "ready", "synced", "optimizer", "optimized", "pause", "resume")
PHASES = ("input", "forward", "backward", "optimizer", "other")
STEPS = 300
ONSET = 120
_PIECE = 50  # kernels that are simulated together, exactly but for the queue
_QUEUE = 20  # pieces
_MARK_MS, _LOAD_MS = 0.005, 0.2
_OPTIMIZER_KERNELS, _OPTIMIZER_MS = 20, 0.01
_TRANSFER_MS = 0.5


@dataclass(frozen=True)
class Fault:
    """What is slower from step `ONSET` on.

    Attributes:
        ranks: whose; empty for nobody's.
        host, device: factors on the host's and the device's time.
        extra_ms: host time more, in `phase`.
        every: in one step of so many.
        onset: the first faulty step.
    """

    ranks: tuple[int, ...] = ()
    host: float = 1.0
    device: float = 1.0
    extra_ms: float = 0.0
    phase: str = "backward"
    every: int = 1
    onset: int = ONSET


@dataclass(frozen=True)
class Job:
    """One kind of job.

    Attributes:
        kernel_us, launch_us: of one kernel on its device, and of its launch.
        kernels: of a step; a third of them in forward.
        item_every: steps between two `.item()`; 0 for none.
        pause_every: steps between two evaluations of `pause_ms`, which end in a synchronisation; 0 for none.
        copies: gradients that are copied back behind the reduction.
        noise: relative scatter of a host's and of a device's time from step to step.
        spread: relative difference of the hosts' speeds from the first rank to the last.
        wander: relative size of slow random walks of each host's speed.
        compiles: steps in which every host compiles for 300 ms.
    """

    ranks: int = 4
    steps: int = STEPS
    kernel_us: float = 2.5
    launch_us: float = 5.0
    kernels: int = 1200
    item_every: int = 0
    pause_every: int = 0
    pause_ms: float = 200.0
    copies: int = 0
    noise: float = 0.03
    spread: float = 0.0
    wander: float = 0.0
    compiles: tuple[int, ...] = ()
    fault: Fault = Fault()

    def mended(self) -> Job:
        """The same without its fault."""
        return replace(self, fault=Fault())


@dataclass(frozen=True)
class Trace:
    """Marks by name, [steps, seeds, ranks]: when they were recorded, and when the device passed them."""

    host: dict[str, F64]
    device: dict[str, F64]
    job: Job

    def step_ms(self, first: int) -> F64:
        """[seeds] the mean duration of a step from `first` on, without the evaluations."""
        synced = self.device["synced"][:, :, 0]
        paused = np.nan_to_num(self.host["resume"] - self.host["pause"])[first - 1 : -1, :, 0].sum(axis=0)
        mean: F64 = (synced[-1] - synced[first - 1] - paused) / (len(synced) - first)
        return mean


class _Machine:
    """All ranks of all seeds: how far their hosts and their streams are."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self.host, self.stream = np.zeros(shape), np.zeros(shape)
        self._queue: deque[F64] = deque([np.zeros(shape)] * _QUEUE, maxlen=_QUEUE)

    def launch(self, kernels: int, kernel_ms: F64, launch_ms: F64) -> None:
        """Launch kernels, which the device executes one behind the other."""
        left = kernels
        while left > 0:
            count = min(_PIECE, left)
            left -= count
            self.host = np.maximum(self.host, self._queue[0])
            first, last = self.host + launch_ms, self.host + count * launch_ms
            self.stream = np.maximum(np.maximum(self.stream, first) + count * kernel_ms, last + kernel_ms)
            self.host = last
            self._queue.append(self.stream)

    def mark(self, launch: F64) -> tuple[F64, F64]:
        """Record a mark: when it was recorded, and when it is passed."""
        self.host = self.host + _MARK_MS * launch
        self.stream = np.maximum(self.stream, self.host)
        return self.host, self.stream

    def synchronise(self) -> None:
        """The hosts wait for their devices."""
        self.host = np.maximum(self.host, self.stream)


def simulate(job: Job, seeds: range, alone: bool = False) -> Trace:
    """Run a job; `alone`: no rank waits for another."""
    shape = (len(seeds), job.ranks)
    draws = [np.random.default_rng([job.ranks, round(1e4 * job.noise), seed]) for seed in seeds]
    host, device = (_scatter(job, draws) for _ in range(2))
    host = host * _wandering(job, draws) * (1 + job.spread * np.arange(job.ranks) / max(1, job.ranks - 1))
    machine, took = _Machine(shape), {name: np.full((job.steps, *shape), np.nan) for name in MARKS}
    passed = {name: np.full((job.steps, *shape), np.nan) for name in MARKS}
    for step in range(job.steps):
        slow, slower, extra = _faulty(job.fault, step, job.ranks)
        for name, (at, done) in _step(machine, job, step, host[step] * slow, device[step] * slower, extra, alone):
            took[name][step], passed[name][step] = at, done
    return Trace(took, passed, job)


def _step(
    machine: _Machine, job: Job, step: int, f: F64, g: F64, extra: F64, alone: bool
) -> Iterator[tuple[str, tuple[F64, F64]]]:
    """One step of the training loop; yields each mark's name and times."""
    kernel, launch = job.kernel_us / 1e3 * g, job.launch_us / 1e3 * f

    def spend(phase: str) -> None:
        machine.host = machine.host + extra * (phase == job.fault.phase)

    yield "load", (machine.host, machine.stream)
    machine.host = machine.host + _LOAD_MS * f
    spend("input")
    yield "loaded", (machine.host, machine.stream)
    spend("other")
    yield "forward", machine.mark(f)
    machine.launch(job.kernels // 3, kernel, launch)
    machine.host = machine.host + 300.0 * (step in job.compiles)
    spend("forward")
    yield "forwarded", machine.mark(f)
    machine.launch(job.kernels // 3, kernel, launch)
    spend("backward")
    machine.launch(job.kernels // 3, kernel, launch)
    yield "ready", machine.mark(f)
    last = machine.stream if alone else machine.stream.max(axis=1, keepdims=True)
    machine.stream = np.maximum(machine.stream, last + _TRANSFER_MS)
    machine.launch(job.copies, np.full_like(kernel, 0.002), launch)
    yield "synced", machine.mark(f)
    yield "optimizer", machine.mark(f)
    spend("optimizer")
    machine.launch(_OPTIMIZER_KERNELS, _OPTIMIZER_MS * g, launch)
    yield "optimized", machine.mark(f)
    if job.item_every and step % job.item_every == job.item_every - 1:
        machine.synchronise()
    if job.pause_every and step % job.pause_every == job.pause_every - 1:
        machine.synchronise()
        yield "pause", (machine.host, machine.stream)
        machine.host = machine.host + job.pause_ms
        yield "resume", (machine.host, machine.stream)


def _faulty(fault: Fault, step: int, ranks: int) -> tuple[F64, F64, F64]:
    """[ranks] factors on host and device, and extra host ms, of one step."""
    hit = np.isin(np.arange(ranks), fault.ranks) & (step >= fault.onset) & ((step - fault.onset) % fault.every == 0)
    return np.where(hit, fault.host, 1.0), np.where(hit, fault.device, 1.0), np.where(hit, fault.extra_ms, 0.0)


def _scatter(job: Job, draws: list[np.random.Generator]) -> F64:
    """[steps, seeds, ranks] noise around 1."""
    noise = np.stack([rng.standard_normal((job.steps, job.ranks)) for rng in draws], axis=1)
    return np.maximum(0.5, 1 + job.noise * noise)


def _wandering(job: Job, draws: list[np.random.Generator]) -> F64:
    """[steps, seeds, ranks] slow walks of the hosts' speeds around 1, each with a memory of 100 steps."""
    noise = np.stack([rng.standard_normal((job.steps, job.ranks)) for rng in draws], axis=1)
    walk = np.zeros_like(noise)
    for step in range(1, job.steps):
        walk[step] = 0.99 * walk[step - 1] + np.sqrt(1 - 0.99**2) * noise[step]
    return 1 + job.wander * walk
