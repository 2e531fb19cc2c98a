"""All the sensors of one host, each in a guarded thread of its own, and what they say together."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic, thread_time_ns
from typing import Any, Generic, NamedTuple, TypeVar

from msgspec.structs import replace

from ddpmon.machine import Disk, GpuFigures, HostFigures, HostProcess, TakenPort
from ddpmon.sensors.busiest import BusiestProcesses, only_ours
from ddpmon.sensors.disks import FolderSensor
from ddpmon.sensors.gpu import GpuSensor, bounded
from ddpmon.sensors.host import HostSensor
from ddpmon.sensors.identities import Identities
from ddpmon.sensors.ports import PortSensor
from ddpmon.sensors.reading import Readings, reason

T = TypeVar("T")
PATIENCE_S = 5.0
FAILURES = 5
_DISKS_EVERY_S = 2.0
_MOST_FOLDERS, _MOST_USES, _MOST_NOTES = 12, 8, 16
_HIDDEN = "only the processes of this container, or of this user, are visible"


def _nothing() -> None:
    pass


class Guarded(Generic[T]):
    """Calls `read` again and again until it is stopped, and `at_end` then.

    One that raises is called again `FAILURES` times, and no more if it raised each time.

    Attributes:
        name: how notes call it.
        cost_ns: the CPU time that its thread has taken.
    """

    def __init__(
        self, name: str, read: Callable[[], T], interval_s: float = 1.0, at_end: Callable[[], None] = _nothing
    ) -> None:
        self.name = name
        self.cost_ns = 0
        self._read, self._interval_s, self._at_end = read, interval_s, at_end
        self._taken: tuple[T, int] | None = None
        self._reads = 0
        self._began: float | None = None
        self._failures = 0
        self._failure = ""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"ddpmon-{name}", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Ask for the end; does not wait."""
        self._stopping.set()

    @property
    def value(self) -> T | None:
        """What was read last; None while there is trouble, or nothing yet."""
        return None if (taken := self.latest) is None else taken[0]

    @property
    def latest(self) -> tuple[T, int] | None:
        """The same, and which reading it is of."""
        return None if self.trouble else self._taken

    @property
    def trouble(self) -> str | None:
        """Why there is no value, as far as that is not just the beginning."""
        began = self._began
        if began is not None and monotonic() - began > PATIENCE_S:
            return f"no answer for {monotonic() - began:.0f} s"
        if self._failures >= FAILURES:
            return f"switched off after {FAILURES} errors: {self._failure}"[:200]
        return self._failure[:200] if self._failures else None

    def _run(self) -> None:
        while self._failures < FAILURES:
            self._began = monotonic()
            try:
                value, self._reads = self._read(), self._reads + 1
                self._taken, self._failures = (value, self._reads), 0
            except Exception as error:
                self._failure = reason(error)
                self._failures += 1
            self._began = None
            self.cost_ns = thread_time_ns()
            if self._stopping.wait(self._interval_s):
                break
        self._at_end()


class Sample(NamedTuple):
    """A host at one moment; `notes` says which sensors are in trouble, and why."""

    figures: HostFigures
    gpus: list[GpuFigures]
    notes: list[str]


class Watched(NamedTuple):
    """The processes and ports of a host; `passes` counts the readings of the processes."""

    processes: list[HostProcess]
    ports: list[TakenPort]
    unread: dict[str, str]
    passes: int = 0


class Sampler:
    """Samples a host.

    Args:
        folders: use -> folder, besides the working directory, the temporary folder and /dev/shm.
        wanted_ports: port -> what the run wanted it for; it may change.
        lifetime: count the GPUs' errors since their driver began, instead of since now.
    """

    def __init__(self, folders: Mapping[str, str], wanted_ports: Mapping[int, str], *, lifetime: bool = False) -> None:
        identities = Identities()
        self._busiest = BusiestProcesses(identities)
        self._ports = PortSensor(wanted_ports, identities)
        self._host = Guarded("host", HostSensor().read)
        self._watched = Guarded("processes", self._watch)
        self._gpu_sensor = GpuSensor(lifetime=lifetime)
        self._gpus = Guarded("gpus", self._gpu_sensor.read)
        every = {**_usual_folders(), **folders}
        self._disks = [
            Guarded(f"disk {use}", FolderSensor(use, folder).read, _DISKS_EVERY_S)
            for use, folder in list(every.items())[:_MOST_FOLDERS]
        ]
        self.guards: Sequence[Guarded[Any]] = (self._host, self._watched, self._gpus, *self._disks)

    def start(self) -> None:
        """Begin to read."""
        for guard in self.guards:
            guard.start()

    def stop(self) -> None:
        """Ask for the end; does not wait."""
        for guard in self.guards:
            guard.stop()

    def sample(self) -> Sample | None:
        """What was read last, at once; None before the host has been read."""
        host, reads = self._host.latest or (None, 0)
        troubles = {guard.name: trouble for guard in self.guards if (trouble := guard.trouble)}
        if host is None and not troubles:
            return None
        host = host or HostFigures()
        watched = self._watched.value or Watched([], [], {})
        figures = replace(
            host,
            processes=watched.processes,
            ports=watched.ports,
            disks=list(_merged(disk.latest for disk in self._disks)),
            readings={"host": reads, "processes": watched.passes},
            unread={**host.unread, **watched.unread, **self._no_gpus(), **troubles},
        )
        notes = [f"{name}: {trouble}"[:256] for name, trouble in troubles.items()]
        return Sample(figures, bounded(self._gpus.value or []), notes[:_MOST_NOTES])

    def _no_gpus(self) -> dict[str, str]:
        """Why there are none, if so."""
        return {"gpus": self._gpu_sensor.reason} if self._gpu_sensor.reason else {}

    def _watch(self) -> Watched:
        readings = Readings()
        if only_ours():
            readings.unread["processes"] = _HIDDEN
        processes = readings.take("processes", self._busiest.read) or []
        ports = readings.take("ports", self._ports.read) or []
        return Watched(processes, ports, readings.unread, self._busiest.passes)


def _usual_folders() -> dict[str, str]:
    folders = {"temporary files": os.environ.get("TMPDIR") or "/tmp"}
    with suppress(OSError):  # it may have been removed
        folders["working directory"] = str(Path.cwd())
    if Path("/dev/shm").is_dir():
        folders["shared memory"] = "/dev/shm"
    return folders


def _merged(disks: Iterator[tuple[Disk, int] | None]) -> Iterator[Disk]:
    """One entry a file system, with all its uses."""
    found: dict[str, Disk] = {}
    for taken in disks:
        if taken is not None:
            disk, reads = taken
            known = found.get(disk.path) or replace(disk, reads=reads)
            uses = [*known.uses, *(use for use in disk.uses if use not in known.uses)]
            found[disk.path] = replace(known, uses=uses[:_MOST_USES])
    yield from found.values()
