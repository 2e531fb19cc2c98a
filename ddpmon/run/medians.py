"""Medians that leave missing values (NaN) out, fast enough for thousands of ranks a tick."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
_SHORT = 64  # columns
_SHORTEST, _MANY = 32, 256  # columns and rows for which comparing whole columns takes half the time of sorting rows


def row_medians(values: Array) -> Array:
    """Median of each row of [n, m], NaN left out; NaN for a row without values."""
    if not values.shape[1]:
        return np.full(len(values), np.nan)
    missing = np.isnan(values).any(axis=1)
    if 2 * np.count_nonzero(missing) > len(values):
        return _known_medians(values)
    below, above = _around_middle(values)
    with np.errstate(invalid="ignore"):
        found: Array = below / 2 + above / 2
    if missing.any():
        found[missing] = _known_medians(values[missing])
    return found


def _known_medians(values: Array) -> Array:
    """Medians of rows in which values may be missing."""
    ordered = np.sort(values, axis=1)  # NaN sorts last
    counts = (~np.isnan(values)).sum(axis=1)
    rows = np.arange(len(values))
    low = ordered[rows, np.maximum(counts - 1, 0) // 2]
    high = ordered[rows, np.minimum(counts // 2, values.shape[1] - 1)]
    with np.errstate(invalid="ignore"):  # of infinite values with both signs there is no middle
        return np.where(counts > 0, low / 2 + high / 2, np.nan)


def _around_middle(values: Array) -> tuple[Array, Array]:
    """The two values of each row around its middle, which are one in rows of an odd length; any where one is NaN.

    Sorting short rows, and in long ones looking for one place only, take a quarter of the time of `np.partition` for
    two places.
    """
    middle = values.shape[1] // 2
    odd = values.shape[1] % 2 == 1
    if values.shape[1] <= _SHORTEST and len(values) >= _MANY:
        columns = [*np.array(values.T, order="C")]
        spare = np.empty_like(columns[0])
        for low, high in _comparisons(len(columns)):
            np.minimum(columns[low], columns[high], out=spare)
            np.maximum(columns[low], columns[high], out=columns[high])
            columns[low], spare = spare, columns[low]
        return columns[middle - 1 + odd], columns[middle]
    if values.shape[1] <= _SHORT:
        ordered = np.sort(values, axis=1)
        return ordered[:, middle - 1 + odd], ordered[:, middle]
    ordered = np.partition(values, middle, axis=1)
    return ordered[:, middle] if odd else ordered[:, :middle].max(axis=1), ordered[:, middle]


@cache
def _comparisons(count: int) -> tuple[tuple[int, int], ...]:
    """The pairs of places whose values, put in order one pair after the other, bring the middle ones of `count` there.

    Batcher's odd-even merge sort (Knuth, The Art of Computer Programming, volume 3, 5.2.2, algorithm M), without the
    comparisons that do not concern the middle.
    """
    pairs, wanted, needed = list[tuple[int, int]](), {(count - 1) // 2, count // 2}, list[tuple[int, int]]()
    for run in (1 << power for power in range((count - 1).bit_length())):
        for apart in (run >> power for power in range(run.bit_length())):
            for start in range(apart % run, count - apart, 2 * apart):
                places = range(start, min(start + apart, count - apart))
                pairs += [(low, low + apart) for low in places if low // (2 * run) == (low + apart) // (2 * run)]
    for pair in reversed(pairs):
        if not wanted.isdisjoint(pair):
            wanted.update(pair)
            needed.append(pair)
    return tuple(reversed(needed))


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


def without(others: Array, late: Collection[int], named: Collection[int]) -> Array:
    """Those of some ranks that are neither late nor named; without such ones those that are not late, else all."""
    calm = others[~np.isin(others, [*late])]
    calm = calm if len(calm) else others
    unnamed = calm[~np.isin(calm, [*named])]
    return unnamed if len(unnamed) else calm


def some_of(ranks: Array, most: int) -> Array:
    """At most `most` of some ranks in ascending order, evenly spaced: those that stand for all of them.

    They lie at changing places within their parts of the ranks. Else all of them might be the first GPUs of their
    hosts, which other air cools.
    """
    count, place = len(ranks), np.arange(most)
    if count <= most:
        return ranks
    part = count // most
    return ranks[place * count // most + (place + place // part) % part]


class Peers(NamedTuple):
    """What every rank is compared with at each step: the median of the other ranks (leave-one-out), [steps] each.

    Attributes:
        middle: the middle value of all ranks; of an even number the lower of the two.
        of_low, of_middle, of_high: the median of the others, for a rank below, at and above that value. NaN where
            fewer than two ranks are known.
    """

    middle: Array
    of_low: Array
    of_middle: Array
    of_high: Array

    def medians(self, values: Array) -> Array:
        """For each of `values` [any, steps] the median of the other ranks."""
        not_low = np.where(values > self.middle, self.of_high, self.of_middle)
        found: Array = np.where(values < self.middle, self.of_low, not_low)
        return found

    def lateness(self, work: Array) -> Array:
        """Work minus the median work of the other ranks: lateness where no finding calls a rank late."""
        late: Array = work - self.medians(work)
        return late


def peers(values: Array, *, is_lower: bool = True) -> Peers:
    """The leave-one-out medians of a table [ranks, steps], NaN left out.

    Args:
        values: the table.
        is_lower: of an even number of others the lower middle value is the median, and not the mean of the two: so the
            two healthy ranks beside a late third one are not early by half of its lateness.
    """
    known = len(values) - np.isnan(values).sum(axis=0)
    found = np.full((4, values.shape[1]), np.nan, values.dtype)
    for count in np.unique(known[known > 1]).tolist():
        at = np.flatnonzero(known == count)
        found[:, at] = _peers(values if len(at) == values.shape[1] else values[:, at], count, is_lower=is_lower)
    return Peers(*found)


class Lateness(NamedTuple):
    """The lateness of every rank at each step, and what it is measured from.

    Attributes:
        late: [ranks, steps] work minus the median work of the others.
        middle: [steps] the median work of all that the others are taken from; where no rank is called late, and their
            number is even, the lower of the middle two.
    """

    late: Array
    middle: Array


def lateness_beside(work: Array, late_ranks: NDArray[np.bool_]) -> Lateness:
    """The lateness of a table [ranks, steps], where the others are those that a verdict compares with.

    These are the ranks that no finding calls late: `late_ranks` [ranks] are True. Else two late ranks of four would be
    what the healthy ones are compared with. Each of several such ranks is measured from the median of all of them, as
    the late ones are: without its own work, two slower ones of three would be later than the rank that a finding names.
    One that is alone in a step is compared with all ranks.
    """
    calm = ~late_ranks
    if calm.all() or not calm.any():
        others = peers(work)
        return Lateness(others.lateness(work), others.middle)
    beside = work[calm]
    middle = row_medians(beside.T)
    late: Array = work - middle
    alone = np.flatnonzero(np.count_nonzero(~np.isnan(beside), axis=0) == 1)
    if alone.size:
        late[np.ix_(calm, alone)] = peers(work[:, alone]).lateness(work[:, alone])[calm]
    return Lateness(late, middle)


def _peers(values: Array, known: int, *, is_lower: bool) -> tuple[Array, Array, Array, Array]:
    """The same where each step has as many known values, at least two."""
    below, own, above = _around_place(values, known // 2)
    if known % 2 == 0:  # an odd number of others has one middle
        return below, own, own, below
    if is_lower:
        return own, own, below, below
    return own, (own + above) / 2, (below + above) / 2, (below + own) / 2


def _around_place(values: Array, place: int) -> tuple[Array, Array, Array]:
    """The values before, at and after a place of each column in ascending order; NaN comes last, 0 < place.

    `np.partition` for one place of contiguous rows takes a sixth of its time for three places of columns.
    """
    rows = np.array(values.T, order="C")
    rows.partition(place, axis=1)
    before, after = (
        np.fmax.reduce(rows[:, :place], axis=1),
        np.fmin.reduce(rows[:, place + 1 :], axis=1, initial=np.inf),
    )
    return before, rows[:, place], after


def others_medians(values: Array) -> Array:
    """For every entry of [ranks, steps] the median of the other ranks at that step (leave-one-out).

    There must be at least two ranks. This reference works from two ranks on, where z-scores and MAD cut-offs fail
    (docs/detection.md "What does not work").
    """
    return peers(values, is_lower=False).medians(values)
