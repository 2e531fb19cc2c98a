"""The host's memory and swap."""

from __future__ import annotations

import os

from ddpmon.sensors.reading import Rate, read_table

_PAGE = os.sysconf("SC_PAGE_SIZE")


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
