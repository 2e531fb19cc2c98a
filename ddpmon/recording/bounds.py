"""How large a recording may grow, and what is thinned or dropped when: alerts are kept."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from ddpmon.parts import MAX_RANKS
from ddpmon.recording.layout import STEP_BITS

# Of a row of `steps` with its share of the tree: 84 seen in a recording of 64 ranks without barriers, and 9 more for an
# all-reduce time.
_ROW_BYTES = 110
_JOB_BYTES = 70
_ZONES = 12  # stretches of thinned steps: each is twice as long as the one before it and has half as many of its steps
_MOST_AT_ONCE = 100_000  # steps that one look thins: a foreign number may be anything
_MOST_ALERTS = 10_000
_MOST_HOST_ROWS = 200_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a recording may take.

    Attributes:
        bytes: of its file. Two fifths are for frames, a third for steps; the rest is for all else.
        ranks: the largest run that is recorded.
        age_s: how old frames and host figures may become. A week outlasts what anybody looks back at step by step.
    """

    bytes: int = 256 << 20
    ranks: int = MAX_RANKS
    age_s: float = 7 * 86_400.0

    @property
    def frame_bytes(self) -> int:
        """Of all looks and keys together."""
        return int(0.4 * self.bytes)

    def whole_steps(self, ranks: int) -> int:
        """How many of the newest steps are kept one by one, where each has a row for every one of `ranks`.

        Behind them every second step is kept, behind as many more every fourth, and so on.
        """
        return max(64, int(0.33 * self.bytes / _ROW_BYTES / ranks / (1 + _ZONES / 2)))

    def whole_points(self) -> int:
        """The same of the table `job`, which has one row a step."""
        return max(1024, int(0.05 * self.bytes / _JOB_BYTES / (1 + _ZONES / 2)))


class Thinner:
    """Thins one table of steps as the run goes on, a few rows at a time.

    A step that comes to lie 2^k times `whole` steps back stays only if its number is a multiple of 2^(k+1).

    Args:
        table: "steps" or "job".
        width: rows that a step may have.
        whole: steps that are kept one by one.
        epoch: of the run's life.
        first: the step that the life began with in this recording.

    Attributes:
        newest: the step that the run had come to when it was thinned last.
    """

    def __init__(self, table: str, width: int, whole: int, epoch: int, first: int) -> None:
        self._table, self._width, self._whole, self._base = table, width, whole, epoch << STEP_BITS
        self._first, self.newest = first, first

    def reach(self, book: sqlite3.Connection, newest: int) -> None:
        """The run has come to step `newest`."""
        doomed: list[tuple[int, int]] = []
        newest = min(newest, self.newest + _MOST_AT_ONCE)
        for zone in range(_ZONES):
            behind = self._whole << zone
            start, end = max(self._first, self.newest - behind), newest - behind
            if end <= start:
                break
            stride, kept = 2 << zone, 1 << zone
            start += -start % kept  # the zones before have left no others
            doomed += [self._rows(step) for step in range(start, end, kept) if step % stride]
        book.executemany(f"DELETE FROM {self._table} WHERE id >= ? AND id < ?", doomed)
        self.newest = max(newest, self.newest)

    def _rows(self, step: int) -> tuple[int, int]:
        start = self._base + step * self._width
        return start, start + self._width


def drop_old_alerts(book: sqlite3.Connection) -> None:
    """Keep the newest ten thousand alerts: more than that is a program that restarts again and again."""
    book.execute(f"DELETE FROM alerts WHERE id <= (SELECT max(id) FROM alerts) - {_MOST_ALERTS}")


def drop_old_host_rows(book: sqlite3.Connection, before: float) -> None:
    """Drop figures of hosts from before this Unix time, and all but the newest 200,000."""
    book.execute("DELETE FROM hosts WHERE at < ?", (before,))
    book.execute(f"DELETE FROM hosts WHERE id <= (SELECT max(id) FROM hosts) - {_MOST_HOST_ROWS}")
