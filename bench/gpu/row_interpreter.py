"""Row 2: how long other Python threads stand still while the training thread is held up by its device.

A second thread notes the longest pause between two of its looks at the clock while the training thread launches kernels
into a full queue, records and queries events (torch's, the probe's clock, and the driver's cuEventQuery through ctypes,
which lets the interpreter go), synchronises, and allocates memory. On a GPU half a minute.

    python bench/gpu/row_interpreter.py [--rehearse]
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from course_device import Device
from course_figures import Figures, run_row

_HELD_MS = 20.0  # longer than the interpreter's switch interval (5 ms) and a busy host's scheduling explain
_SPIN_MS, _REHEARSED_MS = 1500.0, 150.0
_LAUNCHES = 3000  # about three times what a launch queue holds
_QUERIES = 10_000


class Heartbeat(threading.Thread):
    """Looks at the clock every millisecond; `longest` is the longest pause in ms since it was set to 0."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.longest = 0.0

    def run(self) -> None:
        """Look until the process ends."""
        last = time.perf_counter()
        while True:
            time.sleep(0.001)
            now = time.perf_counter()
            self.longest = max(self.longest, 1e3 * (now - last))
            last = now


class Stage:
    """The training thread's side: jobs, and what became of the second thread meanwhile."""

    def __init__(self, figures: Figures, device: Device) -> None:
        self._figures, self.device = figures, device
        self.heartbeat = Heartbeat()
        self.heartbeat.start()
        self.stood: dict[str, float] = {}

    def watch(self, what: str, job: Callable[[], object]) -> None:
        """Run a job, and note how long it took and how long the second thread stood still."""
        self.device.finish()
        time.sleep(0.05)
        self.heartbeat.longest = 0.0
        began = time.perf_counter()
        job()
        took = 1e3 * (time.perf_counter() - began)
        time.sleep(0.02)
        self.stood[what] = self.heartbeat.longest
        self._figures.put(**{f"{what}: took ms": took, f"{what}: others stood still ms": self.stood[what]})
        self.device.finish()


@contextmanager
def querying(query: Callable[[], object], prepare: Callable[[], object]) -> Iterator[list[float]]:
    """Another thread asks for an event as the publisher does, every millisecond; yields the longest query in ms."""
    longest, over = [0.0], threading.Event()

    def ask() -> None:
        prepare()
        while not over.wait(0.001):
            began = time.perf_counter()
            query()
            longest[0] = max(longest[0], 1e3 * (time.perf_counter() - began))

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield longest
    finally:
        over.set()
        thread.join()


def held_by_ctypes(milliseconds: float) -> Callable[[], object]:
    """A call that keeps the interpreter for so long: what the second thread must notice."""
    sleep: Any = ctypes.PyDLL(None).usleep
    return lambda: sleep(int(1e3 * milliseconds))


def on_gpu(stage: Stage, figures: Figures) -> None:
    """All jobs behind a spinning device."""
    from ddpmon.probe.clock import CudaClock

    device, x = stage.device, torch.zeros(8, device="cuda")
    clock = CudaClock(device.at)
    cuda = ctypes.CDLL("libcuda.so.1")

    def launches() -> None:
        device.spin(_SPIN_MS)
        for _ in range(_LAUNCHES):
            x.add_(1)

    def records() -> None:
        events = [torch.cuda.Event(enable_timing=True) for _ in range(2 * _LAUNCHES)]
        device.spin(_SPIN_MS)
        for event in events:
            event.record()

    def marks() -> None:
        device.spin(_SPIN_MS)
        for _ in range(2 * _LAUNCHES):
            clock.mark()

    def synchronise() -> None:
        device.spin(_SPIN_MS)
        torch.cuda.synchronize()

    def allocate() -> None:
        device.spin(_SPIN_MS)
        held = [torch.empty(1 << 28, device="cuda") for _ in range(8)]
        held.clear()
        torch.cuda.empty_cache()

    stage.watch("launches into a full queue", launches)
    stage.watch("event.record into a full queue", records)
    stage.watch("the probe's marks into a full queue", marks)
    mark = clock.mark()
    handle = ctypes.c_void_p(mark.cuda_event)
    ways = {"event.query": mark.query, "the clock's ready": lambda: clock.ready(mark)}
    ways["cuEventQuery by ctypes"] = lambda: cuda.cuEventQuery(handle)
    for way, query in ways.items():
        for what, job in (("launches", launches), ("synchronize", synchronise), ("cudaMalloc", allocate)):
            with querying(query, clock.read_here) as longest:
                stage.watch(f"{way} beside {what}", job)
            figures.put(**{f"{way} beside {what}: longest query ms": longest[0]})
        began = time.perf_counter()
        for _ in range(_QUERIES):
            query()
        figures.put(**{f"{way}: us each": 1e6 * (time.perf_counter() - began) / _QUERIES})


def on_cpu(stage: Stage, figures: Figures) -> None:
    """The second thread and the queries, beside a host that sleeps."""
    with querying(lambda: None, lambda: None) as longest:
        stage.watch("a sleeping host", lambda: stage.device.spin(_REHEARSED_MS))
    figures.put(**{"longest query ms": longest[0]})


def measure(figures: Figures, rehearse: bool) -> None:
    """Check the second thread, then watch every job."""
    stage = Stage(figures, Device(rehearse))
    stage.watch("a call that keeps the interpreter", held_by_ctypes(_REHEARSED_MS))
    sees = stage.stood.pop("a call that keeps the interpreter") >= _REHEARSED_MS / 2
    (on_cpu if rehearse else on_gpu)(stage, figures)
    worst = max(stage.stood, key=lambda what: stage.stood[what])
    by_us = max((ms for what, ms in stage.stood.items() if "ctypes" in what), default=0.0)
    figures.say(f"longest standstill {stage.stood[worst]:.0f} ms ({worst}); by ctypes {by_us:.0f} ms")
    if not sees:
        raise SystemExit("the second thread does not notice a call that keeps the interpreter: no verdict")
    figures.conclude(stage.stood[worst] >= _HELD_MS, f"the longest standstill is {stage.stood[worst]:.0f} ms: {worst}")


if __name__ == "__main__":
    run_row(measure, __doc__)
