"""When a command that goes on until the run is over may end."""

from __future__ import annotations

import time
from collections.abc import Callable

from ddpmon.snapshot import Snapshot, is_over

# A running rank 0 starts a store that died again within seconds, and a host that was cut off may come back.
LOST_S = 60.0


class RunEnd:
    """Says of one picture after the other whether the run is over and its store is gone.

    A run whose launcher starts it again is not over. One whose end is not known counts as over after `LOST_S`.

    Args:
        clock: monotonic, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lost_at: float | None = None

    def is_reached(self, snapshot: Snapshot) -> bool:
        """Whether nothing more is to be expected after this picture."""
        run = snapshot.run
        if run is None or snapshot.link.state != "gone" or run.state == "restarting":
            self._lost_at = None
            return False
        self._lost_at = self._clock() if self._lost_at is None else self._lost_at
        return is_over(run.state) or self._clock() - self._lost_at > LOST_S
