"""Row 12: forked children under attach, and a minute of short steps.

Four epochs are read by four forked DataLoader workers with pinned memory. Then the shortest steps are trained for a
minute: events, memory of device and host, and threads must not grow. At last a child is forked that ends as an
interpreter does, and one that lets go of the monitor. Controls are a child that ends so before ddpmon is attached, and
one that destroys an event: with torch 2.11 both were aborted by torch itself on a GPU, and with torch 2.13 on a CPU
the first does not end. On a GPU 90 s.

    python bench/gpu/row_lasting.py [--rehearse]
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import psutil
import torch
from course_device import Device
from course_figures import Figures, run_row
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import ddpmon

_EPOCHS, _WORKERS, _BATCH, _WIDTH = 4, 4, 16, 64
_MINUTE_S, _REHEARSED_S = 60.0, 12.0
_SAMPLES = 6
_CHILD_S = 10.0  # a child that has not ended by then never will
# More is growth, not noise: a second of short steps leaves thousands of marks in flight, now more, now fewer.
_GROWTH = {"events": 8192.0, "device MiB": 64.0, "host MiB": 32.0, "threads": 1.0}
_SYNC_EVERY = 64  # steps: the launch queue and the publisher keep up
MIB = 1 << 20


class Job:
    """The smallest job there is."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._ddp = DistributedDataParallel(nn.Linear(_WIDTH, _WIDTH).to(device.at), device_ids=device.ids)
        self._optimizer = torch.optim.SGD(self._ddp.parameters(), lr=1e-4)
        self.monitor: Any = None
        self.steps = 0

    def attach(self) -> None:
        """Let ddpmon watch it from now on."""
        self.monitor = ddpmon.attach(self._ddp, name="lasting")

    def step(self, x: Tensor) -> None:
        """One step."""
        loss = self._ddp(x).square().mean()
        loss.backward()
        self._optimizer.step()
        self._optimizer.zero_grad()
        if self.monitor is not None:
            self.monitor.log(loss=loss.detach(), samples=_BATCH)
        self.steps += 1
        if self.steps % _SYNC_EVERY == 0:
            self.device.finish()


def read_by_workers(job: Job) -> None:
    """Epochs of forked workers.

    Raises:
        RuntimeError: a worker died.
    """
    data = TensorDataset(torch.randn(32 * _BATCH, _WIDTH))
    for _ in range(_EPOCHS):
        loader = DataLoader(
            data, _BATCH, num_workers=_WORKERS, pin_memory=job.device.is_gpu, multiprocessing_context="fork"
        )
        for (x,) in loader:
            job.step(x.to(job.device.at, non_blocking=True))


def status_of(child: Callable[[], object]) -> int:
    """Fork, do this in the child, and return how it ended: 0, or a signal or exit code; -9 if it did not end."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        child()
        os._exit(0)
    until = time.monotonic() + _CHILD_S
    while (found := os.waitpid(pid, os.WNOHANG))[0] == 0:
        if time.monotonic() > until:
            os.kill(pid, signal.SIGKILL)
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        time.sleep(0.05)
    return os.waitstatus_to_exitcode(found[1])


def ends_by_exit() -> int:
    """How a child ends that ends as an interpreter does, which destroys everything."""
    return status_of(lambda: sys.exit(0))


def children(job: Job) -> dict[str, int]:
    """How children end that destroy what they have inherited."""
    found = {"everything, by sys.exit": ends_by_exit()}
    held: list[Any] = []
    if job.device.is_gpu:
        held = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        held[0].record()

    def drop_event() -> None:
        held.clear()
        gc.collect()

    def drop_monitor() -> None:
        job.monitor = None
        gc.collect()

    return found | {"the monitor": status_of(drop_monitor), "an event, without ddpmon": status_of(drop_event)}


def sample(job: Job) -> dict[str, float]:
    """What might grow."""
    job.device.finish()
    free, total = torch.cuda.mem_get_info() if job.device.is_gpu else (0, 0)
    process = psutil.Process()
    return {
        "events": float(sum(type(each) is torch.cuda.Event for each in gc.get_objects())),
        "device MiB": (total - free) / MIB,
        "host MiB": process.memory_info().rss / MIB,
        "threads": float(process.num_threads()),
    }


def run_for(job: Job, seconds: float) -> list[dict[str, float]]:
    """Train the shortest steps; a sample now and then."""
    x, began, samples = torch.randn(_BATCH, _WIDTH, device=job.device.at), time.monotonic(), list[dict[str, float]]()
    while len(samples) < _SAMPLES:
        job.step(x)
        if time.monotonic() - began >= (len(samples) + 1) * seconds / _SAMPLES:
            samples.append(sample(job))
    return samples


def measure(figures: Figures, rehearse: bool) -> None:
    """Fork, then run."""
    device = Device(rehearse)
    device.join()
    job = Job(device)
    job.step(torch.randn(_BATCH, _WIDTH, device=device.at))
    device.finish()
    alone = {"everything, by sys.exit, without ddpmon": ends_by_exit()}
    job.attach()
    read_by_workers(job)
    before = job.steps
    samples = run_for(job, _REHEARSED_S if rehearse else _MINUTE_S)
    steps, measuring = job.steps - before, job.monitor.enabled
    figures.put({"short steps": steps, "still measuring": measuring})
    grown = growth(samples, figures)
    figures.say(f"grows in {steps} steps: {', '.join(grown) or 'nothing'}")
    ended = alone | children(job)
    figures.put({f"a child that destroys {what} ends with": code for what, code in ended.items()})
    figures.say(f"forked children end with: {ended}")
    own = {what: code for what, code in ended.items() if "without" not in what}
    bad = [what for what, code in own.items() if code and not ended.get(f"{what}, without ddpmon")]
    wrong = [f"{what} grows" for what in grown] + [f"a child dies that destroys {what}" for what in bad]
    wrong += [] if measuring else ["ddpmon stopped measuring"]
    figures.conclude(not wrong, "; ".join(wrong) or "no child dies, nothing grows")


def growth(samples: list[dict[str, float]], figures: Figures) -> list[str]:
    """What has grown since the second sample."""
    for what in _GROWTH:
        figures.put({what: ", ".join(f"{each[what]:.0f}" for each in samples)})
    return [what for what, allowed in _GROWTH.items() if samples[-1][what] - samples[1][what] > allowed]


if __name__ == "__main__":
    run_row(measure, __doc__)
