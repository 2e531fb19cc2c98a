"""One host as the contention rules see it: its newest frame, the ranks on it, and what the whole run is like."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from ddpmon.diagnose.contention.process_history import Leak, ProcessHistory
from ddpmon.diagnose.contention.symptom import Source
from ddpmon.diagnose.contention_policy import CPU, GPU
from ddpmon.machine import GpuFigures, Process, ProcessFigures
from ddpmon.run.limits import FULL
from ddpmon.run.medians import others_medians
from ddpmon.run.model import LOST_S, RankState, Run
from ddpmon.run.process_roles import Instances, ProcessRoles
from ddpmon.schema import NodeFrame

_UNKNOWN = ProcessFigures()


class Host(Struct):
    """What is known of one host now.

    Attributes:
        states: the ranks on it that run and are heard of, by rank.
        pids: process number -> rank, of all ranks ever heard of on it.
        on: UUID of a GPU (or MIG instance) -> the ranks that train on it.
        gpus: the GPUs with ranks on them.
    """

    number: int
    frame: NodeFrame
    states: dict[int, RankState] = field(default_factory=dict)
    pids: dict[int, int] = field(default_factory=dict)
    on: dict[str, list[int]] = field(default_factory=dict)
    gpus: list[GpuFigures] = field(default_factory=list)
    _processes: dict[int, ProcessFigures] = field(default_factory=dict)
    _ours: ProcessRoles | None = None

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that run on it."""
        return tuple(self.states)

    def figures(self, rank: int) -> ProcessFigures:
        """The rank's own process."""
        found = self._processes.get(rank)
        if found is None:
            found = self._processes[rank] = self.states[rank].process or _UNKNOWN
        return found

    def cpus(self, rank: int) -> str | None:
        """Where the rank may run, None where unknown."""
        process = self.states[rank].latest.process[rank]  # it is no figure, so the last whole frame has it
        return None if process is None else process.cpus

    def workers(self, rank: int) -> tuple[int, bool]:
        """How many processes load for it, and whether it says so itself; else those below it may do anything."""
        loader = self.states[rank].frame.loader
        return (self.figures(rank).workers or 0, False) if loader is None else (loader.workers, True)

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
            self._ours = ProcessRoles(self.pids, self.frame.figures, self.frame.gpus)
        return self._ours.role(process) is not None


def look(number: int, frame: NodeFrame, heard_at: float, states: Iterable[tuple[int, RankState]]) -> Host:
    """The host with those of its ranks that are there, as of `heard_at`."""
    host, oldest = Host(number, frame), heard_at - LOST_S
    pids, on = host.pids, host.on
    instances = Instances(frame.gpus) if any(gpu.board for gpu in frame.gpus) else None
    for rank, state in states:
        latest = state.latest
        pid, name = latest.pid[rank], latest.gpu_uuid[rank]
        pids[pid] = rank
        if latest.heard_at[rank] >= oldest and latest.state[rank] in ("running", "stalled"):
            host.states[rank] = state
            if name is not None:
                on.setdefault(name if instances is None else instances.of(name, pid), []).append(rank)
    if host.on:
        host.gpus = [gpu for gpu in frame.gpus if gpu.uuid in host.on]
    return host


class RunContext(Struct, dict=True):
    """The run at one look.

    Attributes:
        late: ranks named late, at a cost of 5 % of the job's time or more -> in which phase.
        slower: whether the whole job has become slower, and in which phase, None if not ("" in no one phase).
        leaks: ranks whose memory grows steadily towards the limit.
    """

    run: Run
    figures: ProcessHistory
    leaks: Mapping[int, Leak] = field(default_factory=dict)
    late: Mapping[int, str] = field(default_factory=dict)
    slower: str | None = None

    @cached_property
    def held_up(self) -> set[int]:
        """The ranks that wait for a CPU, or are throttled, for more than a moment."""
        now = self.figures.now
        with np.errstate(invalid="ignore"):
            waits = (now["queue"] >= CPU.wait_pct) | (now["queue_all"] >= CPU.any_wait_pct)
            return set(np.flatnonzero(waits | (now["throttled"] >= CPU.throttled_pct)).tolist())

    @cached_property
    def tight(self) -> set[int]:
        """The ranks whose cgroup is nearly full, or has lost a process for it."""
        now = self.figures.now
        with np.errstate(invalid="ignore"):
            return set(np.flatnonzero((now["full"] >= FULL) | (now["kills"] > 0)).tolist())

    @cached_property
    def peers_wait(self) -> NDArray[np.float64]:
        """[world] what share of the time (percent) the other ranks wait for a CPU, in the middle; NaN if unknown."""
        waits = self.figures.now["queue"]
        known, found = np.flatnonzero(~np.isnan(waits)), np.full(len(waits), np.nan)
        if len(known) > 1:
            found[known] = others_medians(waits[known][:, None])[:, 0]
        return found

    @cached_property
    def peers_clock(self) -> dict[str, float]:
        """UUID -> the middle SM clock in MHz of the other GPUs of its model, of those under load."""
        models: dict[str, dict[str, float]] = {}
        mine = {gpu.uuid for gpu in self.run.gpus() if gpu is not None}
        for frame, _ in self.run.nodes.values():
            for gpu in frame.gpus:
                if gpu.sm_clock_mhz and gpu.name and gpu.uuid in mine and is_loaded(gpu):
                    models.setdefault(gpu.name, {})[gpu.uuid] = gpu.sm_clock_mhz
        found: dict[str, float] = {}
        for clocks in models.values():
            if len(clocks) > 1:
                middle = others_medians(np.array([*clocks.values()])[:, None])[:, 0]
                found |= zip(clocks, middle.tolist(), strict=True)
        return found


def is_loaded(gpu: GpuFigures, least_pct: float = GPU.loaded_pct) -> bool:
    """Whether it is known to be at work."""
    return gpu.utilization_pct is not None and gpu.utilization_pct >= least_pct
