"""The processes on a GPU: whose they are, their memory, their share; and those that nobody can see any more."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.fake_nvml.scenario import GIB, SimulatedProcess
from tests.sensors.simulated_host import SLOW, Gpu, Host

GONE = 1 << 30  # above any number that Linux gives
WAITING = "import sys; sys.stdin.read()"


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", WAITING, "train.py"], stdin=subprocess.PIPE)
    while psutil.Process(process.pid).cmdline()[-1:] != ["train.py"]:
        os.sched_yield()
    yield process
    process.communicate()


def on_the_first(gpus: list[Gpu]) -> list[Gpu]:
    processes: list[Gpu] = gpus[0]["processes"]
    return processes


def shares(gpus: list[Gpu]) -> list[float | None]:
    return [process["sm_pct"] for process in on_the_first(gpus)]


def test_processes_are_known_by_parents_user_and_command(host: Host, child: subprocess.Popen[bytes]) -> None:
    host.gpu.processes = [SimulatedProcess(host.pid, GIB, 7), SimulatedProcess(child.pid, 2 * GIB, 38)]
    larger, smaller = on_the_first(host.read())
    started = larger["process"].pop("started_at")
    assert larger == {
        "process": {
            "pid": child.pid,
            "parents": [os.getpid(), *(parent.pid for parent in psutil.Process().parents())],
            "user": psutil.Process().username(),
            "command": f"{Path(sys.executable).name} -c",
        },
        "memory": 2 * GIB,
        "sm_pct": 38.0,
        "kind": "compute",
    }
    assert started == pytest.approx(psutil.Process(child.pid).create_time())
    assert (smaller["process"]["pid"], smaller["memory"], smaller["sm_pct"]) == (host.pid, GIB, 7.0)


def test_a_process_that_has_vanished_is_still_on_the_gpu(host: Host, child: subprocess.Popen[bytes]) -> None:
    host.gpu.processes = [SimulatedProcess(child.pid)]
    (seen,) = on_the_first(host.read())
    assert seen["process"]["command"].endswith(" -c")
    child.communicate()
    (seen,) = on_the_first(host.read())
    nobody = {"pid": child.pid, "parents": [], "user": None, "command": None, "started_at": None}
    assert (seen["process"], seen["memory"]) == (nobody, GIB)


def test_of_forty_processes_the_largest_are_shown_and_all_are_counted(host: Host) -> None:
    host.gpu.processes = [SimulatedProcess(GONE + i, i * 37 % 40 * GIB if i else None) for i in range(40)]
    gpus = host.read()
    assert [process["memory"] for process in on_the_first(gpus)] == [i * GIB for i in range(39, 7, -1)]
    assert (gpus[0]["process_count"], gpus[1]["process_count"]) == (40, 0)
    assert host.read()[0]["processes"] == on_the_first(gpus)


def test_a_process_is_listed_once_whatever_it_does(host: Host) -> None:
    host.gpu.processes = [
        SimulatedProcess(GONE, 3 * GIB, kind="graphics"),
        SimulatedProcess(GONE, GIB, 50),
        SimulatedProcess(GONE + 1, 2 * GIB, kind="mps"),
        SimulatedProcess(GONE + 1, None),
        SimulatedProcess(GONE + 2, GIB, kind="graphics"),
    ]
    gpus = host.read()
    seen = [(process["kind"], process["memory"] // GIB) for process in on_the_first(gpus)]
    assert (seen, gpus[0]["process_count"]) == ([("compute", 3), ("mps", 2), ("graphics", 1)], 3)


def test_graphics_are_noticed_within_ten_reads_and_leave_at_once(host: Host) -> None:
    host.read()
    host.gpu.processes = [SimulatedProcess(GONE, kind="graphics"), SimulatedProcess(GONE + 1, kind="mps")]
    assert host.read(SLOW)[0]["process_count"] == 2
    host.gpu.processes.pop()
    assert host.read()[0]["process_count"] == 1


def test_memory_that_the_driver_does_not_give_is_unknown(host: Host) -> None:
    host.gpu.processes = [SimulatedProcess(GONE, None), SimulatedProcess(GONE + 1, 0)]
    gpus = host.read()
    assert [process["memory"] for process in on_the_first(gpus)] == [0, None]
    assert gpus[0]["unread"]["process memory"] == "not available"
    host.gpu.processes.pop(0)
    assert "process memory" not in host.read()[0]["unread"]


def test_a_process_without_samples_is_idle_only_where_samples_are_known_to_come(host: Host) -> None:
    host.gpu.processes = [SimulatedProcess(GONE + 1, 2 * GIB), SimulatedProcess(GONE, GIB)]
    gpus = host.read(3)
    assert (shares(gpus), gpus[0]["unread"]["sm_pct"]) == ([None, None], "no samples so far")
    host.gpu.processes[1].sm_pct = 42
    gpus = host.read()
    assert (shares(gpus), gpus[0]["unread"].get("sm_pct")) == ([0.0, 42.0], None)
    host.gpu.processes[1].sm_pct = None
    assert shares(host.read()) == [0.0, 42.0], "the next sample may not be due yet"
    assert shares(host.read()) == [0.0, 0.0]


def test_samples_of_other_processes_say_nothing_about_these(host: Host) -> None:
    """In a container the samples may carry the host's numbers, and the list its own."""
    host.gpu.processes = [SimulatedProcess(GONE, GIB), SimulatedProcess(GONE + 1, GIB, 90, kind="mps")]
    host.gpu.fails = {"nvmlDeviceGetMPSComputeRunningProcesses_v3": 3, "nvmlDeviceGetMPSComputeRunningProcesses_v2": 3}
    gpus = host.read(2)
    assert (shares(gpus), gpus[0]["unread"]["sm_pct"]) == ([None], "no samples of these processes")


def test_shares_that_cannot_be_read_are_unknown_and_those_that_make_no_sense_too(host: Host) -> None:
    host.gpu.processes = [SimulatedProcess(GONE, GIB, 4_000_000_000)]
    assert shares(host.read()) == [None]
    host.gpu.processes[0].sm_pct = 12
    assert shares(host.read()) == [12.0]
    host.gpu.fails = {"nvmlDeviceGetProcessUtilization": 3}
    gpus = host.read()
    assert (shares(gpus), gpus[0]["unread"]["sm_pct"]) == ([None], "not supported by this GPU or driver")


def test_a_list_that_cannot_be_read_is_not_an_empty_one(host: Host) -> None:
    host.gpu.processes = [SimulatedProcess(GONE, GIB, 90)]
    host.read()
    host.gpu.fails = {"nvmlDeviceGetComputeRunningProcesses_v3": 4}
    gpus = host.read()
    assert (gpus[0]["processes"], gpus[0]["process_count"]) == (None, None)
    assert gpus[0]["unread"]["processes"] == "no permission"
    assert gpus[1]["processes"] == []
