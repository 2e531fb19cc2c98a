"""CPU contention: foreign processes that compute on the CPUs for which a rank waits."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from ddpmon.diagnose.clash.cores import demand, supply
from ddpmon.diagnose.clash.cpus import count, mask_of
from ddpmon.diagnose.clash.host import Host
from ddpmon.diagnose.clash.sign import Sign, culprit
from ddpmon.diagnose.clash.view import View
from ddpmon.diagnose.wording import cores, does, named
from ddpmon.machine import Process
from ddpmon.run.limits import TAKES_PCT

_WAITS_PCT, _MORE_PCT, _CLEAR_PCT = 5.0, 5.0, 10.0
_LEAST_PCT = 5.0  # of a core, each
Taker = tuple[Process, float]


class Strangers:
    """Remembers who was named, since a wait that has lasted becomes a rank's own past."""

    def __init__(self) -> None:
        self._named: dict[int, set[int]] = {}
        self._usual = np.empty(0)

    def look(self, host: Host, view: View) -> list[Sign]:
        """Ranks whose wait is up against their own past, the others, or what they crowd themselves."""
        before = self._named.pop(host.number, set())
        if view.held_up.isdisjoint(host.frames):
            return []
        waiting = [rank for rank in host.frames if (host.figures(rank).runqueue_pct or 0) >= _WAITS_PCT]
        by_mask: dict[int, list[int]] = defaultdict(list)
        for rank in waiting:
            by_mask[mask_of(host.figures(rank).cpus)].append(rank)
        signs = []
        for mask, ranks in by_mask.items():
            takers = _takers(host, mask) if mask else []
            taken = sum(share for _, share in takers)
            if taken < TAKES_PCT:
                continue
            enough = _would_suffice(host, mask)
            up = [rank for rank in ranks if rank in before or self._is_up(host, view, rank, enough=enough)]
            if up:
                self._named.setdefault(host.number, set()).update(up)
                signs.append(_sign(host, up, takers, taken))
        return signs

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


def _sign(host: Host, ranks: list[int], takers: list[Taker], taken: float) -> Sign:
    processes, waits = [process for process, _ in takers], [host.figures(rank).runqueue_pct or 0 for rank in ranks]
    name = named(processes[0])
    several = f" and {len(takers) - 1} more" if takers[0][1] < 0.8 * taken else ""
    shown = taken if several else takers[0][1]
    mask = mask_of(host.figures(ranks[0]).cpus)
    verb = "take" if several else "takes"
    takes = f"{name}{several} {verb} {cores(shown, count(mask) or host.frame.figures.cpu_count)}"
    ranks = sorted(ranks, key=lambda rank: -(host.figures(rank).runqueue_pct or 0))
    return Sign(
        kind="cpu_contention",
        source=("host", "processes"),
        about=mask,
        ranks=tuple(ranks),
        evidence={**culprit(processes), "taken_pct": taken, "runqueue_pct": max(waits)},
        summary=f"{takes} on {host.name}, where {does(ranks, 'wait')} for a CPU {max(waits):.0f} % of the time",
        because=f"CPU contention: {takes}",
        advice=f"stop or move pid {processes[0].pid}, or give the ranks their own cores (taskset, numactl, cpuset)",
    )
