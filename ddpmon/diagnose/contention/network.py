"""The network under a host: errors, drops and segments sent again; ports that somebody else holds."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

import numpy as np

from ddpmon.diagnose.alert import Measures
from ddpmon.diagnose.contention.host_state import Host, RunContext
from ddpmon.diagnose.contention.symptom import CulpritMeasures, Symptom, culprits
from ddpmon.diagnose.contention_policy import CONTENTION, NETWORK
from ddpmon.lru import LruDefaultDict
from ddpmon.machine import Nic, TakenPort
from ddpmon.run.limits import RETRANSMITS
from ddpmon.run.model import Run

_NAMES = 64  # interfaces whose counters are kept for a host; it bounds the memory where names come and go
Counts = tuple[int, int]


class NicErrorMeasures(Measures, frozen=True):
    """A network interface loses packets.

    Attributes:
        name: of the interface.
        errors, drops: how many came within the frames; below 0 where its counters began again.
        frames: how many of its host's last frames these are.
    """

    name: str
    errors: int
    drops: int
    frames: int


class RetransmitMeasures(Measures, frozen=True):
    """A host sends many TCP segments again.

    Attributes:
        retransmits_per_1000: how many of a thousand.
        others_per_1000: how many the other hosts send again, in the middle.
    """

    retransmits_per_1000: float
    others_per_1000: float


class TakenPortMeasures(CulpritMeasures, frozen=True):
    """A port that the run wanted was taken. Its culprit is the process that holds or held it, if it is visible.

    Attributes:
        port: its number.
        wanted_for: what the run wanted it for.
        is_held: it is held still.
    """

    port: int
    wanted_for: str
    is_held: bool


class Wires:
    """Remembers the counters of the last frames: they count from the start, and only growth is trouble."""

    def __init__(self) -> None:
        self._past: dict[int, LruDefaultDict[deque[Counts]]] = {}

    def look(self, host: Host, context: RunContext) -> list[Symptom]:
        """Interfaces that lose packets, hosts that send again, and taken ports."""
        figures = host.frame.figures
        symptoms: list[Symptom] = []
        if not host.states:
            return symptoms
        for nic in figures.nics:
            if nic.name != "lo":
                symptoms += self._losing(host, nic)
        if (figures.retransmits_per_1000 or 0) >= RETRANSMITS:
            symptoms += _sent_again(host, figures.retransmits_per_1000 or 0, context.run)
        for port in figures.ports:
            symptoms += _taken(host, port)
        return symptoms

    def _losing(self, host: Host, nic: Nic) -> list[Symptom]:
        names = self._past.get(host.number)
        if names is None:
            names = self._past[host.number] = LruDefaultDict(lambda: deque(maxlen=NETWORK.window_frames), _NAMES)
        past = names.of(nic.name)
        if nic.errors is None and nic.drops is None:
            return []
        past.append((nic.errors or 0, nic.drops or 0))
        if past.count(past[0]) == len(past):  # the usual case: nothing has ever been lost
            return []
        errors, drops = past[-1][0] - past[0][0], past[-1][1] - past[0][1]
        if not _grows(past, 0) and (drops < NETWORK.least_drops or not _grows(past, 1)):
            return []
        measures = NicErrorMeasures(nic.name, errors, drops, len(past))
        return [Symptom(kind="nic_errors", about=nic.name, ranks=host.ranks, measures=measures)]


def _grows(past: deque[Counts], which: int) -> bool:
    """Whether it has risen in several of the frames, not in one burst."""
    return sum(now[which] > before[which] for before, now in pairwise(past)) >= NETWORK.growing_frames


def _sent_again(host: Host, rate: float, run: Run) -> list[Symptom]:
    """Far more than the other hosts do; for a single host the usual is unknown, and its ranks need no network."""
    others = [
        frame.figures.retransmits_per_1000
        for node, (frame, _) in run.nodes.items()
        if node != host.number and frame.figures.retransmits_per_1000 is not None
    ]
    if not others or rate < NETWORK.retransmit_ratio * float(np.median(others)):
        return []
    usual = float(np.median(others))
    return [Symptom(kind="nic_errors", about=None, ranks=host.ranks, measures=RetransmitMeasures(rate, usual))]


def _taken(host: Host, port: TakenPort) -> list[Symptom]:
    """A port that the run wanted and somebody else holds, or held then."""
    if port.process is not None and host.is_ours(port.process):
        return []
    holder = culprits([port.process] if port.process else [])
    return [
        Symptom(
            kind="port_clash",
            about=port.port,
            ranks=host.ranks[:1],
            consecutive=CONTENTION.sufficient_readings,
            measures=TakenPortMeasures(holder, port.port, port.wanted_for, is_held=port.held),
        )
    ]
