"""Medians that leave missing values (NaN) out, fast enough for thousands of ranks a tick."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
_SHORT = 64  # columns


def row_medians(values: Array) -> Array:
    """Median of each row of [n, m], NaN left out; NaN for a row without values."""
    if not values.shape[1]:
        return np.full(len(values), np.nan)
    if not np.isnan(values).any():  # the usual case: nothing is missing
        below, above = _around_middle(values)
        with np.errstate(invalid="ignore"):
            return below / 2 + above / 2
    ordered = np.sort(values, axis=1)  # NaN sorts last
    counts = (~np.isnan(values)).sum(axis=1)
    rows = np.arange(len(values))
    low = ordered[rows, np.maximum(counts - 1, 0) // 2]
    high = ordered[rows, np.minimum(counts // 2, values.shape[1] - 1)]
    with np.errstate(invalid="ignore"):  # of infinite values with both signs there is no middle
        return np.where(counts > 0, low / 2 + high / 2, np.nan)


def _around_middle(values: Array) -> tuple[Array, Array]:
    """The two values of each row around its middle, which are one in rows of an odd length; there is no NaN.

    Sorting short rows, and in long ones looking for one place only, take a quarter of the time of `np.partition` for
    two places.
    """
    middle = values.shape[1] // 2
    odd = values.shape[1] % 2 == 1
    if values.shape[1] <= _SHORT:
        ordered = np.sort(values, axis=1)
        return ordered[:, middle - 1 + odd], ordered[:, middle]
    ordered = np.partition(values, middle, axis=1)
    return ordered[:, middle] if odd else ordered[:, :middle].max(axis=1), ordered[:, middle]


def middles(values: Array) -> Array:
    """Median along the last axis, NaN where a value is missing: `np.median`, in a fifth of its time for short rows."""
    if not values.shape[-1]:
        return np.full(values.shape[:-1], np.nan, values.dtype)
    ordered = np.sort(values, axis=-1)
    half, odd = divmod(ordered.shape[-1], 2)
    found = ordered[..., half] if odd else (ordered[..., half - 1] + ordered[..., half]) / 2
    return np.where(np.isnan(ordered[..., -1]), ordered[..., -1], found)


def middle(values: Array) -> float:
    """Median of all values, of which there must be one; NaN if one of them is missing."""
    if np.isnan(values).any():
        return float("nan")
    below, above = _around_middle(values.reshape(1, -1))
    return float((below[0] + above[0]) / 2)


def median(values: Array) -> float:
    """Median of all values, NaN left out; NaN without values."""
    known = values[~np.isnan(values)]
    return middle(known) if known.size else float("nan")


def others_medians(values: Array) -> Array:
    """For every entry of [ranks, steps] the median of the other ranks at that step (leave-one-out).

    Rows must be complete (no NaN) and there must be at least two. This reference works from two ranks on, where
    z-scores and MAD cut-offs fail (docs/detection.md "What does not work").
    """
    n = len(values)
    middle = n // 2
    if n % 2 == 0:  # an odd number of others has one middle
        ordered = np.partition(values, (middle - 1, middle), axis=0)
        single: Array = np.where(values <= ordered[middle - 1], ordered[middle], ordered[middle - 1])
        return single
    ordered = np.partition(values, (middle - 1, middle, middle + 1), axis=0)
    below, own, above = ordered[middle - 1], ordered[middle], ordered[middle + 1]
    lower, upper = np.where(values <= own, own, below), np.where(values >= own, own, above)
    found: Array = np.where(values == own, below + above, lower + upper) / 2
    return found
