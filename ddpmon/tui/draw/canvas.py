"""A canvas of braille dots: two columns and four rows a character."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Dots = NDArray[np.bool_]
_BITS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]], dtype=np.int64)


def blank_dots(columns: int, rows: int) -> Dots:
    """An empty canvas of `columns` x `rows` characters."""
    return np.zeros((rows * 4, columns * 2), dtype=np.bool_)


def codes(dots: Dots) -> NDArray[np.int64]:
    """The braille pattern of each character, 0 where it is empty."""
    rows, columns = dots.shape[0] // 4, dots.shape[1] // 2
    cells = dots.reshape(rows, 4, columns, 2).transpose(0, 2, 1, 3)
    return np.asarray((cells * _BITS).sum(axis=(2, 3)), dtype=np.int64)


def fill(dots: Dots, low: NDArray[np.float64], high: NDArray[np.float64], every: int = 1) -> None:
    """Set each column's dots from `low` to `high` (0 at the bottom, 1 at the top); NaN leaves the column empty."""
    height = dots.shape[0]
    seen = np.isfinite(low) & np.isfinite(high)
    bottom = np.where(seen, _row(low, height), 0)
    top = np.where(seen, _row(high, height), -1)
    row = np.arange(height)[::-1, None]
    mask = (row >= bottom) & (row <= top)
    if every > 1:
        mask &= (row + np.arange(dots.shape[1])) % every == 0
    dots |= mask


def _row(share: NDArray[np.float64], height: int) -> NDArray[np.int64]:
    return np.clip(np.round(np.nan_to_num(share) * (height - 1)), 0, height - 1).astype(np.int64)
