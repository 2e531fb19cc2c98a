"""One host: its newest frame, and the ranks on it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ddpmon.diagnose.clash.sign import Source
from ddpmon.diagnose.wording import clean
from ddpmon.machine import GpuFigures, Process, ProcessFigures
from ddpmon.run.model import LOST_S, RankState
from ddpmon.run.ours import Instances, Ours
from ddpmon.schema import NodeFrame, RankFrame

_UNKNOWN = ProcessFigures()


@dataclass(slots=True)
class Host:
    """What is known of one host now.

    Attributes:
        frames: rank -> its newest frame, of the ranks on it that run and are heard of.
        pids: process number -> rank, of all ranks ever heard of on it.
        on: UUID of a GPU (or MIG instance) -> the ranks that train on it.
        gpus: the GPUs with ranks on them.
        processes: rank -> its own process, of those in `frames`.
    """

    number: int
    frame: NodeFrame
    frames: dict[int, RankFrame] = field(default_factory=dict)
    pids: dict[int, int] = field(default_factory=dict)
    on: dict[str, list[int]] = field(default_factory=dict)
    gpus: list[GpuFigures] = field(default_factory=list)
    processes: dict[int, ProcessFigures] = field(default_factory=dict)
    _ours: Ours | None = None

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that run on it."""
        return tuple(self.frames)

    @property
    def name(self) -> str:
        """Its name, made harmless."""
        return clean(self.frame.host, 60)

    def figures(self, rank: int) -> ProcessFigures:
        """The rank's own process."""
        return self.processes[rank]

    def workers(self, rank: int) -> tuple[int, bool]:
        """How many processes load for it, and whether it says so itself; else those below it may do anything."""
        loader = self.frames[rank].loader
        return (self.processes[rank].workers or 0, False) if loader is None else (loader.workers, True)

    def reading(self, source: Source | None) -> int | None:
        """How often this has been read by now; None where nobody counts."""
        sensor, name = source or ("", "")
        if sensor == "host":
            return self.frame.figures.readings.get(name)
        if sensor == "disk":
            return next((disk.reads for disk in self.frame.figures.disks if disk.path == name), None)
        gpu = next((gpu for gpu in self.frame.gpus if gpu.uuid == name), None)
        return None if gpu is None else gpu.slow_reads if sensor == "link" else gpu.reads

    def is_ours(self, process: Process) -> bool:
        """A rank, its descendant, what launched the ranks, or another monitor."""
        if self._ours is None:
            self._ours = Ours(self.pids, self.frame.figures, self.frame.gpus)
        return self._ours.role(process) is not None


def look(number: int, frame: NodeFrame, heard_at: float, states: Iterable[tuple[int, RankState]]) -> Host:
    """The host with those of its ranks that are there, as of `heard_at`."""
    host, oldest = Host(number, frame), heard_at - LOST_S
    pids, frames, processes, on = host.pids, host.frames, host.processes, host.on
    instances = Instances(frame.gpus) if any(gpu.board for gpu in frame.gpus) else None
    for rank, state in states:
        known = state.frame
        pids[known.pid] = rank
        if state.heard_at >= oldest and (known.state == "running" or known.state == "stalled"):
            frames[rank], processes[rank] = known, known.process or _UNKNOWN
            if known.gpu_uuid is not None:
                uuid = known.gpu_uuid if instances is None else instances.of(known.gpu_uuid, known.pid)
                on.setdefault(uuid, []).append(rank)
    if host.on:
        host.gpus = [gpu for gpu in frame.gpus if gpu.uuid in host.on]
    return host
