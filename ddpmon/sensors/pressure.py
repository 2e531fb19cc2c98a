"""Pressure stall information: how long tasks waited for CPU, memory, and disks."""

from __future__ import annotations

from ddpmon.machine import Pressure
from ddpmon.sensors.reading import NotYet, Rate, read_file

_FIGURES = {
    "cpu": ("cpu", "some"),
    "memory": ("memory", "some"),
    "memory_full": ("memory", "full"),
    "io": ("io", "some"),
    "io_full": ("io", "full"),
}


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
