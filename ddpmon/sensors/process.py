"""One process: CPU, memory, threads."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ddpmon.machine import ProcessFigures

if TYPE_CHECKING:
    import psutil


class ProcessSensor:
    """Reads the figures of one process, by default the one it runs in."""

    def __init__(self, pid: int | None = None) -> None:
        self._process = _open(os.getpid() if pid is None else pid)
        self._primed = False

    def read(self) -> ProcessFigures:
        """The figures now; CPU is the mean since the last read, None at the first. Never raises."""
        if self._process is None:
            return ProcessFigures()
        try:
            with self._process.oneshot():
                cpu_pct = self._process.cpu_percent()
                figures = ProcessFigures(
                    cpu_pct=cpu_pct if self._primed else None,
                    rss_bytes=self._process.memory_info().rss,
                    threads=self._process.num_threads(),
                )
        except Exception:
            return ProcessFigures()
        self._primed = True
        return figures


def _open(pid: int) -> psutil.Process | None:
    try:
        import psutil

        return psutil.Process(pid)
    except Exception:
        return None
