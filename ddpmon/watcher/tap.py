"""What else may listen to a watcher: it is given all that comes into the `Run`, before it does, and each tick's end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ddpmon.diagnose.alert import Alert
from ddpmon.run.host_rows import HostRows
from ddpmon.run.model import Run
from ddpmon.schema import HistoryFrame, NodeFrame, RankFrame
from ddpmon.snapshot import Finding, Link, RunState


@dataclass(frozen=True, slots=True)
class Tick:
    """The end of one tick of a watcher.

    Attributes:
        read_at: when its frames were read, in seconds on the watcher's monotonic clock.
        wall: the same moment as Unix time.
        is_settled: whether all was read; a store that fails amid a tick leaves the rest of it out, and of a large run
            the histories are read over some ticks.
        is_judged: whether the run was judged.
        link: how the watcher stands with the store. ended: the run's state once its end is known.
        source: the URL of what was read.
        alerts, findings: what the last judgement said, in numbers and in words, in the same order.
    """

    read_at: float
    wall: float
    is_settled: bool
    is_judged: bool
    link: Link
    ended: RunState | None
    source: str
    alerts: Sequence[Alert]
    findings: Sequence[Finding]


class Tap(Protocol):
    """Listens to one watcher, in the thread that reads. No method raises.

    Ages are in seconds, by rank or host, of frames that were old when they were read; the others are new.
    """

    def begin(self, run: Run) -> None:
        """Follow this run from now on; it is empty yet."""

    def histories(self, run: Run, frames: Sequence[HistoryFrame], *, are_last: bool) -> None:
        """What some ranks remember is about to be added; `are_last`: no further ones will be."""

    def rows(self, run: Run, rows: HostRows) -> None:
        """The figures of host frames are about to be added."""

    def ranks(self, run: Run, frames: Sequence[RankFrame], ages: Mapping[int, float]) -> None:
        """Whole frames are about to be added."""

    def nodes(self, run: Run, frames: Sequence[NodeFrame], ages: Mapping[int, float]) -> None:
        """Frames of hosts are about to be added."""

    def tick(self, run: Run, tick: Tick) -> None:
        """A tick is over."""
