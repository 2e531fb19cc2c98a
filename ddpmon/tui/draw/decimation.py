"""Which dots the columns of a plot show: a line through the points, or the median and the range of many steps."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ddpmon.run.medians import median
from ddpmon.snapshot import Floats
from ddpmon.tui.draw.zoom import Span

GAP = 4.0  # a hole this many times the usual spacing is missing data, not a sparse series
# Of the steps at most are known of a sampled series. Chosen: DDP's logger measures the all-reduce of a GPU in one step
# of a hundred, and that of a CPU about once a second.
FEW = 0.25
IN_A_ROW = 4  # samples at most in the mean: a longer stretch of known steps is of a series with gaps. Chosen
NEWEST = 16  # points of which two follow on each other without a hole; chosen, not measured
Edges = tuple[Floats, Floats]  # of each column the lowest and the highest height


class Columns(NamedTuple):
    """A series in the columns of a plot.

    Attributes:
        line: where the line is.
        spread: where columns stand for several steps, the least and the greatest of each column's and of the line; the
            line alone where points are means.
    """

    line: Edges
    spread: Edges | None = None


def in_columns(step: Floats, value: Floats, columns: int, span: Span, single_from: float = -math.inf) -> Columns:
    """The line through the points; where these are more than the columns, through the median of each column's.

    Points before the step `single_from` are means of several steps, whose range is not known.

    A line that goes from point to point within a column would make slopes of one late step in five. The line leaves out
    what lasts for a step: else a late step that has a column for itself looked otherwise than one that shares it.
    """
    x, y, place = _placed(step, value, columns, span)
    if not _is_dense(place):
        return Columns(decimate(step, value, columns, span))
    column = place.round().astype(np.int64)
    filled, middle = _middles(_steadied(y), column)
    height = np.interp(np.arange(columns + 1) - 0.5, filled, middle, left=np.nan, right=np.nan)
    height[np.isnan(_between(x, y, place, columns))] = np.nan
    line = np.full(columns, np.nan)
    line[filled] = middle
    single = x >= single_from
    low, high = _own(y[single], column[single], columns)  # of a column with a late step alone, a bar as of the others
    return Columns(_joined((line, line), height), (np.fmin(low, line), np.fmax(high, line)))


def edge_in_columns(step: Floats, value: Floats, columns: int, span: Span) -> Edges:
    """The lowest and the highest point of each column, of a column without any where the line is there."""
    _, y, place = _placed(step, value, columns, span)
    low, high = decimate(step, value, columns, span)
    if not _is_dense(place):
        return low, high
    own = _own(y, place.round().astype(np.int64), columns)
    return np.where(np.isnan(own[0]), low, own[0]), np.where(np.isnan(own[1]), high, own[1])


def steps_a_column(step: Floats, value: Floats, columns: int, span: Span) -> int:
    """How many steps a column stands for where its points are more than the columns; else 1."""
    x, _, place = _placed(step, value, columns, span)
    return math.ceil((x[-1] - x[0] + 1) / (place[-1] - place[0] + 1)) if _is_dense(place) else 1


def first_single(step: Floats) -> float:
    """The step from which on each point is of one step, as the newest are; older ones lie farther apart, as means."""
    spacing = np.diff(step)
    if not len(spacing):
        return -math.inf
    wide = spacing > spacing[-NEWEST:].min()
    means = np.flatnonzero(wide & np.concatenate([[True], wide[:-1]]))  # before a hole among single steps there is one
    return float(step[means[-1] + 1]) if len(means) else -math.inf


def one_step_in(value: Floats) -> int:
    """In one of how many steps, in the mean, a sampled series is known; 0 of a series that only has gaps."""
    known = np.flatnonzero(np.isfinite(value))
    stretches = 1 + int((np.diff(known) > 1).sum())
    steps = len(value) - int(known[0]) if len(known) else 0
    is_sampled = stretches > 1 and len(known) <= min(FEW * steps, IN_A_ROW * stretches)
    return round(steps / len(known)) if is_sampled else 0


def rate_words(one_in: int) -> str:
    """`1 step in 37`; empty of a series that is not sampled."""
    return f"1 step in {one_in:,}" if one_in else ""


def forward_fill(value: Floats) -> Floats:
    """Each value until the next one; NaN before the first."""
    newest = np.maximum.accumulate(np.where(np.isfinite(value), np.arange(len(value)), -1))
    return np.where(newest < 0, np.nan, value[newest])


def decimate(step: Floats, value: Floats, columns: int, span: Span) -> Edges:
    """Lowest and highest value in each column, joined to the next point unless data is missing between them."""
    x, y, place = _placed(step, value, columns, span)
    if not len(x):
        return np.full(columns, np.nan), np.full(columns, np.nan)
    return _joined(_own(y, place.round().astype(np.int64), columns), _between(x, y, place, columns))


def one_a_column(step: Floats, value: Floats, columns: int, span: Span, edges: Edges) -> Floats:
    """[columns] the lower median of the values in each column; between points the middle of the `edges` there."""
    middle = (edges[0] + edges[1]) / 2
    _, y, place = _placed(step, value, columns, span)
    filled, found = _middles(y, place.round().astype(np.int64))
    middle[filled] = found
    return middle


def _placed(step: Floats, value: Floats, columns: int, span: Span) -> tuple[Floats, Floats, Floats]:
    """The steps and values that are known, and where between the first column and the last one each of them lies."""
    seen = np.isfinite(value) & np.isfinite(step)
    x, y = np.asarray(step, dtype=np.float64)[seen], np.asarray(value, dtype=np.float64)[seen]
    return x, y, np.clip((x - span[0]) / max(span[1] - span[0], 1e-9) * (columns - 1), 0, columns - 1)


def _is_dense(place: Floats) -> bool:
    """Whether there are more points than columns between the first and the last one."""
    return len(place) > 1 and len(place) > place[-1] - place[0] + 1


def _own(y: Floats, column: NDArray[np.int64], columns: int) -> Edges:
    """The lowest and the highest of the points in each column."""
    low, high = np.full(columns, np.nan), np.full(columns, np.nan)
    np.fmin.at(low, column, y)
    np.fmax.at(high, column, y)
    return low, high


def _joined(own: Edges, height: Floats) -> Edges:
    """The edges of each column's own points with the line's `height` at both of its sides."""
    low, high = own
    return np.fmin(low, np.fmin(height[:-1], height[1:])), np.fmax(high, np.fmax(height[:-1], height[1:]))


def _steadied(y: Floats) -> Floats:
    """Of each value the median of it and its two neighbours."""
    if len(y) < 3:
        return y
    before, here, after = y[:-2], y[1:-1], y[2:]
    middle = np.maximum(np.minimum(before, here), np.minimum(np.maximum(before, here), after))
    return np.concatenate([middle[:1], middle, middle[-1:]])


def _middles(y: Floats, column: NDArray[np.int64]) -> tuple[NDArray[np.int64], Floats]:
    """The columns that have points, and the lower median of each one's."""
    order = np.lexsort((y, column))
    filled, first, count = np.unique(column[order], return_index=True, return_counts=True)
    return filled, y[order][first + (count - 1) // 2]


def _between(x: Floats, y: Floats, place: Floats, columns: int) -> Floats:
    """The line's height at the edges of the columns; NaN outside it and where data is missing."""
    edges = np.arange(columns + 1) - 0.5
    height = np.asarray(np.interp(edges, place, y, left=np.nan, right=np.nan))
    spacing = x[1:] - x[:-1]
    if len(spacing) and spacing.max() > GAP * spacing.min():
        usual = np.maximum(median(spacing), _nearby(spacing))
        for i in np.flatnonzero((spacing > GAP * usual) & (place[1:] - place[:-1] > 1)).tolist():
            height[int(place[i] + 0.5) + 1 : math.ceil(place[i + 1] + 0.5)] = np.nan
    return height


def _nearby(spacing: Floats) -> Floats:
    """The usual spacing around each gap: old points are decimated, so it differs along the series.

    Behind the last of them it is theirs.
    """
    before, earlier, after = spacing.copy(), spacing.copy(), spacing.copy()
    before[1:], earlier[2:], after[:-1] = spacing[:-1], spacing[:-2], spacing[1:]
    return np.asarray(np.minimum(before, np.maximum(earlier, after)))
