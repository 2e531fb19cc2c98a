"""Host and process figures against what the machine itself says."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from ddpmon.machine import ProcessFigures
from ddpmon.sensors.host import HostSensor
from ddpmon.sensors.process import ProcessSensor

BUSY = "block = bytearray(64 << 20)\nprint(flush=True)\nwhile True: pass"


@pytest.fixture
def busy() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.communicate()


def test_a_busy_process_is_seen_as_busy_and_large(busy: subprocess.Popen[bytes]) -> None:
    sensor = ProcessSensor(busy.pid)
    first = sensor.read()
    time.sleep(0.5)
    second = sensor.read()
    assert first.cpu_pct is None, "the first read has nothing to compare with"
    assert second.cpu_pct is not None
    assert second.cpu_pct > 1
    assert second.rss_bytes is not None
    assert second.rss_bytes > 64 << 20
    assert second.threads == 1


def test_an_idle_process_is_not_busy() -> None:
    command = [sys.executable, "-c", "print(flush=True); input()"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    sensor = ProcessSensor(process.pid)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.1)
        sensor.read()
        time.sleep(0.3)
        assert sensor.read().cpu_pct == 0.0
    finally:
        process.communicate(b"\n")


def test_threads_of_this_process_are_counted() -> None:
    sensor, stop = ProcessSensor(), threading.Event()
    before = sensor.read().threads
    thread = threading.Thread(target=stop.wait)
    thread.start()
    during = sensor.read().threads
    stop.set()
    thread.join()
    assert before is not None
    assert during == before + 1


def test_a_process_that_has_gone_is_unknown(busy: subprocess.Popen[bytes]) -> None:
    sensor = ProcessSensor(busy.pid)
    assert sensor.read().rss_bytes
    busy.kill()
    busy.wait()
    assert sensor.read() == ProcessFigures()
    assert ProcessSensor(busy.pid).read() == ProcessFigures()


def test_host_figures_agree_with_the_machine() -> None:
    with open("/proc/meminfo") as file:  # noqa: PTH123
        total = int(file.readline().split()[1]) * 1024
    figures = HostSensor().read()
    assert figures.memory_total == total
    assert figures.memory_used is not None
    assert 0 < figures.memory_used < total
    assert figures.cpu_count == os.cpu_count()
    assert figures.load_1m is not None


@pytest.mark.usefixtures("busy")
def test_host_cpu_needs_two_reads_by_one_thread() -> None:
    sensor, seen = HostSensor(), []
    assert sensor.read().cpu_pct is None
    time.sleep(0.5)
    cpu_pct = sensor.read().cpu_pct
    assert cpu_pct is not None
    assert cpu_pct > 0
    thread = threading.Thread(target=lambda: seen.append(sensor.read().cpu_pct))
    thread.start()
    thread.join()
    assert seen == [None]


def test_without_psutil_little_is_known_and_nothing_raised() -> None:
    program = (
        "import sys; sys.modules['psutil'] = None\n"
        "from ddpmon.sensors.host import HostSensor, HostFigures\n"
        "from ddpmon.sensors.process import ProcessSensor\n"
        "print(HostSensor().read().memory_total, ProcessSensor().read().rss_bytes)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["None", "None"]
