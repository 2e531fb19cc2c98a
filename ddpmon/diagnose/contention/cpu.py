"""CPU contention: too many of our own threads, too few CPUs, a quota, the wrong NUMA node, foreign processes."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from ddpmon.diagnose.contention.host_state import Host, View
from ddpmon.diagnose.contention.symptom import Symptom, culprit
from ddpmon.diagnose.wording import clean, cores, does, format_ranks, named
from ddpmon.machine import Process
from ddpmon.run.limits import TAKES_PCT

_MOST = 8192
_PART = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?$")
Crowds = tuple[tuple[int, tuple[int, ...]], ...]
_THROTTLED_PCT = 5.0
_WAITS_PCT, _ANY_WAITS_PCT = 5.0, 10.0
_MORE_PCT, _CLEAR_PCT = 5.0, 10.0
_LEAST_PCT = 5.0  # of a core, each
Taker = tuple[Process, float]


@lru_cache(maxsize=4096)
def mask_of(cpus: str | None) -> int:
    """The bits of a list of CPUs; 0 where it is unknown or makes no sense."""
    mask = 0
    for part in (cpus or "").split(","):
        found = _PART.match(part.strip())
        if found is None:
            return 0
        first, last = int(found[1]), min(int(found[2] or found[1]), _MOST)
        mask |= ((1 << max(0, last - first + 1)) - 1) << first if first < _MOST else 0
    return mask


def count(mask: int) -> int:
    """How many CPUs it holds."""
    return bin(mask).count("1")


@lru_cache(maxsize=4096)
def crowds(lists: tuple[str | None, ...]) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Those whose CPUs overlap, together, where they are more than these: (their CPUs as one mask, their places)."""
    groups: list[tuple[int, tuple[int, ...]]] = []
    for place, mask in enumerate(map(mask_of, lists)):
        if not mask:
            continue
        joined, apart = mask, list[tuple[int, tuple[int, ...]]]()
        places: tuple[int, ...] = (place,)
        for other, members in groups:
            if other & mask:
                joined, places = joined | other, (*members, *places)
            else:
                apart.append((other, members))
        groups = [*apart, (joined, tuple(sorted(places)))]
    return tuple((mask, places) for mask, places in groups if len(places) > count(mask))


@lru_cache(maxsize=4096)
def is_apart(cpus: str | None, near: str) -> bool:
    """Whether both are known and have no CPU in common."""
    return bool(mask_of(cpus) and mask_of(near)) and not mask_of(cpus) & mask_of(near)


def cpu_symptoms(host: Host, view: View) -> list[Symptom]:
    """All that is wrong with the CPUs, except foreign processes."""
    crowded = crowds(tuple([figures.cpus for figures in host.processes.values()]))
    symptoms = _pinned(host, crowded) if crowded else []
    if not view.held_up.isdisjoint(host.frames):
        symptoms += _throttled(host)
        symptoms += _oversubscribed(host)
    if host.gpus and len(host.frame.figures.numa) > 1:
        symptoms += _far_from_gpu(host)
    return symptoms


def demand(host: Host, ranks: Sequence[int]) -> int | None:
    """Threads that compute and processes at work below these ranks; None if nothing is known of them."""
    figures = [host.figures(rank) for rank in ranks]
    if all(each.compute_threads is None and each.workers is None for each in figures):
        return None
    return sum((each.compute_threads or 1) + (each.workers or 0) for each in figures)


def supply(host: Host, ranks: Sequence[int], mask: int) -> float:
    """CPUs that these ranks may use together: of their affinity, at most their cgroups' quotas; 0 where unknown."""
    cpus = count(mask) or host.frame.figures.cpu_count or 0
    if not any(host.figures(rank).quotas for rank in ranks):
        return min(cpus, math.fsum(host.figures(rank).quota_cpus or cpus for rank in ranks)) if ranks else cpus
    members, allowed = defaultdict[str, set[int]](set), dict[str, float]()
    for rank in ranks:
        figures = host.figures(rank)
        for group, quota in (figures.quotas or {f"of rank {rank}": figures.quota_cpus or cpus}).items():
            members[group].add(rank)
            allowed[group] = min(quota, allowed.get(group, quota))
    return min(cpus, _shared(members, allowed))


def _shared(members: Mapping[str, set[int]], allowed: Mapping[str, float]) -> float:
    """What cgroups allow together; one that lies in another counts towards what that allows."""
    parts: list[tuple[set[int], float]] = []
    for group in sorted(members, key=lambda group: (len(members[group]), -allowed[group])):
        ranks = members[group]
        inside = math.fsum(cpus for part, cpus in parts if part <= ranks)
        outside = [(part, cpus) for part, cpus in parts if not part <= ranks]
        free = bool(ranks - set().union(*(part for part, _ in parts)))
        parts = [*outside, (ranks, allowed[group] if free or not inside else min(allowed[group], inside))]
    return math.fsum(cpus for _, cpus in parts)


def _pinned(host: Host, crowded: Crowds) -> list[Symptom]:
    """Fewer CPUs than ranks, where the host has more."""
    symptoms, everywhere, ranks = [], host.frame.figures.cpu_count or 0, host.ranks
    for mask, places in crowded:
        here, room = [ranks[place] for place in places], count(mask)
        if room >= everywhere:
            continue
        named = "CPU " + clean(host.figures(here[0]).cpus or "", 40) if room == 1 else f"{room} CPUs"
        said = f"{does(here, 'share')} {named}, although {host.name} has {everywhere}"
        symptoms.append(
            Symptom(
                kind="cpu_pinned",
                about=mask,
                ranks=tuple(here),
                evidence={"cpus": room, "host_cpus": everywhere},
                summary=said,
                because=f"shared CPU cores: {said}",
                advice="give every rank its own cores with the launcher (torchrun --numa-binding, srun --cpu-bind), "
                "numactl, taskset or the container's cpuset",
            )
        )
    return symptoms


def _throttled(host: Host) -> list[Symptom]:
    by_quota: dict[float | None, list[int]] = defaultdict(list)
    for rank in host.frames:
        figures = host.figures(rank)
        if (figures.throttled_pct or 0) >= _THROTTLED_PCT:
            by_quota[figures.quota_cpus].append(rank)
    symptoms = []
    for quota, ranks in by_quota.items():
        share = max(host.figures(rank).throttled_pct or 0 for rank in ranks)
        limit = f"a limit of {quota:.3g} CPUs" if quota else "the limit of its cgroup"
        said = f"{limit} throttles {'it' if len(ranks) == 1 else 'them'} for {min(share, 100):.0f} % of the time"
        symptoms.append(
            Symptom(
                kind="cpu_throttled",
                about=quota,
                ranks=tuple(ranks),
                summary=f"{format_ranks(ranks)} ({host.name}): {said}",
                because=f"a CPU quota: {said}",
                evidence={"throttled_pct": share, **({"quota_cpus": quota} if quota else {})},
                advice="raise the CPU limit of the container or cgroup, or use fewer threads and DataLoader workers",
            )
        )
    return symptoms


def _oversubscribed(host: Host) -> list[Symptom]:
    """More threads and processes than CPUs, group by group of equal affinity, where they do wait."""
    groups: dict[int, list[int]] = defaultdict(list)
    for rank, figures in host.processes.items():
        groups[mask_of(figures.cpus)].append(rank)
    symptoms = []
    for mask, ranks in groups.items():
        wanted, usable = demand(host, ranks), supply(host, ranks, mask)
        waiting = [rank for rank in ranks if _waits(host, rank)]
        if wanted is None or not 0 < usable < wanted or 2 * len(waiting) < len(ranks):
            continue
        threads = sum(host.figures(rank).compute_threads or 1 for rank in ranks)
        load = all(host.workers(rank) == (host.figures(rank).workers or 0, True) for rank in ranks)
        below = f"{wanted - threads} {'DataLoader workers' if load else 'child processes'}"
        said = f"{threads} compute threads and {below} on {usable:.3g} usable CPUs"
        symptoms.append(
            Symptom(
                kind="cpu_oversubscribed",
                about=mask,
                ranks=tuple(ranks),
                evidence={"threads": threads, "workers": wanted - threads, "usable_cpus": usable},
                summary=f"{format_ranks(ranks)} ({host.name}) together run {said}",
                because=f"CPU oversubscription: {said}",
                advice="use fewer threads a rank (OMP_NUM_THREADS, torch.set_num_threads) or fewer DataLoader workers",
            )
        )
    return symptoms


def _waits(host: Host, rank: int) -> bool:
    figures = host.figures(rank)
    return (figures.runqueue_pct or 0) >= _WAITS_PCT or (figures.runqueue_all_pct or 0) >= _ANY_WAITS_PCT


def _far_from_gpu(host: Host) -> list[Symptom]:
    """Ranks that may only run on another NUMA node than their GPU's."""
    nodes, on, processes, far = host.frame.figures.numa, host.on, host.processes, {}
    for gpu in host.gpus:
        node = gpu.numa_node
        if node is not None and 0 <= node < len(nodes):
            for rank in on[gpu.uuid]:
                if is_apart(processes[rank].cpus, nodes[node]):
                    far[rank] = node
    if not far:
        return []
    ranks = sorted(far)
    cpus = clean(host.figures(ranks[0]).cpus or "", 40)
    theirs = "its GPU is" if len(ranks) == 1 else "their GPUs are"
    return [
        Symptom(
            kind="numa_misaffinity",
            about=None,
            ranks=tuple(ranks),
            evidence={"numa_node": far[ranks[0]], "cpus": cpus},
            summary=f"{format_ranks(ranks)} ({host.name}) may only run on CPUs {cpus}, but {theirs} on NUMA node "
            f"{far[ranks[0]]}",
            because="NUMA misplacement: its CPUs are on another NUMA node than its GPU",
            advice="bind every rank to the NUMA node of its GPU: torchrun --numa-binding, or numactl --cpunodebind",
        )
    ]


class ForeignProcesses:
    """Remembers who was named, since a wait that has lasted becomes a rank's own past."""

    def __init__(self) -> None:
        self._named: dict[int, set[int]] = {}
        self._usual = np.empty(0)

    def look(self, host: Host, view: View) -> list[Symptom]:
        """Ranks whose wait is up against their own past, the others, or what they crowd themselves."""
        before = self._named.pop(host.number, set())
        if view.held_up.isdisjoint(host.frames):
            return []
        waiting = [rank for rank in host.frames if (host.figures(rank).runqueue_pct or 0) >= _WAITS_PCT]
        by_mask: dict[int, list[int]] = defaultdict(list)
        for rank in waiting:
            by_mask[mask_of(host.figures(rank).cpus)].append(rank)
        symptoms = []
        for mask, ranks in by_mask.items():
            takers = _takers(host, mask) if mask else []
            taken = sum(share for _, share in takers)
            if taken < TAKES_PCT:
                continue
            enough = _would_suffice(host, mask)
            up = [rank for rank in ranks if rank in before or self._is_up(host, view, rank, enough=enough)]
            if up:
                self._named.setdefault(host.number, set()).update(up)
                symptoms.append(_symptom(host, up, takers, taken))
        return symptoms

    def learn(self, view: View) -> None:
        """Update the usual wait of each rank from the last minutes."""
        if view.figures.at_long:
            self._usual = view.figures.usual("queue")

    def _is_up(self, host: Host, view: View, rank: int, *, enough: bool) -> bool:
        waits = host.figures(rank).runqueue_pct or 0
        usual = self._usual[rank] if rank < len(self._usual) else np.nan
        if waits >= view.peers_wait[rank] + _MORE_PCT or waits >= usual + _MORE_PCT:  # NaN is neither
            return True
        return waits >= _CLEAR_PCT and enough


def _would_suffice(host: Host, mask: int) -> bool:
    """Whether the ranks that may run on these CPUs are known not to crowd them by themselves."""
    together = [rank for rank in host.frames if mask_of(host.figures(rank).cpus) & mask]
    wanted = demand(host, together)
    return wanted is not None and wanted <= supply(host, together, mask)


def _takers(host: Host, mask: int) -> list[Taker]:
    """Foreign processes and what they take of these CPUs, in percent of a core, the largest first.

    One that may run elsewhere, too, is expected to take its part here.
    """
    everywhere = (1 << min(host.frame.figures.cpu_count or 0, 8192)) - 1
    found = []
    for each in host.frame.figures.processes:
        theirs = mask_of(each.cpus) or everywhere
        if (each.cpu_pct or 0) < _LEAST_PCT or not theirs or host.is_ours(each.process):
            continue
        share = (each.cpu_pct or 0) * count(theirs & mask) / count(theirs)
        if share >= _LEAST_PCT:
            found.append((each.process, share))
    return sorted(found, key=lambda taker: -taker[1])


def _symptom(host: Host, ranks: list[int], takers: list[Taker], taken: float) -> Symptom:
    processes, waits = [process for process, _ in takers], [host.figures(rank).runqueue_pct or 0 for rank in ranks]
    name = named(processes[0])
    several = f" and {len(takers) - 1} more" if takers[0][1] < 0.8 * taken else ""
    shown = taken if several else takers[0][1]
    mask = mask_of(host.figures(ranks[0]).cpus)
    verb = "take" if several else "takes"
    takes = f"{name}{several} {verb} {cores(shown, count(mask) or host.frame.figures.cpu_count)}"
    ranks = sorted(ranks, key=lambda rank: -(host.figures(rank).runqueue_pct or 0))
    return Symptom(
        kind="cpu_contention",
        source=("host", "processes"),
        about=mask,
        ranks=tuple(ranks),
        evidence={**culprit(processes), "taken_pct": taken, "runqueue_pct": max(waits)},
        summary=f"{takes} on {host.name}, where {does(ranks, 'wait')} for a CPU {max(waits):.0f} % of the time",
        because=f"CPU contention: {takes}",
        advice=f"stop or move pid {processes[0].pid}, or give the ranks their own cores (taskset, numactl, cpuset)",
    )
