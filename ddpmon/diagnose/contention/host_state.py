"""One host as the contention rules see it: its newest frame, the ranks on it, and what the whole run is like."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from typing import NamedTuple

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
_board_of = attrgetter("board")


class Host(Struct):
    """What is known of one host now.

    Attributes:
        states: the ranks on it that run and are heard of, by rank.
        pids: process number -> rank, of all ranks ever heard of on it.
        on: UUID of a GPU (or MIG instance) -> the ranks that train on it.
        owners: UUID of a GPU with one rank on it -> the number of that rank's process.
        gpus: the GPUs with ranks on them.
    """

    number: int
    frame: NodeFrame
    states: dict[int, RankState]
    pids: dict[int, int]
    on: dict[str, list[int]]
    owners: dict[str, int]
    gpus: list[GpuFigures]
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

    @property
    def affinities(self) -> tuple[str | None, ...]:
        """What `cpus` says of each of its ranks, in their order."""
        latest = next((state.latest for state in self.states.values()), None)
        known = [] if latest is None else [latest.process[rank] for rank in self.states]
        return tuple([None if process is None else process.cpus for process in known])

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


def alive_at(run: Run) -> list[float]:
    """[world] when each rank that runs was heard of last; NaN for one that does not run, or never was."""
    latest = run.latest
    found: list[float] = np.where(latest.running | latest.stalled, latest.heard_at, np.nan).tolist()
    return found


class Presence(NamedTuple):
    """The ranks on one host, in the terms of `Host`."""

    pids: dict[int, int]
    states: dict[int, RankState]
    on: dict[str, list[int]]
    owners: dict[str, int]


class Members:
    """Which ranks are on which host; found again when ranks come, or come back.

    Attributes:
        node_of: [world] the number of each rank's host, -1 where that is unknown.
    """

    def __init__(self) -> None:
        self._counted = (-1, -1, -1)
        self._on: dict[int, list[tuple[int, int, str | None]]] = {}  # node -> rank, pid and GPU of each of its ranks
        self._all: dict[int, Presence] = {}  # node -> what it is while all of its ranks are there, as they mostly are
        self.node_of: NDArray[np.int64] = np.empty(0, np.int64)

    def gather(self, run: Run) -> None:
        """See whether they have changed."""
        latest = run.latest
        counted = (latest.processes_seen, len(run.states), len(run.nodes))
        if counted == self._counted:
            return
        self._counted = counted
        self.node_of = np.full(len(run.ranks), -1)
        for node in run.nodes:
            ranks = run.ranks_on(node)
            there = [(rank, latest.pid[rank], latest.gpu_uuid[rank]) for rank in ranks]
            self.node_of[[*ranks]] = node
            if self._on.get(node) != there:
                self._on[node], self._all[node] = there, _presence(run, there, run.states, None)

    def first(self, node: int) -> int | None:
        """One of the ranks on a host, None where there is none."""
        there = self._on.get(node)
        return there[0][0] if there else None

    def look(self, number: int, frame: NodeFrame, heard_at: float, run: Run, alive: Sequence[float]) -> Host:
        """The host with those of its ranks that are there, as of `heard_at`; `alive` is that of `alive_at`."""
        here, oldest = self._all[number], heard_at - LOST_S
        there = {rank for rank in here.states if alive[rank] >= oldest}
        has_instances = any(map(_board_of, frame.gpus))
        if has_instances or len(there) < len(here.states):
            here = _presence(run, self._on[number], there, Instances(frame.gpus) if has_instances else None)
        gpus = [gpu for gpu in frame.gpus if gpu.uuid in here.on] if here.on else []
        return Host(number, frame, here.states, here.pids, here.on, here.owners, gpus)


def _presence(
    run: Run, ranks: Sequence[tuple[int, int, str | None]], there: Container[int], instances: Instances | None
) -> Presence:
    """What is known of these ranks of one host, those `there` among them.

    Args:
        run: theirs.
        ranks: number, pid and GPU of each.
        there: the numbers of those that run and are heard of.
        instances: the MIG instances of the host; None where it has none.
    """
    found = Presence({pid: rank for rank, pid, _ in ranks}, {}, {}, {})
    for rank, pid, name in ranks:
        if rank in there:
            found.states[rank] = run.states[rank]
            if name is not None:
                found.on.setdefault(name if instances is None else instances.of(name, pid), []).append(rank)
    pids = {rank: pid for pid, rank in found.pids.items()}
    alone = {name: here[0] for name, here in found.on.items() if len(here) == 1}
    found.owners.update({name: pids[rank] for name, rank in alone.items() if rank in pids})
    return found


class RunContext(Struct, dict=True):
    """The run at one look.

    Attributes:
        late: ranks named late, at a cost of 5 % of the job's time or more -> in which phase.
        late_since: the same ranks -> the step from which on they are late, or an earlier one that is not on record.
        slower: whether the whole job has become slower, and in which phase, None if not ("" in no one phase).
        leaks: ranks whose memory grows steadily towards the limit.
    """

    run: Run
    figures: ProcessHistory
    leaks: Mapping[int, Leak] = field(default_factory=dict)
    late: Mapping[int, str] = field(default_factory=dict)
    late_since: Mapping[int, int] = field(default_factory=dict)
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
