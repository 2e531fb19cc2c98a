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
CTYPES, QUIET = "cuEventQuery by ctypes", "the clock while no step finishes"


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
        self._figures.put({f"{what}: took ms": took, f"{what}: others stood still ms": self.stood[what]})
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


class Blocked:
    """What a training thread does while its device is busy for a second and a half."""

    def __init__(self, device: Device) -> None:
        from ddpmon.probe.clock import CudaClock

        self._device, self._x = device, torch.zeros(8, device="cuda")
        self._events = [torch.cuda.Event(enable_timing=True) for _ in range(2 * _LAUNCHES)]
        self.clock, self.quiet = CudaClock(device.at), CudaClock(device.at)
        setattr(self.quiet, "is_quiet", True)  # noqa: B010 (where the clock has another way while no step finishes)
        self.quiet.recycle([self.quiet.mark() for _ in range(2 * _LAUNCHES)])  # events that were recorded before

    def launch(self) -> None:
        """Launch more kernels than the queue holds."""
        self._device.spin(_SPIN_MS)
        for _ in range(_LAUNCHES):
            self._x.add_(1)

    def record(self) -> None:
        """Record more events than the queue holds."""
        self._device.spin(_SPIN_MS)
        for event in self._events:
            event.record()

    def mark(self, clock: Any) -> None:
        """Take more marks than the queue holds."""
        self._device.spin(_SPIN_MS)
        for _ in range(2 * _LAUNCHES):
            clock.mark()

    def synchronise(self) -> None:
        """Wait for the device."""
        self._device.spin(_SPIN_MS)
        torch.cuda.synchronize()

    def allocate(self) -> None:
        """Allocate device memory, and give it back."""
        self._device.spin(_SPIN_MS)
        held = [torch.empty(1 << 28, device="cuda") for _ in range(8)]
        held.clear()
        torch.cuda.empty_cache()


def on_gpu(stage: Stage, figures: Figures) -> None:
    """All jobs behind a spinning device, alone and beside each way to ask for an event."""
    blocked = Blocked(stage.device)
    stage.watch("launches into a full queue", blocked.launch)
    stage.watch("Event.record into a full queue", blocked.record)
    stage.watch("the clock's marks into a full queue", lambda: blocked.mark(blocked.clock))
    stage.watch(f"{QUIET}'s marks into a full queue", lambda: blocked.mark(blocked.quiet))
    mark, cuda = blocked.clock.mark(), ctypes.CDLL("libcuda.so.1")
    handle = ctypes.c_void_p(mark.cuda_event)
    ways: dict[str, Callable[[], object]] = {
        "Event.query": mark.query,
        QUIET: lambda: blocked.quiet.ready(mark),
        CTYPES: lambda: cuda.cuEventQuery(handle),
    }
    jobs = {"launches": blocked.launch, "synchronize": blocked.synchronise, "cudaMalloc": blocked.allocate}
    for way, query in ways.items():
        for what, job in jobs.items():
            with querying(query, blocked.clock.read_here) as longest:
                stage.watch(f"{way} beside {what}", job)
            figures.put({f"{way} beside {what}: longest query ms": longest[0]})
        began = time.perf_counter()
        for _ in range(_QUERIES):
            query()
        figures.put({f"{way}: µs each": 1e6 * (time.perf_counter() - began) / _QUERIES})


def on_cpu(stage: Stage, figures: Figures) -> None:
    """The second thread and the queries, beside a host that sleeps."""
    with querying(lambda: None, lambda: None) as longest:
        stage.watch("a sleeping host", lambda: stage.device.spin(_REHEARSED_MS))
    figures.put({"longest query ms": longest[0]})


def measure(figures: Figures, rehearse: bool) -> None:
    """Check the second thread, then watch every job.

    Raises:
        SystemExit: the second thread does not notice a call that keeps the interpreter.
    """
    stage = Stage(figures, Device(rehearse))
    stage.watch("a call that keeps the interpreter", held_by_ctypes(_REHEARSED_MS))
    if stage.stood.pop("a call that keeps the interpreter") < _REHEARSED_MS / 2:
        raise SystemExit("the second thread does not notice a call that keeps the interpreter: no verdict")
    (on_cpu if rehearse else on_gpu)(stage, figures)
    free = {what: ms for what, ms in stage.stood.items() if what.startswith((CTYPES, QUIET))}
    held = {what: ms for what, ms in stage.stood.items() if what not in free}
    worst = max(held, key=lambda what: held[what])
    by_us = max(free.values(), default=0.0)
    told = f"others stand still for {held[worst]:.0f} ms at most ({worst}), by ctypes for {by_us:.0f} ms"
    figures.say(told)
    figures.conclude(held[worst] >= _HELD_MS > by_us, told)


if __name__ == "__main__":
    run_row(measure, __doc__)
