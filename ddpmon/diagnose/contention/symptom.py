"""What one look at a host shows of one contention, and the processes whose doing it is."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from msgspec import Struct

from ddpmon.diagnose.alert import Measures, Severity
from ddpmon.diagnose.contention_policy import CONTENTION
from ddpmon.diagnose.kinds import KindName
from ddpmon.machine import Process

# Processes whose numbers are listed, and compared with those of an earlier look; of more, the first. It keeps the list
# short enough to read, and is chosen, not measured.
MOST_CULPRITS = 16
Source = tuple[str, str]  # a sensor of a host and what it reads: ("host", "processes"), ("disk", "/work")


class Culprit(Struct, frozen=True):
    """A process whose doing a contention is.

    Attributes:
        pid: its number.
        user, command: as its host's frame has them, None where they are not visible.
    """

    pid: int
    user: str | None = None
    command: str | None = None


class CulpritMeasures(Measures, frozen=True):
    """Measures of a contention that may be the doing of processes.

    Attributes:
        culprits: these processes, the one that counts most first; empty where none is known.
    """

    culprits: tuple[Culprit, ...]


class Symptom(Struct, frozen=True):
    """One contention as one frame of a host shows it.

    Attributes:
        about: what tells it from others of its kind on the same host.
        ranks: whom it hurts, worst first.
        measures: what it rests on.
        threat: how bad it is even if nobody is late.
        consecutive: how many frames in a row must show it.
        lasted: in how many readings in a row the host itself has seen the culprits at it, the newest included.
        source: whose readings it rests on, None where every frame brings a new one: what is only told again is no news.
    """

    kind: KindName
    about: Hashable
    ranks: tuple[int, ...]
    measures: Measures
    threat: Severity = "info"
    consecutive: int = CONTENTION.confirming_readings
    source: Source | None = None
    lasted: int = 1


def culprits(processes: Sequence[Process]) -> tuple[Culprit, ...]:
    """What the measures keep of these processes."""
    return tuple(Culprit(process.pid, process.user, process.command) for process in processes)


def culprits_of(measures: Measures) -> frozenset[int]:
    """The numbers of the processes whose doing it is, as far as it names any."""
    named = measures.culprits if isinstance(measures, CulpritMeasures) else ()
    return frozenset(culprit.pid for culprit in named[:MOST_CULPRITS])
