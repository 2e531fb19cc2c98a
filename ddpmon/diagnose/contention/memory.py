"""Memory that runs out: of the host, of a cgroup, by a rank that grows; and shared memory."""

from __future__ import annotations

from collections import defaultdict

from ddpmon.diagnose.contention.host_state import Host, View
from ddpmon.diagnose.contention.symptom import Evidence, Symptom, culprit
from ddpmon.diagnose.finding import Severity
from ddpmon.diagnose.wording import format_ranks, named
from ddpmon.format import age, size
from ddpmon.machine import Disk, HostProcess
from ddpmon.run.limits import FULL, SHM, SWAP_IN_S, is_low, memory_stall

_BRIM = 0.98
_IMMINENT_S = 60.0
_SHM_BRIM = 0.02
_DOCKER = 64 << 20
_ADVICE = "use fewer DataLoader workers, smaller caches or a larger limit; then find out what grows"


def memory(host: Host, view: View) -> list[Symptom]:
    """All of it."""
    if not host.frames:
        return []
    symptoms = _of_host(host)
    if not view.tight.isdisjoint(host.frames):
        symptoms += _of_cgroups(host)
    if view.leaks:
        symptoms += _growing(host, view)
    for disk in host.frame.figures.disks:
        if disk.path == SHM:
            symptoms += _shared(host, disk)
    return symptoms


def _near(used: int | None, total: int | None) -> Severity | None:
    """How bad it is that so much is used; None while it is not, or unknown."""
    if used is None or not total or used < FULL * total:
        return None
    return "critical" if used >= _BRIM * total else "warning"


def _of_host(host: Host) -> list[Symptom]:
    figures = host.frame.figures
    threat, said, evidence = _near(figures.memory_used, figures.memory_total), [], dict[str, float | int | str]()
    if threat and figures.memory_used and figures.memory_total:
        said.append(f"{100 * figures.memory_used / figures.memory_total:.0f} % of its memory is in use")
        evidence |= {"memory_used": figures.memory_used, "memory_total": figures.memory_total}
    if (share := memory_stall(figures.pressure)) is not None:
        said.append(f"tasks wait for memory {share:.0f} % of the time")
        evidence["pressure_pct"] = share
    if (figures.swap_in_bytes_s or 0) >= SWAP_IN_S:
        said.append(f"{size(figures.swap_in_bytes_s or 0)}/s are read back from swap")
        evidence["swap_in_bytes_s"] = figures.swap_in_bytes_s or 0
    if not said:
        return []
    words, greedy = " and ".join(said), _greediest(host)
    whose = f"; {named(greedy.process)} holds {size(greedy.rss_bytes or 0)}" if greedy else ""
    return [
        Symptom(
            kind="memory_pressure",
            about="host",
            source=("host", "host"),
            ranks=host.ranks,
            threat=threat or "info",
            evidence={**evidence, **(culprit([greedy.process]) if greedy else {})},
            summary=f"{host.name} is short of memory: {words}{whose}",
            because=f"memory pressure: {words}{whose}",
            advice=_ADVICE,
        )
    ]


def _greediest(host: Host) -> HostProcess | None:
    """The foreign process with the most memory, if it holds a tenth of the host's."""
    figures = host.frame.figures
    found = max(figures.processes, key=lambda each: (not host.is_ours(each.process), each.rss_bytes or 0), default=None)
    if found is None or host.is_ours(found.process) or (found.rss_bytes or 0) < 0.1 * (figures.memory_total or 1 << 62):
        return None
    return found


def _of_cgroups(host: Host) -> list[Symptom]:
    groups: dict[int, list[int]] = defaultdict(list)
    for rank in host.frames:
        figures = host.figures(rank)
        if figures.oom_kills or _near(figures.memory_used, figures.memory_limit):
            groups[figures.memory_limit or 0].append(rank)
    return [_cgroup(host, limit, ranks) for limit, ranks in groups.items()]


def _cgroup(host: Host, limit: int, ranks: list[int]) -> Symptom:
    used = max(host.figures(rank).memory_used or 0 for rank in ranks)
    kills = max(host.figures(rank).oom_kills or 0 for rank in ranks)
    near = _near(used, limit)
    said = [f"{size(used)} of the {size(limit)} that the cgroup allows are in use"] if near else []
    said += [f"{kills:,} process{'es were' if kills > 1 else ' was'} killed for lack of memory"] if kills else []
    evidence: Evidence = {"memory_used": used, "memory_limit": limit, "oom_kills": kills}
    words = " and ".join(said)
    return Symptom(
        kind="memory_pressure",
        about=("cgroup", limit),
        ranks=tuple(ranks),
        threat=near or "warning",
        looks=1 if kills else 3,
        evidence=evidence,
        summary=f"{format_ranks(ranks)} ({host.name}): {words}",
        because=f"memory pressure: {words}",
        advice=_ADVICE,
    )


def _growing(host: Host, view: View) -> list[Symptom]:
    symptoms = []
    for rank in host.frames:
        leak = view.leaks.get(rank)
        if leak is None:
            continue
        said = f"grows by {size(leak.bytes_s)}/s, so the memory is full in {age(leak.left_s)}"
        symptoms.append(
            Symptom(
                kind="memory_pressure",
                about=("growth", rank),
                ranks=(rank,),
                looks=1,
                threat="critical" if leak.left_s <= _IMMINENT_S else "warning",
                evidence={
                    "growth_bytes_s": leak.bytes_s,
                    "left_s": leak.left_s,
                    "rss_bytes": host.figures(rank).rss_bytes or 0,
                    "pid": host.frames[rank].pid,
                },
                summary=f"rank {rank} ({host.name}) {said}",
                because=f"memory pressure: it {said}",
                advice="find out what this rank keeps: losses with their graphs, caches, copies in DataLoader workers",
            )
        )
    return symptoms


def _shared(host: Host, disk: Disk) -> list[Symptom]:
    """Shared memory nearly full; or as small as Docker makes it, with DataLoader workers that pass batches in it."""
    if not disk.total or disk.free is None:
        return []
    little = is_low(disk)
    if not little and disk.total > _DOCKER:
        return []
    loading = [host.workers(rank) for rank in host.frames]
    workers = sum(count for count, _ in loading)
    if not little and not workers:
        return []
    said = f"{size(disk.free)} of {size(disk.total)} are free in {SHM}"
    who_may = "DataLoader workers" if all(told for _, told in loading) else "child processes of its ranks may"
    with_workers = f", and {workers} {who_may} pass batches through it" if workers else ""
    return [
        Symptom(
            kind="shm_low",
            source=("disk", disk.path),
            about=None,
            ranks=host.ranks,
            summary=f"{said} on {host.name}{with_workers}",
            because=f"low shared memory: {said}",
            evidence={"free": disk.free, "total": disk.total, "workers": workers},
            threat="critical" if workers and disk.free < _SHM_BRIM * disk.total else "warning",
            advice="the run ends with a bus error when it is full: enlarge it (docker run --shm-size, a Kubernetes "
            "emptyDir in memory), use fewer workers, or remove the files of dead processes",
        )
    ]
