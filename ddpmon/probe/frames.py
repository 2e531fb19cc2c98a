"""Step rows into bounded frames: the last few seconds, the last 256 steps whole, and everything older decimated."""

from __future__ import annotations

import math
import struct
import sys
from array import array
from collections import deque
from collections.abc import Iterable, Sequence

from ddpmon.probe.record import NAN, StepRow
from ddpmon.schema import HANDED_S, HOST_COLUMNS, MAX_BUCKETS, STEP_COLUMNS, BucketColumns, Mark, StepColumns

FRAME_ROWS = 256
OLDER_ROWS = 256
_ALWAYS_S = 2.5  # a frame holds these seconds, thinned if it must; and HANDED_S where they fit
_BUCKET_CELLS = 8192
_LARGEST_HALF = 65504.0


class Window:
    """The rows of the last few seconds."""

    def __init__(self) -> None:
        self.rows: deque[StepRow] = deque(maxlen=4096)

    def add(self, row: StepRow) -> None:
        """Take a finished step in."""
        self.rows.append(row)

    def select(self, now: float) -> tuple[list[StepRow], int]:
        """The rows for a frame sent at `now` (monotonic seconds), and how many steps were thinned out.

        Thinning keeps the steps that are multiples of a power of two, so that all ranks keep the same.
        """
        while self.rows and now - self.rows[0].at > HANDED_S:
            self.rows.popleft()
        rows = list(self.rows)
        if len(rows) <= FRAME_ROWS:
            return rows, 0
        recent = [row for row in rows if now - row.at <= _ALWAYS_S]
        if len(recent) <= FRAME_ROWS:
            return rows[-FRAME_ROWS:], 0
        stride = 2 ** math.ceil(math.log2(len(recent) / FRAME_ROWS))
        kept = [row for row in recent if row.step % stride == 0]
        return kept[-FRAME_ROWS:], len(recent) - len(kept)


class History:
    """The last 256 rows whole; everything older as means over a stride that doubles when the room is full.

    Attributes:
        unsent: rows that have come since this was last sent.
    """

    def __init__(self) -> None:
        self.unsent = 0
        self._recent: deque[StepRow] = deque()
        self._older: list[StepRow] = []
        self._group: list[StepRow] = []
        self._stride = 1

    def add(self, row: StepRow) -> None:
        """Take a finished step in."""
        self.unsent += 1
        self._recent.append(row)
        if len(self._recent) > FRAME_ROWS:
            self._retire(self._recent.popleft())

    def recent(self) -> StepColumns:
        """The last 256 steps."""
        return columns(self._recent)

    def older(self) -> StepColumns:
        """Everything before them; each row is named by its first step."""
        under_way = [_mean(self._group, self._stride)] if self._group else []
        return columns([*self._older, *under_way], self._stride)

    def _retire(self, row: StepRow) -> None:
        if self._group and row.step // self._stride != self._group[0].step // self._stride:
            self._older.append(_mean(self._group, self._stride))
            self._group = []
            if len(self._older) >= OLDER_ROWS:
                self._halve()
        self._group.append(row)

    def _halve(self) -> None:
        self._stride *= 2
        pairs: dict[int, list[StepRow]] = {}
        for row in self._older:
            pairs.setdefault(row.step // self._stride, []).append(row)
        self._older = [_mean(rows, self._stride) for rows in pairs.values()]


def _mean(rows: Sequence[StepRow], stride: int) -> StepRow:
    """One row for several: the mean of what is known in each column."""
    step = rows[0].step // stride * stride
    if len(rows) == 1:
        return StepRow(step, rows[0].at, rows[0].values)
    return StepRow(step, rows[-1].at, [_mean_known(numbers) for numbers in _transposed(rows)])


def _mean_known(numbers: Sequence[float]) -> float:
    mean = sum(numbers) / len(numbers)
    if mean == mean:
        return mean
    known = [number for number in numbers if number == number]
    return sum(known) / len(known) if known else NAN


def _transposed(rows: Sequence[StepRow]) -> Iterable[tuple[float, ...]]:
    return zip(*[row.values for row in rows], strict=True)


def columns(rows: Iterable[StepRow], stride: int = 1) -> StepColumns:
    """Rows as the columns that cross the store; columns that nobody filled are left out."""
    rows = list(rows)
    values = {}
    for column, numbers in zip(STEP_COLUMNS, _transposed(rows), strict=False):  # of no rows no column is left
        if any(number == number for number in numbers):
            values[column] = halves(numbers) if column in HOST_COLUMNS else packed("f", numbers)
    return StepColumns(step=packed("q", [row.step for row in rows]), values=values, stride=stride)


def bucket_columns(rows: Sequence[StepRow]) -> BucketColumns | None:
    """Bucket detail of the newest rows that share one bucket layout; None without any."""
    sizes = rows[-1].bucket_sizes if rows else []
    if not sizes or len(sizes) > MAX_BUCKETS:
        return None
    kept = [row for row in rows if row.bucket_sizes == sizes][-max(1, _BUCKET_CELLS // len(sizes)) :]
    return BucketColumns(
        step=packed("q", [row.step for row in kept]),
        sizes=list(sizes),
        ms=packed("f", [ms for row in kept for ms in row.bucket_ms]),
    )


def marks(rows: Iterable[StepRow]) -> list[Mark]:
    """The user's phases of these rows, the newest 64."""
    return [Mark(row.step, name[:64], ms) for row in rows for name, ms in row.marks][-64:]


def halves(numbers: Sequence[float]) -> bytes:
    """Numbers as little-endian float16; what that cannot hold is unknown."""
    return struct.pack(f"<{len(numbers)}e", *[number if abs(number) <= _LARGEST_HALF else NAN for number in numbers])


def packed(code: str, numbers: Sequence[float]) -> bytes:
    """Numbers as little-endian bytes of one `array` type code; what a float32 cannot hold becomes infinite."""
    packed_array = array(code, numbers)
    if sys.byteorder == "big":
        packed_array.byteswap()
    return packed_array.tobytes()
