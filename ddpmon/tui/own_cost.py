"""What the dashboard itself takes of the machine that it runs on."""

from __future__ import annotations

from collections import deque
from time import monotonic, process_time, time

import psutil

from ddpmon.format import age, size

_PERIOD_S, _APART_S = 30.0, 1.0  # what the figure is of, and how far two readings lie apart at least


class OwnCost:
    """The CPU time and the memory of this process, each time they are asked for: `ps -o %cpu,rss -p PID`."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        since_start_s = max(time() - self._process.create_time(), 1.0)
        self._read: deque[tuple[float, float]] = deque([(monotonic() - since_start_s, 0.0)])

    def words(self) -> str:
        """`1.2 % of a core over 30 s, 81 MiB`: at first since the process began, after a pause since the one before."""
        now, cpu_s = monotonic(), process_time()
        if now - self._read[-1][0] >= _APART_S:
            self._read.append((now, cpu_s))
        while len(self._read) > 1 and now - self._read[1][0] >= _PERIOD_S:
            self._read.popleft()
        then, cpu_then = self._read[0]
        share = 100 * (cpu_s - cpu_then) / max(now - then, _APART_S)
        return f"{share:.1f} % of a core over {age(now - then)}, {size(self._process.memory_info().rss)}"
