"""The host's figures against what the machine itself says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from ddpmon.sensors.host import HostSensor
from tests.sensors.others import SPIN, program, running, until

PINNED = program("import os", f"os.sched_setaffinity(0, [{max(os.sched_getaffinity(0))}])", then=SPIN)


def test_what_stands_still_agrees_with_the_machine() -> None:
    total = int(Path("/proc/meminfo").read_text().split()[1]) * 1024
    sensor = HostSensor()
    _, figures, _ = until(
        lambda: (psutil.swap_memory().used, sensor.read(), psutil.swap_memory().used),
        lambda seen: seen[0] == seen[1].swap_used == seen[2],
    )
    assert figures.memory_total == total
    assert figures.memory_used is not None
    assert 0 < figures.memory_used < total
    assert figures.cpu_count == os.cpu_count()
    assert figures.load_1m is not None
    nodes = Path("/sys/devices/system/node").glob("node*/cpulist")
    assert sorted(figures.numa) == sorted(cpus for node in nodes if (cpus := node.read_text().strip()))


def test_rates_have_to_wait_for_a_second_reading_and_say_so() -> None:
    found = HostSensor().read()
    rates = ["cpu_pct", "steal_pct", "swap_in_bytes_s", "retransmits_per_1000"]
    assert [getattr(found, figure) for figure in rates] == [None] * len(rates)
    assert {found.unread[figure] for figure in rates} == {"read once so far"}


def test_two_that_share_a_core_keep_it_busy_and_under_pressure() -> None:
    sensor = HostSensor()
    sensor.read()
    with running(PINNED), running(PINNED):
        found = until(sensor.read, lambda figures: (figures.cpu_pct or 0) > 60 / (os.cpu_count() or 1), pause_s=0.5)
        assert found.cpu_pct is not None
        assert found.steal_pct is not None
        assert found.cpu_pct + found.steal_pct <= 100.001  # sums of rounded shares
        if not Path("/proc/pressure/cpu").exists():
            pytest.skip("this kernel does not tell of pressure")
        crowded = until(sensor.read, lambda figures: figures.pressure is not None and (figures.pressure.cpu or 0) > 30)
        assert crowded.pressure is not None
        assert crowded.pressure.cpu is not None
        assert crowded.pressure.cpu <= 100
        assert None not in (crowded.pressure.memory_full, crowded.pressure.io_full)


def test_interfaces_that_are_up_and_none_that_is_not() -> None:
    sensor = HostSensor()
    sensor.read()

    def up() -> set[str]:
        return {name for name, link in psutil.net_if_stats().items() if link.isup} - {"lo"}

    before, nics, after = until(  # interfaces come and go: those of containers, for one
        lambda: (up(), sensor.read().nics, up()),
        lambda seen: seen[0] == seen[2] and all(nic.received_bytes_s is not None for nic in seen[1]),
    )
    assert {nic.name for nic in nics} == before == after or len(nics) == 32
    for nic in nics:
        assert (nic.errors, nic.drops) != (None, None)
        assert nic.speed_mbit is None or nic.speed_mbit > 0


def test_without_psutil_what_it_reads_is_unknown_with_a_reason() -> None:
    program = (
        "import sys; sys.modules['psutil'] = None\n"
        "from ddpmon.sensors.host import HostSensor\n"
        "sensor = HostSensor(); sensor.read(); figures = sensor.read()\n"
        "print(figures.cpu_pct, figures.nics, figures.memory_total, sorted(figures.unread), figures.unread['nics'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("None [] ")
    assert "None" not in done.stdout[8:].split("[")[0]
    assert "['cpu_pct', 'nics'" in done.stdout
    assert "psutil" in done.stdout.splitlines()[0].rsplit("]", 1)[1]
    assert done.stderr == ""
