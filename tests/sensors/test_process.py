"""One process's figures, of real processes in known trouble."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from ddpmon.machine import ProcessFigures
from ddpmon.sensors.disks import FolderSensor
from ddpmon.sensors.process import ProcessSensor
from tests.sensors.others import SPIN, Framed, cpu_seconds, program, running, until

LAST = max(os.sched_getaffinity(0))
PINNED = program("import os", f"os.sched_setaffinity(0, [{LAST}])", then=SPIN)
FIRST_TIME = "read once so far"


def test_two_that_spin_on_one_core_wait_for_it_when_they_do_not_run() -> None:
    with running(PINNED) as one, running(PINNED):
        sensor = Framed(
            ProcessSensor(one.pid).read, lambda: (100 * cpu_seconds(one.pid), 100 * seconds_in_the_run_queue(one.pid))
        )
        found = until(sensor.read, lambda figures: (figures.runqueue_pct or 0) > 10, pause_s=1.0)
        assert sensor.allows(0, found.cpu_pct)
        assert sensor.allows(1, found.runqueue_pct)
        assert sensor.allows(1, found.runqueue_all_pct)
        assert found.cpus == str(LAST)
        until(sensor.read, lambda figures: (figures.switches_per_s or 0) > 1, pause_s=0.5)


def seconds_in_the_run_queue(pid: int) -> float:
    """How long the only thread of a process has been ready to run and was not let."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[1]) / 1e9


def test_the_autograd_engines_threads_wait_for_the_training_thread_too() -> None:
    engine = program(
        "import os, threading",
        f"os.sched_setaffinity(0, [{LAST}])",
        "named = threading.Event()",
        "def spin():",
        "    open(f'/proc/self/task/{threading.get_native_id()}/comm', 'w').write('pt_autograd_0')",
        "    named.set()",
        "    while True: pass",
        "threading.Thread(target=spin, daemon=True).start()",
        "named.wait()",
    )
    with running(engine) as process, running(PINNED):
        sensor = ProcessSensor(process.pid)
        until(sensor.read, lambda figures: (figures.runqueue_pct or 0) > 30, pause_s=1.0)


def test_an_idle_process_neither_runs_nor_waits() -> None:
    with running(program()) as idle:
        sensor = ProcessSensor(idle.pid)
        sensor.read()
        found = until(sensor.read, lambda figures: figures.cpu_pct == 0.0 and figures.runqueue_pct == 0.0)
        assert (found.workers, found.workers_cpu_pct, found.workers_rss_bytes) == (0, 0.0, 0)


def test_rates_have_to_wait_for_a_second_reading_and_say_so() -> None:
    found = ProcessSensor().read()
    rates = ("cpu_pct", "runqueue_pct", "runqueue_all_pct", "switches_per_s", "workers_cpu_pct")
    assert {figure: found.unread[figure] for figure in rates} == dict.fromkeys(rates, FIRST_TIME)
    assert [getattr(found, figure) for figure in rates] == [None] * len(rates)
    assert found.rss_bytes


def test_the_training_thread_is_told_from_the_others() -> None:
    two = program(
        "import os, threading",
        f"os.sched_setaffinity(0, [{LAST}])",
        "def spin():",
        "    while True: pass",
        "threading.Thread(target=spin, daemon=True).start()",
    )
    with running(two) as process, running(PINNED):
        (other,) = (
            int(task.name) for task in Path(f"/proc/{process.pid}/task").iterdir() if task.name != str(process.pid)
        )
        busy, idle = ProcessSensor(process.pid, thread=other), ProcessSensor(process.pid)
        found, resting = until(
            lambda: (busy.read(), idle.read()),
            lambda both: (both[0].switches_per_s or 0) > 1 and both[1].switches_per_s == 0,
            pause_s=0.5,
        )
        assert (found.threads, resting.threads) == (2, 2)


def test_threads_and_memory_of_this_process() -> None:
    sensor, stop = ProcessSensor(compute_threads=3), threading.Event()
    before = sensor.read()
    block, thread = bytearray(os.urandom(1) * (64 << 20)), threading.Thread(target=stop.wait)
    thread.start()
    during = sensor.read()
    stop.set()
    thread.join()
    assert before.threads is not None
    assert before.rss_bytes is not None
    assert during.threads == before.threads + 1
    assert during.rss_bytes is not None
    assert during.rss_bytes > before.rss_bytes + len(block) // 2
    assert during.compute_threads == 3
    assert during.cpus is not None


FAMILY = """
import ctypes, os, subprocess, sys
ctypes.CDLL(None).prctl(1, 9)  # ends with its parent
if os.getppid() == 1: sys.exit()  # which has ended already
generation = int(sys.argv[1])
if generation < 2:
    more = [sys.executable, "-c", sys.argv[2], str(generation + 1), sys.argv[2]]
    child = subprocess.Popen(more, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    print(flush=True)
    child.wait()
while True: pass
"""


def test_a_grandchild_that_works_is_found_and_its_idle_parent_is_no_worker() -> None:
    with running(FAMILY, "0", FAMILY) as process:
        with family(process.pid, 2) as below:
            pids = [child.pid for child in below]
            sensor = Framed(
                ProcessSensor(process.pid).read, lambda: (100 * cpu_seconds(*pids), 100 * cpu_seconds(process.pid))
            )
            busy = until(sensor.read, lambda figures: figures.workers == 1, pause_s=0.5)
        assert sensor.allows(0, busy.workers_cpu_pct)
        assert sensor.allows(1, busy.cpu_pct), "its children's time is not its own"
        assert busy.workers_rss_bytes is not None
        assert busy.workers_rss_bytes > 4 << 20


LOADS = """
import multiprocessing, sys
from multiprocessing import resource_tracker
from torch.utils.data import DataLoader
if __name__ == "__main__":
    resource_tracker.ensure_running()
    idle = multiprocessing.get_context("fork").Pool(3)
    batches = iter(DataLoader(range(1000), batch_size=1, num_workers=2))
    next(batches)
    print(flush=True)
    sys.stdin.read()
"""


@contextmanager
def family(pid: int, count: int) -> Iterator[list[psutil.Process]]:
    """All processes below one, once they are so many; at the end they are gone, and no pool can start them again."""
    parent = psutil.Process(pid)
    below = until(lambda: parent.children(recursive=True), lambda found: len(found) == count)
    try:
        yield below
    finally:
        parent.suspend()
        for child in parent.children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                child.kill()


def test_idle_pools_and_trackers_are_no_workers_but_a_loaders_are() -> None:
    pytest.importorskip("torch")
    with running(LOADS) as process, family(process.pid, 6) as below:
        sensor = ProcessSensor(process.pid)
        found = until(sensor.read, lambda figures: figures.workers_cpu_pct == 0)
        assert found.workers == 2
        assert found.workers_rss_bytes is not None
        assert found.workers_rss_bytes > sum(child.memory_info().rss for child in below) / 2, "of all of them"


def test_bytes_written_to_a_disk(tmp_path: Path) -> None:
    if not Path("/proc/self/io").exists() or FolderSensor("test", str(tmp_path)).read().device is None:
        pytest.skip("needs a kernel that accounts for it, and a disk under the temporary folder")
    writes = program(
        "import os, sys",
        f"file = os.open({str(tmp_path / 'file')!r}, os.O_WRONLY | os.O_CREAT)",
        then="\nwhile True: os.pwrite(file, os.urandom(1 << 20), 0); os.fsync(file)",
    )
    with running(writes) as process:
        sensor = ProcessSensor(process.pid)
        until(sensor.read, lambda figures: (figures.write_bytes_s or 0) > 1 << 18)


def test_a_process_that_has_gone_is_unknown_with_reasons() -> None:
    with running(program()) as process:
        sensor = ProcessSensor(process.pid)
        sensor.read()
    gone = sensor.read()
    known = {"workers": 0, "workers_rss_bytes": 0, "workers_cpu_pct": 0.0}
    assert [getattr(gone, figure) for figure in known] == list(known.values())
    for figure in (
        "cpu_pct",
        "rss_bytes",
        "threads",
        "runqueue_pct",
        "cpus",
        "read_bytes_s",
        "quota_cpus",
        "memory_limit",
    ):
        assert getattr(gone, figure) is None
        assert gone.unread[figure]
    assert ProcessSensor(process.pid).read().unread.keys() >= {"cpu_pct", "cpus"}


def test_a_training_thread_that_has_ended_leaves_its_own_figures_unknown() -> None:
    ended: list[int] = []
    thread = threading.Thread(target=lambda: ended.append(threading.get_native_id()))
    thread.start()
    thread.join()
    until(Path(f"/proc/self/task/{ended[0]}").exists, lambda there: not there)
    sensor = ProcessSensor(thread=ended[0])
    sensor.read()
    found: ProcessFigures = sensor.read()
    assert found.runqueue_pct is None
    assert found.cpus is None
    assert {"runqueue_pct", "switches_per_s", "cpus"} <= found.unread.keys()
    assert found.runqueue_all_pct is not None
    assert found.rss_bytes is not None
