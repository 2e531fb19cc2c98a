"""Disks that fill up, and disks that a rank's input or checkpoint waits for."""

from __future__ import annotations

from collections import deque

import numpy as np

from ddpmon.diagnose.alert import Measures
from ddpmon.diagnose.contention.host_state import Host, RunContext
from ddpmon.diagnose.contention.symptom import Symptom
from ddpmon.diagnose.contention_policy import DISK
from ddpmon.lru import LruDefaultDict
from ddpmon.machine import Disk
from ddpmon.run.limits import SHM, io_stall, is_low, is_only_read

_PATHS = 32  # disks of a host that are remembered; it bounds the memory where paths come and go
_WAITS_FOR_DISKS = frozenset({"input", "other"})  # the phases in which data and checkpoints are read and written


class DiskLowMeasures(Measures, frozen=True):
    """A disk that the run writes to is nearly full.

    Attributes:
        path: where it is mounted.
        free_bytes, total_bytes: what is free of it, and all of it.
        uses: what the run has there, such as "checkpoints".
    """

    path: str
    free_bytes: int
    total_bytes: int
    uses: tuple[str, ...]


class DiskSlowMeasures(Measures, frozen=True):
    """Ranks wait for a slow disk.

    Attributes:
        path: where it is mounted.
        wait_ms: how long a request waits.
        busy_pct: the percent of the time that the disk is busy; 0 where that is unknown.
        io_pressure_pct: the percent of the time that tasks of the host wait for disks; 0 while that is little.
        is_busy: the disk itself is busy; if not, only the tasks that wait tell.
    """

    path: str
    wait_ms: float
    busy_pct: float
    io_pressure_pct: float
    is_busy: bool


class Past:
    """What is remembered of a disk: how long requests waited, which reading that was, and the most that was free."""

    def __init__(self) -> None:
        self.waits: deque[float] = deque(maxlen=DISK.waits_kept)
        self.reads: int | None = None
        self._most_free = 0

    def fills(self, free: int) -> bool:
        """Whether somebody writes there: much less is free than was."""
        self._most_free = max(self._most_free, free)
        return free <= self._most_free - DISK.written_bytes


class Storage:
    """Remembers how long requests usually wait, and whether the ranks still read their data for the first time."""

    def __init__(self) -> None:
        self._past: dict[int, LruDefaultDict[Past]] = {}
        self._batches: dict[int, int] = {}
        self._read_once: set[int] = set()

    def look(self, host: Host, context: RunContext) -> list[Symptom]:
        """Low disks, and slow ones where a phase that reads or writes is late."""
        disks = [disk for disk in host.frame.figures.disks if disk.path != SHM]
        if not disks or not host.states:
            return []
        self._follow(host)
        late = {context.slower, *(context.late.get(rank) for rank in host.states)} if context.late else {context.slower}
        matters = not late.isdisjoint(_WAITS_FOR_DISKS)
        symptoms: list[Symptom] = []
        for disk in disks:
            past = self._past_of(host, disk)
            fills = disk.free is not None and past.fills(disk.free)
            if disk.free is not None and is_low(disk) and (fills or not is_only_read(disk)):
                symptoms.append(_low(host, disk, disk.free))
            symptoms += self._slow(host, disk, past, matters=matters)
        return symptoms

    def _past_of(self, host: Host, disk: Disk) -> Past:
        paths = self._past.get(host.number)
        if paths is None:
            paths = self._past[host.number] = LruDefaultDict(Past, _PATHS)
        return paths.of(disk.path)

    def _follow(self, host: Host) -> None:
        """One rank tells for all of its host: they go through their data together."""
        loader = next(iter(host.states.values())).frame.loader
        if loader is None or host.number in self._read_once:
            return
        if loader.ended or loader.batches < self._batches.get(host.number, 0):
            self._read_once.add(host.number)
        self._batches[host.number] = loader.batches

    def _slow(self, host: Host, disk: Disk, past: Past, *, matters: bool) -> list[Symptom]:
        wait = max(disk.read_wait_ms or 0.0, disk.write_wait_ms or 0.0)
        if not matters:  # what is slow while it matters is not the usual
            if wait > 0 and (disk.reads is None or disk.reads != past.reads):
                past.waits.append(wait)
                past.reads = disk.reads
            return []
        usual = float(np.median(past.waits)) if len(past.waits) >= DISK.fewest_waits else None
        stalled = io_stall(host.frame.figures.pressure)
        busy = (disk.busy_pct or 0) >= DISK.busy_pct and wait >= DISK.wait_ms
        if not (busy or stalled) or not self._is_up(host, wait, usual):
            return []
        return [_slow_symptom(host, disk, wait, stalled or 0.0)]

    def _is_up(self, host: Host, wait: float, usual: float | None) -> bool:
        """Beyond the usual; where that is unknown, in no first reading of the data, which no cache helps."""
        first = host.number in self._batches and host.number not in self._read_once
        return wait >= DISK.slower_ratio * usual if usual is not None else not first


def _slow_symptom(host: Host, disk: Disk, wait: float, stalled: float) -> Symptom:
    busy = disk.busy_pct or 0
    return Symptom(
        kind="disk_slow",
        source=("disk", disk.path),
        about=disk.path,
        ranks=host.ranks,
        measures=DiskSlowMeasures(disk.path, wait, busy, stalled, is_busy=busy >= DISK.busy_pct),
    )


def _low(host: Host, disk: Disk, free: int) -> Symptom:
    """One that the run writes to is nearly full."""
    return Symptom(
        kind="disk_low",
        source=("disk", disk.path),
        about=disk.path,
        ranks=host.ranks,
        threat="critical" if free < DISK.brim_free_bytes else "warning",
        measures=DiskLowMeasures(disk.path, free, disk.total or 0, tuple(disk.uses)),
    )
