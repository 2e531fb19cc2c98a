"""The host's CPUs: how busy they are, what the hypervisor takes, and which belong to a NUMA node."""

from __future__ import annotations

from pathlib import Path

from ddpmon.sensors.reading import NotYet, clean, read_file

_NODES = Path("/sys/devices/system/node")
_MOST_NODES = 64


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
    return [clean(read_file(str(folders[n] / "cpulist")).strip()) if n in folders else "" for n in numbers]
