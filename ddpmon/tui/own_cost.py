"""What the dashboard itself takes of the machine that it runs on."""

from __future__ import annotations

from collections import deque
from time import monotonic, process_time, time

import psutil

_KEPT = 30  # readings, one each time the figures are drawn: the last half a minute at one picture a second
_MB = 1e6


class OwnCost:
    """The CPU time and the memory of this process, each time they are asked for: `ps -o %cpu,rss -p PID`."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        since_start_s = max(time() - self._process.create_time(), 1.0)
        self._read: deque[tuple[float, float]] = deque([(monotonic() - since_start_s, 0.0)], _KEPT)

    def words(self) -> str:
        """`1.2 % of a core, 81 MB`: of the last readings, at first since the process began."""
        now, cpu_s = monotonic(), process_time()
        then, cpu_then = self._read[0]
        self._read.append((now, cpu_s))
        share = 100 * (cpu_s - cpu_then) / max(now - then, 1e-3)
        return f"{share:.1f} % of a core, {self._process.memory_info().rss / _MB:.0f} MB"
