"""The newest columns of a table that grows to the right."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Tail:
    """A [rows, T] table, T at most `room`, kept in one buffer of twice that width.

    Args:
        rows: how many.
        room: the columns kept.
        dtype: what a cell is.
    """

    def __init__(self, rows: int, room: int, dtype: Any = np.float32) -> None:
        self._buffer: Array = np.empty((rows, 2 * room), dtype)
        self._room = room
        self._end = 0

    def append(self, columns: Array) -> None:
        """Add [rows, m] columns at the right; the oldest leave at the left."""
        columns = columns[:, -self._room :]
        width = columns.shape[1]
        if self._end + width > self._buffer.shape[1]:
            kept = self._buffer[:, self._end - self._room + width : self._end].copy()
            self._buffer[:, : kept.shape[1]] = kept
            self._end = kept.shape[1]
        self._buffer[:, self._end : self._end + width] = columns
        self._end += width

    @property
    def view(self) -> Array:
        """[rows, T] the columns now; not to be written."""
        return self._buffer[:, max(0, self._end - self._room) : self._end]
