"""The host: CPU, load, memory."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TypeVar

from ddpmon.machine import HostFigures

T = TypeVar("T")


class HostSensor:
    """Reads the figures of the host that it runs on."""

    def __init__(self) -> None:
        self._primed_by: int | None = None

    def read(self) -> HostFigures:
        """The figures now; CPU is the mean since this thread's last read, None at the first. Never raises."""
        try:
            import psutil
        except Exception:
            return HostFigures(load_1m=_attempt(_load), cpu_count=os.cpu_count())
        cpu_pct = _attempt(psutil.cpu_percent)
        memory = _attempt(psutil.virtual_memory)
        figures = HostFigures(
            cpu_pct=cpu_pct if self._primed_by == threading.get_ident() else None,
            cpu_count=_attempt(psutil.cpu_count),
            load_1m=_attempt(_load),
            memory_used=memory.total - memory.available if memory else None,
            memory_total=memory.total if memory else None,
        )
        self._primed_by = threading.get_ident()  # psutil keeps one earlier reading a thread
        return figures


def _load() -> float:
    return os.getloadavg()[0]


def _attempt(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except Exception:
        return None
