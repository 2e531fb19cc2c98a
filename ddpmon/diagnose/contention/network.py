"""The network under a host: errors, drops and segments sent again; ports that somebody else holds."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

import numpy as np

from ddpmon.diagnose.contention.host_state import Host, View
from ddpmon.diagnose.contention.symptom import Evidence, Symptom, culprit
from ddpmon.diagnose.wording import clean, is_device_name, named, on_host
from ddpmon.lru import LruDefaultDict
from ddpmon.machine import Nic, TakenPort
from ddpmon.run.limits import RETRANSMITS
from ddpmon.run.model import Run

_SECONDS, _NAMES = 10, 64
_DROPS, _BURSTS = 100, 3  # more within the last ten frames, and in how many of them
_TIMES = 3.0  # the middle of the other hosts
Counts = tuple[int, int]


class Wires:
    """Remembers the counters of the last ten frames: they count from the start, and only growth is trouble."""

    def __init__(self) -> None:
        self._past: dict[int, LruDefaultDict[deque[Counts]]] = {}

    def look(self, host: Host, view: View) -> list[Symptom]:
        """Interfaces that lose packets, hosts that send again, and taken ports."""
        figures = host.frame.figures
        symptoms: list[Symptom] = []
        if not host.frames:
            return symptoms
        for nic in figures.nics:
            if nic.name != "lo":
                symptoms += self._losing(host, nic)
        if (figures.retransmits_per_1000 or 0) >= RETRANSMITS:
            symptoms += _sent_again(host, figures.retransmits_per_1000 or 0, view.run)
        for port in figures.ports:
            symptoms += _taken(host, port)
        return symptoms

    def _losing(self, host: Host, nic: Nic) -> list[Symptom]:
        names = self._past.get(host.number)
        if names is None:
            names = self._past[host.number] = LruDefaultDict(lambda: deque(maxlen=_SECONDS), _NAMES)
        past = names.of(nic.name)
        if nic.errors is None and nic.drops is None:
            return []
        past.append((nic.errors or 0, nic.drops or 0))
        errors, drops = past[-1][0] - past[0][0], past[-1][1] - past[0][1]
        if not _grows(past, 0) and (drops < _DROPS or not _grows(past, 1)):
            return []
        said = f"{clean(nic.name, 30)} of {host.name} had {max(errors, 0):,} errors and {max(drops, 0):,} drops"
        return [
            _symptom(host, nic.name, f"{said} within its last {len(past)} frames", {"errors": errors, "drops": drops})
        ]


def _grows(past: deque[Counts], which: int) -> bool:
    """Whether it has risen in several of the frames, not in one burst."""
    return sum(now[which] > before[which] for before, now in pairwise(past)) >= _BURSTS


def _sent_again(host: Host, rate: float, run: Run) -> list[Symptom]:
    """Far more than the other hosts do; for a single host the usual is unknown, and its ranks need no network."""
    others = [
        frame.figures.retransmits_per_1000
        for node, (frame, _) in run.nodes.items()
        if node != host.number and frame.figures.retransmits_per_1000 is not None
    ]
    if not others or rate < _TIMES * float(np.median(others)):
        return []
    usual = float(np.median(others))
    said = f"{host.name} retransmits {rate / 10:.1f} % of its TCP segments, the other hosts {usual / 10:.1f} %"
    return [_symptom(host, None, said, {"retransmits_per_1000": rate, "others_per_1000": usual})]


def _symptom(host: Host, about: str | None, said: str, evidence: Evidence) -> Symptom:
    known = about is not None and is_device_name(about)
    counters = f": {on_host(host.frame.host, f'ethtool -S {about}')}" if known else ""
    return Symptom(
        kind="nic_errors",
        about=about,
        ranks=host.ranks,
        summary=said,
        because=f"network errors: {said}",
        evidence=evidence,
        advice=f"check the cable, the switch port, duplex, speed and firmware{counters}",
    )


def _taken(host: Host, port: TakenPort) -> list[Symptom]:
    """A port that the run wanted and somebody else holds, or held then."""
    if port.process is not None and host.is_ours(port.process):
        return []
    by = named(port.process) if port.process else "a process that is not visible from here"
    is_held = f"is held by {by}" if port.held else "was held by a process that has released it since"
    wanted = clean(port.wanted_for, 60)
    evidence: Evidence = {"port": port.port, "wanted_for": wanted, **(culprit([port.process]) if port.process else {})}
    return [
        Symptom(
            kind="port_clash",
            about=port.port,
            ranks=host.ranks[:1],
            looks=1,
            evidence=evidence,
            summary=f"port {port.port} on {host.name}, wanted for {wanted}, {is_held}",
            because=f"a taken port: {port.port} {is_held}",
            advice="nothing to do unless a firewall only allows this port: the run uses the next free one",
        )
    ]
