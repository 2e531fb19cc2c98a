"""The processes below one process, such as its DataLoader workers: how many, their CPU time and memory."""

from __future__ import annotations

import os
from collections.abc import Iterable
from time import monotonic, thread_time
from typing import NamedTuple

from ddpmon.sensors.reading import NotYet, read_file

_LOOK_EVERY_S = 2.0
_LOOK_SHARE = 0.002  # of a core, for looking whether there are new ones
_MOST = 256
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Usage(NamedTuple):
    """What a process has used and holds: CPU seconds, threads, resident bytes; and its parent."""

    seconds: float
    threads: int
    rss_bytes: int
    parent: int
    state: str


def usage_of(pid: int, proc: str = "/proc") -> Usage:
    """What /proc/<pid>/stat says.

    Raises:
        OSError: there is no such process.
    """
    fields = read_file(f"{proc}/{pid}/stat").rpartition(")")[2].split()
    seconds = (int(fields[11]) + int(fields[12])) / _TICKS
    return Usage(seconds, int(fields[17]), int(fields[21]) * _PAGE, int(fields[1]), fields[0])


class Children:
    """Finds the descendants of a process.

    Not every kernel lists a process's children, so all processes are looked through; a process does not change its
    parent for us, so of each only the first look costs a reading.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._seen: set[int] = set()
        self._found: set[int] = set()
        self._next = 0.0

    def read(self) -> dict[int, Usage]:
        """The living ones with their usage.

        Raises:
            NotYet: there are too many to look at each.
            OSError: /proc cannot be read.
        """
        if monotonic() >= self._next:
            began = thread_time()
            self._look()
            self._next = monotonic() + max(_LOOK_EVERY_S, (thread_time() - began) / _LOOK_SHARE)
        if len(self._found) > _MOST:
            raise NotYet(f"{len(self._found)} processes, too many to look at each")
        used = {pid: usage for pid in self._found if (usage := _attempt(pid))}
        return {pid: usage for pid, usage in used.items() if usage.state not in "ZX"}

    def _look(self) -> None:
        with os.scandir("/proc") as entries:
            present = {int(entry.name) for entry in entries if entry.name.isdigit()}
        parents = {pid: usage.parent for pid in present - self._seen if (usage := _attempt(pid))}
        self._seen = present
        self._found &= present
        self._adopt(parents)

    def _adopt(self, parents: dict[int, int]) -> None:
        """Take those in whose parent is the process or one of its descendants, until there are no more."""
        while more := set(self._of(parents, self._found | {self._pid})) - self._found:
            self._found |= more

    @staticmethod
    def _of(parents: dict[int, int], ours: set[int]) -> Iterable[int]:
        return (pid for pid, parent in parents.items() if parent in ours)


def _attempt(pid: int) -> Usage | None:
    try:
        return usage_of(pid)
    except (OSError, ValueError, IndexError):
        return None  # it has gone
