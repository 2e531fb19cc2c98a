"""When the store could not be read: nobody was silent then, as far as a watcher can tell."""

from __future__ import annotations

import math
from collections import deque

import numpy as np
from numpy.typing import NDArray

_KEPT = 8  # a rank that is silent over more of them than this is lost in any case


class Outages:
    """The newest times in which a watcher could not read the store, in monotonic seconds."""

    def __init__(self) -> None:
        self._past: deque[tuple[float, float]] = deque(maxlen=_KEPT)
        self._read_at = math.nan
        self._lasts = False

    def begin_outage(self) -> None:
        """A look at the store has failed, or was cut off; one that lasts already goes on."""
        self._lasts = True

    def end_outage(self, now: float) -> None:
        """A look at the store has come to its end: what lasted until now is over."""
        if self._lasts and not math.isnan(self._read_at):
            self._past.append((self._read_at, now))
        self._lasts, self._read_at = False, now

    @property
    def last(self) -> tuple[float, float] | None:
        """From when until when the last one that is over lasted; None if there was none."""
        return self._past[-1] if self._past else None

    def unreadable_s_since(self, heard_at: NDArray[np.float64]) -> NDArray[np.float64]:
        """[n] seconds since each of these moments in which the store could not be read."""
        seconds = np.zeros_like(heard_at)
        for began, ended in self._past:
            seconds += np.clip(ended - np.maximum(heard_at, began), 0.0, None)
        return seconds
