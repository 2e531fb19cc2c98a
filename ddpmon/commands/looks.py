"""How often a command looks at a run before it answers: most troubles must be seen more than once to be told."""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec import Struct

from ddpmon.diagnose.alert import Severity, at_or_above
from ddpmon.snapshot import Snapshot

# Three readings of foreign processes confirm a contention. The first is there already, or the host has counted two by
# itself; the rest take 4 s, and the frame that tells of the last one up to 1 s more.
USUAL_MOST_S = 5.0
_EVERY_S = 0.5  # ranks and hosts publish every second; a look twice as often is late by half of that at most


class Looks(Struct, frozen=True):
    """How long a run is looked at.

    Attributes:
        for_s: seconds; None looks only as long as what is pending can be confirmed within what is left of `most_s`.
        most_s: seconds that this takes at most.
        fail_on: a finding of this severity or worse is answered at once.
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
        until, due = time.monotonic() + self.limit_s, dict[tuple[object, ...], float]()
        while True:
            snapshot = tick()
            now = time.monotonic()
            due = {what: min(at, due.get(what, at)) for what, at in _due(snapshot, now).items()}
            if now >= until or self._is_enough(snapshot, all(at > until for at in due.values())):
                return snapshot
            time.sleep(min(_EVERY_S, until - now))

    def _is_enough(self, snapshot: Snapshot, is_too_late: bool) -> bool:
        if snapshot.run is None or snapshot.link.state != "live":
            return True
        if self.fail_on is not None and found(snapshot, self.fail_on):
            return True
        return self.for_s is None and is_too_late


def _due(snapshot: Snapshot, now: float) -> dict[tuple[object, ...], float]:
    """When each pending trouble can be confirmed at the earliest, in seconds on the monotonic clock.

    Between two readings the seconds that a confirmation takes do not grow less, so the first of these times counts.
    """
    return {(each.kind, each.ranks, each.nodes, each.confirmations): now + each.seconds for each in snapshot.pending}


def found(snapshot: Snapshot, floor: Severity) -> bool:
    """Whether a finding of this severity or worse lasts."""
    lasting = (finding for finding in snapshot.findings if finding.cleared_at_step is None)
    return any(at_or_above(finding.severity, floor) for finding in lasting)
