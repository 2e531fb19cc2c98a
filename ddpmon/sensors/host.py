"""The host: CPU, load, memory, pressure, network."""

from __future__ import annotations

import os
from pathlib import Path
from time import monotonic
from typing import Any

from ddpmon.lru import LruDefaultDict
from ddpmon.machine import HostFigures, Nic, Pressure
from ddpmon.parts import wire_text
from ddpmon.sensors.reading import NotYet, Rate, Readings, Since, read_file, read_table

_LOOK_EVERY_S = 10.0  # for interfaces that come up; asking each for its speed has its price
_MOST = 32
_FEW_SEGMENTS = 100
_FIGURES = {
    "cpu": ("cpu", "some"),
    "memory": ("memory", "some"),
    "memory_full": ("memory", "full"),
    "io": ("io", "some"),
    "io_full": ("io", "full"),
}
_PAGE = os.sysconf("SC_PAGE_SIZE")
_NODES = Path("/sys/devices/system/node")
_MOST_NODES = 64


class NicSensor:
    """Reads the interfaces that are up, other than loopback; of very many those that are devices, then the busiest."""

    def __init__(self) -> None:
        self._speeds: dict[str, float | None] = {}
        self._next = 0.0
        self._rates, self._since = LruDefaultDict(Rate, 4 * _MOST), LruDefaultDict(Since, 4 * _MOST)

    def read(self) -> list[Nic]:
        """Their figures now.

        Raises:
            Exception: the kernel lists none.
        """
        import psutil

        counters = psutil.net_io_counters(pernic=True, nowrap=False)
        if monotonic() >= self._next:
            self._next = monotonic() + _LOOK_EVERY_S
            self._speeds = _speeds(counters)
        return [self._nic(name, counters[name]) for name in self._speeds if name in counters]

    def _nic(self, name: str, counted: Any) -> Nic:
        take = Readings().take
        return Nic(
            name=wire_text(name),
            speed_mbit=self._speeds[name],
            received_bytes_s=take("", self._rates.of((name, "received")), counted.bytes_recv),
            sent_bytes_s=take("", self._rates.of((name, "sent")), counted.bytes_sent),
            errors=self._since.of(("errors", name))(counted.errin + counted.errout),
            drops=self._since.of(("drops", name))(counted.dropin + counted.dropout),
        )


class Retransmits:
    """Reads how many TCP segments were sent again."""

    def __init__(self) -> None:
        self._before: tuple[int, int] | None = None

    def read(self) -> float:
        """Of a thousand sent since the reading before.

        Raises:
            OSError: the kernel does not say.
            NotYet: hardly any were sent, or this is the first reading.
        """
        names, values = (line.split() for line in read_file("/proc/net/snmp").splitlines() if line.startswith("Tcp:"))
        table = dict(zip(names, values, strict=True))
        now = int(table["OutSegs"]), int(table["RetransSegs"])
        before, self._before = self._before, now
        if before is None:
            raise NotYet("read once so far")
        sent = now[0] - before[0]
        if sent < _FEW_SEGMENTS:
            raise NotYet("hardly any segments were sent")
        return 1000 * max(0, now[1] - before[1]) / sent


def _speeds(counters: dict[str, Any]) -> dict[str, float | None]:
    """The interfaces to tell of, in order, with their Mbit/s."""
    import psutil

    up = {name: link for name, link in psutil.net_if_stats().items() if link.isup and "loopback" not in link.flags}
    order = sorted((name for name in up if name in counters), key=lambda name: _rank(name, counters[name]))
    return {name: float(up[name].speed) or None for name in order[:_MOST]}


def _rank(name: str, counted: Any) -> tuple[bool, int]:
    return not Path(f"/sys/class/net/{name}/device").exists(), -counted.bytes_recv - counted.bytes_sent


class PressureSensor:
    """Reads the shares of the time since the reading before, from the totals: the kernel's own means lag behind."""

    def __init__(self) -> None:
        self._rates = {figure: Rate() for figure in _FIGURES}

    def read(self) -> Pressure:
        """The percent now.

        Raises:
            OSError: the kernel does not tell of pressure.
            NotYet: this is the first reading.
        """
        totals = {resource: _totals(resource) for resource in ("cpu", "memory", "io")}
        shares = {}
        for figure, (resource, kind) in _FIGURES.items():
            try:
                shares[figure] = min(100.0, self._rates[figure](totals[resource][kind]) / 1e4)
            except NotYet as missing:
                reason = missing
        if not shares:
            raise reason
        return Pressure(**shares)


def _totals(resource: str) -> dict[str, int]:
    """Microseconds in which some, or all, tasks have waited."""
    lines = (line.split() for line in read_file(f"/proc/pressure/{resource}").splitlines())
    return {line[0]: int(line[-1].partition("=")[2]) for line in lines}


def read_memory() -> tuple[int, int, int]:
    """Bytes of memory in use (without what could be reclaimed), in all, and of swap in use.

    Raises:
        OSError, KeyError: the kernel does not say.
    """
    table = read_table("/proc/meminfo")
    total, swap = table["MemTotal"], table["SwapTotal"] - table["SwapFree"]
    return (total - table["MemAvailable"]) << 10, total << 10, swap << 10


class SwapIn:
    """Reads what comes back from swap."""

    def __init__(self) -> None:
        self._rate = Rate()

    def read(self) -> float:
        """Bytes a second since the reading before.

        Raises:
            OSError, KeyError: the kernel does not say.
            NotYet: this is the first reading.
        """
        return self._rate(read_table("/proc/vmstat")["pswpin"] * _PAGE)


class CpuSensor:
    """Reads how all CPUs together spent the time since the reading before."""

    def __init__(self) -> None:
        self._before: tuple[float, float, float] | None = None

    def read(self) -> tuple[float, float]:
        """Percent busy here, and percent stolen by the hypervisor.

        Raises:
            NotYet: this is the first reading, or no time has passed.
        """
        import psutil

        times = psutil.cpu_times()
        idle, stolen = times.idle + times.iowait, times.steal
        total = idle + stolen + times.user + times.nice + times.system + times.irq + times.softirq
        before, self._before = self._before, (idle, stolen, total)
        if before is None or total <= before[2]:
            raise NotYet("read once so far")
        passed = total - before[2]
        stolen_share = max(0.0, stolen - before[1]) / passed
        idle_share = max(0.0, idle - before[0]) / passed
        return 100 * max(0.0, 1 - idle_share - stolen_share), 100 * stolen_share


def numa_nodes() -> list[str]:
    """Each NUMA node's CPUs as the kernel lists them, by number; empty for a node without any.

    Raises:
        OSError: the kernel does not say.
    """
    folders = {int(folder.name[4:]): folder for folder in _NODES.glob("node[0-9]*")}
    numbers = range(min(_MOST_NODES, max(folders, default=-1) + 1))
    return [wire_text(read_file(str(folders[n] / "cpulist")).strip()) if n in folders else "" for n in numbers]


class HostSensor:
    """Reads the figures of the host that it runs on, other than its processes, disks and ports."""

    def __init__(self) -> None:
        self._cpu, self._pressure, self._swap_in = CpuSensor(), PressureSensor(), SwapIn()
        self._nics, self._retransmits = NicSensor(), Retransmits()
        readings = Readings()
        self._numa = readings.take("numa", numa_nodes) or []
        self._no_numa = readings.unread

    def read(self) -> HostFigures:
        """The figures now; rates are means since the last read, None at the first. Never raises."""
        readings = Readings()
        take = readings.take
        cpu_pct, steal_pct = take("cpu_pct steal_pct", self._cpu.read) or (None, None)
        used, total, swap = take("memory_used memory_total swap_used", read_memory) or (None, None, None)
        return HostFigures(
            cpu_pct=cpu_pct,
            cpu_count=os.cpu_count(),
            load_1m=take("load_1m", lambda: os.getloadavg()[0]),
            steal_pct=steal_pct,
            memory_used=used,
            memory_total=total,
            swap_used=swap,
            swap_in_bytes_s=take("swap_in_bytes_s", self._swap_in.read),
            pressure=take("pressure", self._pressure.read),
            nics=take("nics", self._nics.read) or [],
            retransmits_per_1000=take("retransmits_per_1000", self._retransmits.read),
            numa=self._numa,
            unread=readings.unread | self._no_numa,
        )
