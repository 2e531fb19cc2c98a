"""Foreign processes that take the CPUs of ranks which wait for one."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from msgspec import Struct

from ddpmon.diagnose.contention.cpu import MOST_CPUS, count, demand, mask_of, supply
from ddpmon.diagnose.contention.host_state import Host, RunContext
from ddpmon.diagnose.contention.symptom import CulpritMeasures, Symptom, culprits
from ddpmon.diagnose.contention_policy import CPU
from ddpmon.machine import Process
from ddpmon.run.limits import TAKES_PCT


class Taker(Struct, frozen=True):
    """A foreign process, what it takes in percent of a core, and in how many readings in a row it was busy."""

    process: Process
    share: float
    reads: int


class CpuContentionMeasures(CulpritMeasures, frozen=True):
    """Foreign processes take the CPUs of ranks which wait for one.

    Attributes:
        taken_pct: what they take of these CPUs together, in percent of one core.
        first_pct: what the first of them takes, in percent of one core.
        runqueue_pct: the percent of the time that the rank which waits longest waits for a CPU.
        cpus: how many CPUs these are.
    """

    taken_pct: float
    first_pct: float
    runqueue_pct: float
    cpus: int


class ForeignProcesses:
    """Remembers who was named, since a wait that has lasted becomes a rank's own past."""

    def __init__(self) -> None:
        self._named: dict[int, set[int]] = {}
        self._usual = np.empty(0)

    def look(self, host: Host, context: RunContext) -> list[Symptom]:
        """Ranks whose wait is up against their own past, the others, or what they crowd themselves."""
        before = self._named.pop(host.number, set())
        if context.held_up.isdisjoint(host.states):
            return []
        waiting = [rank for rank in host.states if (host.figures(rank).runqueue_pct or 0) >= CPU.wait_pct]
        by_mask: dict[int, list[int]] = defaultdict(list)
        for rank in waiting:
            by_mask[mask_of(host.figures(rank).cpus)].append(rank)
        symptoms = []
        for mask, ranks in by_mask.items():
            takers = _takers(host, mask) if mask else []
            taken = sum(taker.share for taker in takers)
            if taken < TAKES_PCT:
                continue
            enough = _would_suffice(host, mask)
            up = [rank for rank in ranks if rank in before or self._is_up(host, context, rank, enough=enough)]
            if up:
                self._named.setdefault(host.number, set()).update(up)
                symptoms.append(_symptom(host, up, takers, taken))
        return symptoms

    def learn(self, context: RunContext) -> None:
        """Update the usual wait of each rank from the last minutes."""
        if context.figures.at_long:
            self._usual = context.figures.usual("queue")

    def _is_up(self, host: Host, context: RunContext, rank: int, *, enough: bool) -> bool:
        waits = host.figures(rank).runqueue_pct or 0
        usual = self._usual[rank] if rank < len(self._usual) else np.nan
        least = CPU.raised_points
        if waits >= context.peers_wait[rank] + least or waits >= usual + least:  # NaN is neither
            return True
        return waits >= CPU.clear_wait_pct and enough


def _would_suffice(host: Host, mask: int) -> bool:
    """Whether the ranks that may run on these CPUs are known not to crowd them by themselves."""
    together = [rank for rank in host.states if mask_of(host.figures(rank).cpus) & mask]
    wanted = demand(host, together)
    return wanted is not None and wanted <= supply(host, together, mask)


def _takers(host: Host, mask: int) -> list[Taker]:
    """Foreign processes and what they take of these CPUs, in percent of a core, the largest first.

    One that may run elsewhere, too, is expected to take its part here.
    """
    everywhere = (1 << min(host.frame.figures.cpu_count or 0, MOST_CPUS)) - 1
    found = []
    for each in host.frame.figures.processes:
        theirs = mask_of(each.cpus) or everywhere
        if (each.cpu_pct or 0) < CPU.least_taken_pct or not theirs or host.is_ours(each.process):
            continue
        share = (each.cpu_pct or 0) * count(theirs & mask) / count(theirs)
        if share >= CPU.least_taken_pct:
            found.append(Taker(each.process, share, each.reads or 1))
    return sorted(found, key=lambda taker: -taker.share)


def _lasted(takers: list[Taker]) -> int:
    """In how many readings in a row those were busy who take enough together."""
    together = 0.0
    for taker in sorted(takers, key=lambda taker: -taker.reads):
        together += taker.share
        if together >= TAKES_PCT:
            return taker.reads
    return 1


def _symptom(host: Host, ranks: list[int], takers: list[Taker], taken: float) -> Symptom:
    mask = mask_of(host.figures(ranks[0]).cpus)
    ranks = sorted(ranks, key=lambda rank: -(host.figures(rank).runqueue_pct or 0))
    return Symptom(
        kind="cpu_contention",
        source=("host", "processes"),
        about=mask,
        ranks=tuple(ranks),
        measures=CpuContentionMeasures(
            culprits=culprits([taker.process for taker in takers]),
            taken_pct=taken,
            first_pct=takers[0].share,
            runqueue_pct=host.figures(ranks[0]).runqueue_pct or 0,
            cpus=count(mask),
        ),
        lasted=_lasted(takers),
    )
