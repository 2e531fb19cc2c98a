"""One process: CPU, memory, what its threads wait for, its children, its cgroups' limits, what it reads and writes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from time import monotonic, thread_time
from typing import NamedTuple

from ddpmon.machine import ProcessFigures
from ddpmon.parts import wire_text
from ddpmon.sensors.cgroup import Cgroups
from ddpmon.sensors.reading import Gains, NotYet, Rate, Readings, read_file, read_table

_LOOK_EVERY_S = 2.0
_LOOK_SHARE = 0.002  # of a core, for looking whether there are new ones
_MOST = 256
_DATA_WORKER = "pt_data_worker"  # torch.utils.data._utils.worker
_AT_WORK = 0.1  # of a core
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_MOST_THREADS = 512
_CLOCK = "/sys/devices/system/cpu/cpu{}/cpufreq/scaling_cur_freq"  # kHz
_RAN_ON = 36  # the place of the CPU in /proc/PID/stat behind the name (proc_pid_stat(5), field 39)
_LAUNCHES = "pt_autograd"  # the threads in which torch's autograd engine launches the backward of a GPU


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
        """Those that still run, with their usage.

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
        return None  # it has ended


class ProcessSensor:
    """Reads the figures of one process.

    Args:
        pid: by default the one it runs in.
        thread: the kernel's number of its training thread; by default its main thread.
        compute_threads: how many threads torch computes with in it.
    """

    def __init__(self, pid: int | None = None, thread: int | None = None, compute_threads: int | None = None) -> None:
        self._pid = os.getpid() if pid is None else pid
        self._thread = self._pid if thread is None else thread
        self._compute_threads = compute_threads
        self._cpu, self._switches = Rate(), Rate()
        self._reads, self._writes = Rate(), Rate()
        self._wait, self._waits, self._workers = Gains(max), Gains(), Gains()
        self._engine = _EngineThreads(f"/proc/{self._pid}/task")
        self._children, self._at_work = Children(self._pid), AtWork()
        self._cgroups = Cgroups(self._pid)

    def read(self) -> ProcessFigures:
        """The figures now, those that the operating system knows; never raises."""
        readings = Readings()
        take, cgroups = readings.take, self._cgroups
        usage = take("cpu_pct rss_bytes threads", usage_of, self._pid)
        waits = take("runqueue_pct runqueue_all_pct", self._read_waits)
        switches, cpus = take("switches_per_s cpus", self._read_status) or (None, None)
        workers = take("workers workers_cpu_pct workers_rss_bytes", self._children.read)
        read, written = take("read_bytes_s write_bytes_s", self._read_io) or (None, None)
        quota_cpus = take("quota_cpus quotas throttled_pct", cgroups.quota_cpus)
        limit, used = take("memory_limit memory_used oom_kills", cgroups.memory) or (None, None)
        return ProcessFigures(
            cpu_pct=take("cpu_pct", self._cpu, usage and 100 * usage.seconds),
            rss_bytes=usage and usage.rss_bytes,
            threads=usage and usage.threads,
            runqueue_pct=take("runqueue_pct", self._runqueue, waits),
            runqueue_all_pct=take("runqueue_all_pct", self._waits, waits),
            switches_per_s=take("switches_per_s", self._switches, switches),
            cpu_mhz=self._read_clock(),
            cpus=cpus,
            compute_threads=self._compute_threads,
            workers=take("workers", self._at_work.count, workers),
            workers_cpu_pct=take("workers_cpu_pct", self._workers_cpu, workers),
            workers_rss_bytes=None if workers is None else sum(usage.rss_bytes for usage in workers.values()),
            quota_cpus=quota_cpus,
            quotas=take("quotas", cgroups.quotas) or {},
            throttled_pct=take("throttled_pct", cgroups.throttled_pct),
            memory_limit=limit,
            memory_used=used,
            oom_kills=take("oom_kills", cgroups.oom_kills),
            read_bytes_s=take("read_bytes_s", self._reads, read),
            write_bytes_s=take("write_bytes_s", self._writes, written),
            unread=readings.unread,
        )

    def _read_waits(self) -> dict[int, float]:
        """Per thread the percent-seconds that it has been ready to run and was not let.

        Raises:
            OSError: the process has ended, or the kernel does not account for it.
            NotYet: it has too many threads to look at each.
        """
        folder = f"/proc/{self._pid}/task"
        with os.scandir(folder) as entries:
            threads = [int(entry.name) for entry in entries]
        if len(threads) > _MOST_THREADS:
            raise NotYet(f"{len(threads)} threads, too many to look at each")
        waits = {thread: wait for thread in threads if (wait := _wait_of(f"{folder}/{thread}/schedstat")) is not None}
        if not waits:
            read_file(f"{folder}/{self._thread}/schedstat")  # says why
        return waits

    def _runqueue(self, waits: dict[int, float]) -> float:
        if self._thread not in waits:
            raise NotYet("the training thread has ended")
        launching = {self._thread, *self._engine.among(waits)}
        # What one waited for long is booked when it is over.
        return min(100.0, self._wait({thread: waits[thread] for thread in launching}))

    def _read_status(self) -> tuple[int, str]:
        """Involuntary switches of the training thread, and the CPUs that it may run on."""
        lines = read_file(f"/proc/{self._pid}/task/{self._thread}/status").splitlines()
        values = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        return int(values["nonvoluntary_ctxt_switches"]), wire_text(values["Cpus_allowed_list"])

    def _read_clock(self) -> float | None:
        try:
            status = read_file(f"/proc/{self._pid}/task/{self._thread}/stat")
            return int(read_file(_CLOCK.format(status.rpartition(")")[2].split()[_RAN_ON]))) / 1000
        except (OSError, ValueError, IndexError):
            return None  # it is not scaled, or the thread has ended

    def _read_io(self) -> tuple[int, int]:
        table = read_table(f"/proc/{self._pid}/io")
        return table["read_bytes"], table["write_bytes"]

    def _workers_cpu(self, workers: dict[int, Usage]) -> float:
        return self._workers({pid: 100 * usage.seconds for pid, usage in workers.items()})


class _EngineThreads:
    """Finds the autograd engine's threads by their names, which they take a moment after they have begun.

    Args:
        folder: of the process's threads.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._before: set[int] = set()
        self._looked_at: set[int] = set()
        self._found: set[int] = set()

    def among(self, threads: Iterable[int]) -> set[int]:
        """Those of `threads` that are the engine's; of each the name is read in its first two readings."""
        present = set(threads)
        new = present - self._looked_at
        self._found = self._found & present | {thread for thread in new if self._name(thread).startswith(_LAUNCHES)}
        self._before, self._looked_at = present, present & self._before
        return self._found

    def _name(self, thread: int) -> str:
        try:
            return read_file(f"{self._folder}/{thread}/comm")
        except OSError:
            return ""  # it has ended


def _wait_of(path: str) -> float | None:
    try:
        return int(read_file(path).split()[1]) / 1e7
    except (OSError, IndexError):
        return None  # the thread has ended
