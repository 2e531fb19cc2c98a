"""The last twenty values of some quantities of every rank."""

from __future__ import annotations

import numpy as np

from ddpmon.diagnose.ratios import WINDOW
from ddpmon.run.medians import row_medians
from ddpmon.run.rings import F32, I64

_OUTLIER = 3.0
_ALL = slice(None)
Quantity = int | slice


class Samples:
    """Rings of float32, one a rank and quantity; NaN is a value that is missing.

    Attributes:
        size: values kept.
    """

    size = WINDOW

    def __init__(self, world_size: int, quantities: int) -> None:
        self._values: F32 = np.full((world_size, quantities, self.size), np.nan, np.float32)
        self._next: I64 = np.zeros((world_size, quantities), np.int64)

    def put(self, who: I64, values: F32) -> None:
        """Add one value [ranks, quantities] each, missing ones included."""
        self._put(who[:, None], np.arange(values.shape[1]), values)

    def put_known(self, who: I64, values: F32) -> None:
        """Add the values [ranks, quantities] that are not missing."""
        row, quantity = np.nonzero(~np.isnan(values))
        self._put(who[row], quantity, values[row, quantity])

    def _put(self, who: I64, quantity: I64, values: F32) -> None:
        self._values[who, quantity, self._next[who, quantity] % self.size] = values
        self._next[who, quantity] += 1

    def clear(self, who: I64) -> None:
        """Forget all values of these ranks."""
        self._values[who] = np.nan

    def count(self, who: I64, quantity: Quantity = _ALL) -> I64:
        """[ranks, quantities] how many are known."""
        found: I64 = np.count_nonzero(~np.isnan(self._values[who, quantity]), axis=-1)
        return found

    def median(self, who: I64) -> F32:
        """[ranks, quantities], NaN without values."""
        values = self._values[who]
        return np.asarray(row_medians(values.reshape(-1, self.size)), np.float32).reshape(values.shape[:2])

    def newest(self, who: I64, count: int, quantity: slice = _ALL) -> F32:
        """[ranks, quantities] the median of the last `count` values, NaN without any."""
        last = (self._next[who, quantity][..., None] - 1 - np.arange(count)) % self.size
        values = np.take_along_axis(self._values[who, quantity], last, axis=2)
        return np.asarray(row_medians(values.reshape(-1, count)), np.float32).reshape(values.shape[:2])

    def typical_mean(self, who: I64, quantity: int, median: F32) -> F32:
        """[ranks] the mean of what is known, values above three times the `median` [ranks] counted as so much."""
        values, limit = self._values[who, quantity], _OUTLIER * median[:, None]
        count = np.maximum(self.count(who, quantity), 1)
        return np.asarray(np.nansum(np.minimum(values, limit), axis=1) / count, np.float32)

    def shortest(self, who: I64, quantity: int) -> F32:
        """[ranks], NaN without values."""
        return np.asarray(np.fmin.reduce(self._values[who, quantity], axis=1), np.float32)

    def longest(self, who: I64) -> F32:
        """[ranks, quantities], NaN without values."""
        return np.asarray(np.fmax.reduce(self._values[who], axis=2), np.float32)

    def mean(self, who: I64, quantity: slice = _ALL) -> F32:
        """[ranks, quantities] of the values that are known, NaN without any."""
        values = self._values[who, quantity]
        count = self.count(who, quantity)
        return np.where(count > 0, np.nansum(values, axis=2) / np.maximum(count, 1), np.nan).astype(np.float32)
