"""How often a command looks at a run before it answers: most troubles must be seen more than once to be told."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec import Struct

from ddpmon.diagnose.alert import Severity, at_or_above
from ddpmon.report.verdicts import firing, is_reading
from ddpmon.snapshot import Finding, Snapshot

# Three readings of foreign processes confirm a contention. The first is there already, or the host has counted two by
# itself; the rest take 4 s, and the frame that tells of the last one up to 1 s more.
USUAL_MOST_S = 5.0
_EVERY_S = 0.5  # ranks and hosts publish every second; a look twice as often is late by half of that at most


class Looks(Struct, frozen=True):
    """How long a run is looked at.

    Attributes:
        for_s: seconds; None looks only as long as what is pending can be confirmed within what is left of `most_s`.
        most_s: seconds that this takes at most.
        fail_on: a finding of this severity or worse is answered once nothing is pending about its ranks or hosts that
            can be confirmed within `most_s`: it may be the cause.
    """

    for_s: float | None = None
    most_s: float = USUAL_MOST_S
    fail_on: Severity | None = None

    @property
    def limit_s(self) -> float:
        """How many seconds may go by between the first look and the last."""
        return self.most_s if self.for_s is None else self.for_s

    def at(self, tick: Callable[[], Snapshot]) -> Snapshot:
        """The last snapshot of as many calls of `tick` as are needed."""
        last = until = time.monotonic() + self.limit_s
        due = dict[_What, float]()
        while True:
            snapshot = _read(tick)
            now = time.monotonic()
            due = {what: min(at, due.get(what, at)) for what, at in _due(snapshot, now).items()}
            decisive = found(snapshot, self.fail_on)
            until = min(until, now + self.most_s) if decisive else last
            if now >= until or self._is_enough(snapshot, decisive, [what for what, at in due.items() if at <= until]):
                return snapshot
            time.sleep(min(_EVERY_S, until - now))

    def _is_enough(self, snapshot: Snapshot, decisive: Sequence[Finding], in_time: Sequence[_What]) -> bool:
        if snapshot.run is None or snapshot.link.state != "live":
            return True
        if decisive:
            return not any(_is_about(what, finding) for what in in_time for finding in decisive)
        return self.for_s is None and not in_time


class _What(NamedTuple):
    """What tells a pending trouble from others."""

    kind: str
    ranks: tuple[int, ...]
    nodes: tuple[str, ...]
    confirmations: int | None


def _read(tick: Callable[[], Snapshot]) -> Snapshot:
    """The first snapshot for which the past of all ranks has been read."""
    snapshot = tick()
    while is_reading(snapshot):
        snapshot = tick()
    return snapshot


def _due(snapshot: Snapshot, now: float) -> dict[_What, float]:
    """When each pending trouble can be confirmed at the earliest, in seconds on the monotonic clock.

    Between two readings the seconds that a confirmation takes do not grow less, so the first of these times counts.
    """
    return {
        _What(each.kind, each.ranks, each.nodes, each.confirmations): now + each.seconds for each in snapshot.pending
    }


def _is_about(what: _What, finding: Finding) -> bool:
    """Whether they name the same rank, or where one of them names no rank, the same host."""
    mine, theirs = (what.ranks, finding.ranks) if what.ranks and finding.ranks else (what.nodes, finding.nodes)
    return not {*mine}.isdisjoint(theirs)


def found(snapshot: Snapshot, floor: Severity | None) -> list[Finding]:
    """The findings of this severity or worse that last; none without a severity."""
    return [] if floor is None else [each for each in firing(snapshot.findings) if at_or_above(each.severity, floor)]
