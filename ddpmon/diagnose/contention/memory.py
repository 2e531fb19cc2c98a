"""Memory that runs out: of the host, of a cgroup, by a rank that grows; and shared memory."""

from __future__ import annotations

from collections import defaultdict

from ddpmon.diagnose.alert import Measures, Severity
from ddpmon.diagnose.contention.host_state import Host, RunContext
from ddpmon.diagnose.contention.symptom import Culprit, CulpritMeasures, Symptom, culprits
from ddpmon.diagnose.contention_policy import CONTENTION, GROWTH, MEMORY
from ddpmon.machine import Disk, HostProcess
from ddpmon.run.limits import FULL, SHM, SWAP_IN_S, is_low, memory_stall


class HostMemoryMeasures(CulpritMeasures, frozen=True):
    """A host is short of memory. Its culprit is a foreign process with much of the memory, if there is one.

    Attributes:
        held_bytes: the resident memory of that process.
        used_bytes, total_bytes: of the host's memory, None while it is not nearly full.
        pressure_pct: the percent of the time that tasks wait for memory, None while that is little.
        swap_in_bytes_s: bytes a second that are read back from swap, None while these are few.
    """

    held_bytes: int
    used_bytes: int | None
    total_bytes: int | None
    pressure_pct: float | None
    swap_in_bytes_s: float | None


class CgroupMemoryMeasures(Measures, frozen=True):
    """The memory of a cgroup is nearly full, or processes were killed for it.

    Attributes:
        used_bytes, limit_bytes: of the cgroup's memory; a limit of 0 is unknown.
        oom_kills: how many processes were killed for lack of memory.
        is_nearly_full: what is used comes near the limit.
    """

    used_bytes: int
    limit_bytes: int
    oom_kills: int
    is_nearly_full: bool


class MemoryGrowthMeasures(CulpritMeasures, frozen=True):
    """The memory of a rank, the culprit, grows steadily towards the limit.

    Attributes:
        growth_bytes_s: by how many bytes a second.
        left_s: in how many seconds the memory is full.
        rss_bytes: its resident memory.
    """

    growth_bytes_s: float
    left_s: float
    rss_bytes: int


class SharedMemoryMeasures(Measures, frozen=True):
    """Shared memory is too small or nearly full.

    Attributes:
        free_bytes, total_bytes: what is free of it, and all of it.
        workers: processes below the ranks that may pass batches through it.
        are_loaders: all of these processes are known to be DataLoader workers.
    """

    free_bytes: int
    total_bytes: int
    workers: int
    are_loaders: bool


def memory(host: Host, context: RunContext) -> list[Symptom]:
    """All of it."""
    if not host.states:
        return []
    symptoms = _of_host(host)
    if not context.tight.isdisjoint(host.states):
        symptoms += _of_cgroups(host)
    if context.leaks:
        symptoms += _growing(host, context)
    for disk in host.frame.figures.disks:
        if disk.path == SHM:
            symptoms += _shared(host, disk)
    return symptoms


def _near(used: int | None, total: int | None) -> Severity | None:
    """How bad it is that so much is used; None while it is not, or unknown."""
    if used is None or not total or used < FULL * total:
        return None
    return "critical" if used >= MEMORY.brim_share * total else "warning"


def _of_host(host: Host) -> list[Symptom]:
    figures = host.frame.figures
    threat, stall = _near(figures.memory_used, figures.memory_total), memory_stall(figures.pressure)
    swap = figures.swap_in_bytes_s or 0
    if threat is None and stall is None and swap < SWAP_IN_S:
        return []
    greedy = _greediest(host)
    return [
        Symptom(
            kind="memory_pressure",
            about="host",
            source=("host", "host"),
            ranks=host.ranks,
            threat=threat or "info",
            measures=HostMemoryMeasures(
                culprits=culprits([greedy.process]) if greedy else (),
                held_bytes=(greedy.rss_bytes or 0) if greedy else 0,
                used_bytes=figures.memory_used if threat else None,
                total_bytes=figures.memory_total if threat else None,
                pressure_pct=stall,
                swap_in_bytes_s=swap if swap >= SWAP_IN_S else None,
            ),
        )
    ]


def _greediest(host: Host) -> HostProcess | None:
    """The foreign process with the most memory, if it holds much of the host's."""
    figures = host.frame.figures
    found = max(figures.processes, key=lambda each: (not host.is_ours(each.process), each.rss_bytes or 0), default=None)
    least = MEMORY.culprit_share * (figures.memory_total or 1 << 62)  # of unknown memory nobody holds much
    if found is None or host.is_ours(found.process) or (found.rss_bytes or 0) < least:
        return None
    return found


def _of_cgroups(host: Host) -> list[Symptom]:
    groups: dict[int, list[int]] = defaultdict(list)
    for rank in host.states:
        figures = host.figures(rank)
        if figures.oom_kills or _near(figures.memory_used, figures.memory_limit):
            groups[figures.memory_limit or 0].append(rank)
    return [_cgroup(host, limit, ranks) for limit, ranks in groups.items()]


def _cgroup(host: Host, limit: int, ranks: list[int]) -> Symptom:
    used = max(host.figures(rank).memory_used or 0 for rank in ranks)
    kills = max(host.figures(rank).oom_kills or 0 for rank in ranks)
    near = _near(used, limit)
    return Symptom(
        kind="memory_pressure",
        about=("cgroup", limit),
        ranks=tuple(ranks),
        threat=near or "warning",
        consecutive=CONTENTION.sufficient_readings if kills else CONTENTION.confirming_readings,
        measures=CgroupMemoryMeasures(used, limit, kills, is_nearly_full=near is not None),
    )


def _growing(host: Host, context: RunContext) -> list[Symptom]:
    symptoms = []
    for rank in host.states:
        leak = context.leaks.get(rank)
        if leak is None:
            continue
        symptoms.append(
            Symptom(
                kind="memory_pressure",
                about=("growth", rank),
                ranks=(rank,),
                consecutive=CONTENTION.sufficient_readings,
                threat="critical" if leak.left_s <= GROWTH.imminent_s else "warning",
                measures=MemoryGrowthMeasures(
                    culprits=(Culprit(host.states[rank].latest.pid[rank]),),
                    growth_bytes_s=leak.bytes_s,
                    left_s=leak.left_s,
                    rss_bytes=host.figures(rank).rss_bytes or 0,
                ),
            )
        )
    return symptoms


def _shared(host: Host, disk: Disk) -> list[Symptom]:
    """Shared memory nearly full; or as small as Docker makes it, with DataLoader workers that pass batches in it."""
    if not disk.total or disk.free is None:
        return []
    little = is_low(disk)
    if not little and disk.total > MEMORY.shm_docker_bytes:
        return []
    loading = [host.workers(rank) for rank in host.states]
    workers = sum(count for count, _ in loading)
    if not little and not workers:
        return []
    are_loaders = all(told for _, told in loading)
    return [
        Symptom(
            kind="shm_low",
            source=("disk", disk.path),
            about=None,
            ranks=host.ranks,
            measures=SharedMemoryMeasures(disk.free, disk.total, workers, are_loaders),
            threat="critical" if workers and disk.free < MEMORY.shm_brim_share * disk.total else "warning",
        )
    ]
