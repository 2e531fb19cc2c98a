"""The host: CPU, load, memory, pressure, network."""

from __future__ import annotations

import os

from ddpmon.machine import HostFigures
from ddpmon.sensors.cpu import CpuSensor, numa_nodes
from ddpmon.sensors.memory import SwapIn, read_memory
from ddpmon.sensors.network import NicSensor, Retransmits
from ddpmon.sensors.pressure import PressureSensor
from ddpmon.sensors.reading import Readings


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
