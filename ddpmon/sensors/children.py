"""The processes below one process, such as its DataLoader workers: how many, their CPU time and memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from time import monotonic, thread_time
from typing import NamedTuple

from ddpmon.sensors.reading import NotYet, read_file

_LOOK_EVERY_S = 2.0
_LOOK_SHARE = 0.002  # of a core, for looking whether there are new ones
_MOST = 256
_DATA_WORKER = "pt_data_worker"  # torch.utils.data._utils.worker
_AT_WORK = 0.1  # of a core
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Usage(NamedTuple):
    """What a process has used and holds: CPU seconds, threads, resident bytes; its parent, and its short name."""

    seconds: float
    threads: int
    rss_bytes: int
    parent: int
    state: str
    name: str


def usage_of(pid: int, proc: str = "/proc") -> Usage:
    """What /proc/<pid>/stat says.

    Raises:
        OSError: there is no such process.
    """
    head, _, tail = read_file(f"{proc}/{pid}/stat").rpartition(")")
    fields, name = tail.split(), head.partition("(")[2]
    seconds = (int(fields[11]) + int(fields[12])) / _TICKS
    return Usage(seconds, int(fields[17]), int(fields[21]) * _PAGE, int(fields[1]), fields[0], name)


class AtWork:
    """Counts the workers among a process's descendants.

    DataLoader workers count as such by the name that torch gives them. Others, such as compile pools and the trackers
    of multiprocessing, are mostly idle: they count while they use a tenth of a core or more.
    """

    def __init__(self) -> None:
        self._before: dict[int, float] = {}
        self._at = 0.0

    def count(self, used: Mapping[int, Usage]) -> int:
        """How many there are, by what they have used since the call before."""
        now = monotonic()
        least = _AT_WORK * (now - self._at)
        before, self._at = self._before, now
        self._before = {pid: usage.seconds for pid, usage in used.items()}
        busy = {pid for pid, seconds in self._before.items() if pid in before and seconds - before[pid] >= least}
        return sum(usage.name == _DATA_WORKER or pid in busy for pid, usage in used.items())


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
