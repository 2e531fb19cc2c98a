"""CPUs: too many threads and workers of the ranks, too few CPUs, a quota, the wrong NUMA node."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache

from ddpmon.diagnose.alert import Measures
from ddpmon.diagnose.contention.host_state import Host, RunContext
from ddpmon.diagnose.contention.symptom import Symptom
from ddpmon.diagnose.contention_policy import CPU

MOST_CPUS = 8192  # Linux on x86-64 has no more (CONFIG_NR_CPUS); it bounds the masks that a frame can ask for
_PART = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?$")
Crowds = tuple[tuple[int, tuple[int, ...]], ...]


class CpuPinnedMeasures(Measures, frozen=True):
    """More ranks are pinned to some CPUs than these are, where the host has more.

    Attributes:
        affinity: the CPUs that the first of these ranks may run on, as the kernel lists them: "0-3,8".
        cpus: how many CPUs they share.
        host_cpus: how many the host has.
    """

    affinity: str
    cpus: int
    host_cpus: int


class CpuThrottledMeasures(Measures, frozen=True):
    """A CPU quota stops ranks.

    Attributes:
        throttled_pct: the percent of the time that it stops the rank which it stops longest.
        quota_cpus: the CPUs' worth of time that it allows, None where that is unknown.
    """

    throttled_pct: float
    quota_cpus: float | None


class CpuOversubscribedMeasures(Measures, frozen=True):
    """More threads and workers compute than there are usable CPUs.

    Attributes:
        threads: threads that compute.
        workers: processes at work below the ranks.
        usable_cpus: CPUs' worth of time that the ranks may use together.
        are_loaders: all of these processes are known to be DataLoader workers.
    """

    threads: int
    workers: int
    usable_cpus: float
    are_loaders: bool


class NumaMeasures(Measures, frozen=True):
    """Ranks may only run on another NUMA node than that of their GPU.

    Attributes:
        numa_node: the node of the first one's GPU.
        affinity: the CPUs that the first one may run on, as the kernel lists them.
    """

    numa_node: int
    affinity: str


@lru_cache(maxsize=4096)
def mask_of(cpus: str | None) -> int:
    """The bits of a list of CPUs; 0 where it is unknown or makes no sense."""
    mask = 0
    for part in (cpus or "").split(","):
        found = _PART.match(part.strip())
        if found is None:
            return 0
        first, last = int(found[1]), min(int(found[2] or found[1]), MOST_CPUS)
        mask |= ((1 << max(0, last - first + 1)) - 1) << first if first < MOST_CPUS else 0
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


def cpu_symptoms(host: Host, context: RunContext) -> list[Symptom]:
    """All that is wrong with the CPUs, except foreign processes."""
    crowded = crowds(host.affinities)
    symptoms = _pinned(host, crowded) if crowded else []
    if not context.held_up.isdisjoint(host.states):
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
        symptoms.append(
            Symptom(
                kind="cpu_pinned",
                about=mask,
                ranks=tuple(here),
                measures=CpuPinnedMeasures(host.figures(here[0]).cpus or "", room, everywhere),
            )
        )
    return symptoms


def _throttled(host: Host) -> list[Symptom]:
    by_quota: dict[float | None, list[int]] = defaultdict(list)
    for rank in host.states:
        figures = host.figures(rank)
        if (figures.throttled_pct or 0) >= CPU.throttled_pct:
            by_quota[figures.quota_cpus].append(rank)
    symptoms = []
    for quota, ranks in by_quota.items():
        share = max(host.figures(rank).throttled_pct or 0 for rank in ranks)
        symptoms.append(
            Symptom(
                kind="cpu_throttled",
                about=quota,
                ranks=tuple(ranks),
                measures=CpuThrottledMeasures(share, quota or None),
            )
        )
    return symptoms


def _oversubscribed(host: Host) -> list[Symptom]:
    """More threads and processes than CPUs, group by group of equal affinity, where they do wait."""
    groups: dict[int, list[int]] = defaultdict(list)
    for rank in host.states:
        groups[mask_of(host.cpus(rank))].append(rank)
    symptoms = []
    for mask, ranks in groups.items():
        wanted, usable = demand(host, ranks), supply(host, ranks, mask)
        waiting = [rank for rank in ranks if _waits(host, rank)]
        if wanted is None or not 0 < usable < wanted or len(waiting) < CPU.crowd_share * len(ranks):
            continue
        threads = sum(host.figures(rank).compute_threads or 1 for rank in ranks)
        are_loaders = all(host.workers(rank) == (host.figures(rank).workers or 0, True) for rank in ranks)
        symptoms.append(
            Symptom(
                kind="cpu_oversubscribed",
                about=mask,
                ranks=tuple(ranks),
                measures=CpuOversubscribedMeasures(threads, wanted - threads, usable, are_loaders),
            )
        )
    return symptoms


def _waits(host: Host, rank: int) -> bool:
    figures = host.figures(rank)
    return (figures.runqueue_pct or 0) >= CPU.wait_pct or (figures.runqueue_all_pct or 0) >= CPU.any_wait_pct


def _far_from_gpu(host: Host) -> list[Symptom]:
    """Ranks that may only run on another NUMA node than their GPU's."""
    nodes, on, far = host.frame.figures.numa, host.on, {}
    for gpu in host.gpus:
        node = gpu.numa_node
        if node is not None and 0 <= node < len(nodes):
            for rank in on[gpu.uuid]:
                if is_apart(host.cpus(rank), nodes[node]):
                    far[rank] = node
    if not far:
        return []
    ranks = sorted(far)
    return [
        Symptom(
            kind="numa_misaffinity",
            about=None,
            ranks=tuple(ranks),
            measures=NumaMeasures(far[ranks[0]], host.figures(ranks[0]).cpus or ""),
        )
    ]
