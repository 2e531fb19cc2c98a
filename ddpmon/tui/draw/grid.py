"""The cells of the heat-map: one metric on stops that mean the same in every run, whatever else is on the screen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ddpmon.format import known
from ddpmon.report.base_step import OF_BASE, of_base
from ddpmon.run.medians import median, row_medians
from ddpmon.snapshot import Heat, Ints, Metric
from ddpmon.tui.draw.bands import Bands

MISSING = 255
STOPS = (5, 10, 20, 50, 100)  # percent from which each further level begins; below the first one a cell is calm
LEVELS = len(STOPS) + 1
FEW = 3  # steps a cell. Chosen: of more nearly each cell has one of five steps
Levels = NDArray[np.uint8]
F32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Shown:
    """How a metric is drawn.

    Attributes:
        name: in the title.
        unit: of its values.
        of: what the stops are percent of, for the legend, from the most words to the fewest.
        percent: [any, W] what the colours show, from [any, W] of the metric's values.
        rises: whether of two values at one step the larger one has more percent, so that those of many ranks can be
            folded before: of thousands it takes long to work them all out.
    """

    name: str
    unit: str
    of: tuple[str, ...]
    percent: Callable[[Heat, F32], F32]
    rises: bool = True


def _of_step(heat: Heat, values: F32) -> F32:
    return of_base(values, heat.base_ms)


def _above_typical(heat: Heat, values: F32) -> F32:
    typical = heat.typical if known(heat.typical) else median(heat.values)
    return values * np.float32(100 / (typical or np.nan)) - np.float32(100)


def _below_others(heat: Heat, values: F32) -> F32:
    return np.float32(100) - _of_others(heat, values)


def _off_others(heat: Heat, values: F32) -> F32:
    off: F32 = np.abs(_of_others(heat, values) - np.float32(100))
    return off


def _of_others(heat: Heat, values: F32) -> F32:
    """Percent of the ranks' median at the same step."""
    typical = row_medians(heat.values.T)
    return (values * (100 / np.where(typical == 0, np.nan, typical))).astype(np.float32)


METRICS: dict[Metric, Shown] = {
    "lateness": Shown("lateness", "ms", OF_BASE, _of_step),
    "work": Shown("work", "ms", ("above typical",), _above_typical),
    "wait": Shown("wait", "ms", OF_BASE, _of_step),
    "input": Shown("input", "ms", OF_BASE, _of_step),
    "allreduce": Shown("all-reduce", "ms", OF_BASE, _of_step),
    "gpu": Shown("GPU utilisation", "%", ("below the others",), _below_others, rises=False),
    "power": Shown("GPU power", "W", ("below the others",), _below_others, rises=False),
    "clock": Shown("GPU clock", "MHz", ("below the others",), _below_others, rises=False),
    "memory": Shown("torch memory", "GiB", ("above typical",), _above_typical),
    "resident": Shown("resident memory", "GiB", ("above typical",), _above_typical),
    "loss": Shown("loss", "", ("off the others",), _off_others, rises=False),
}
OF_TYPICAL = {name for name, shown in METRICS.items() if shown.percent is _above_typical}  # for which `typical` counts


@dataclass(frozen=True, slots=True)
class Grid:
    """One row a band of ranks, one column a cell of the terminal.

    Attributes:
        levels: [bands, columns] 0 for calm to `LEVELS - 1`, `MISSING` where nothing is known.
        at: [columns] where in the heat's steps each column begins; neighbours may show the same steps.
        stride: the most steps that share a column.
        least: the fewest steps that share a column, except the first one.
        steps: [columns] the first step of each column.
        newest: the last step of the last column.
        rare: [bands, columns] whether some of the steps of a cell are not calm, and fewer than half of them; of a few
            steps a cell none is, because there the gaps between the cells show it.
    """

    levels: Levels
    at: Ints
    stride: int
    least: int
    steps: Ints
    newest: int
    rare: NDArray[np.bool_]

    def steps_in(self, column: int) -> slice:
        """Where in the heat's steps those of a column lie."""
        first = int(self.at[column])
        later = self.at[column:][self.at[column:] > first]
        return slice(first, int(later[0]) if len(later) else None)

    def column_of(self, step: int) -> int:
        """The first column that shows the step; -1 for a step before all."""
        place = int(np.searchsorted(self.steps, step, side="right")) - 1
        return place if place < 0 else int(np.searchsorted(self.steps, self.steps[place]))


def quantise(heat: Heat, columns: int, bands: Bands, named: Ints | None = None) -> Grid:
    """Fold ranks and steps to the room there is, taking the worst of each, and quantise to levels.

    Of a rank that a finding names what is not known is no calm cell: `named` [at least the highest rank shown + 1] is
    above 0 for such a rank. The columns fill the room at every number of steps, and show all of them: a cell of one
    step or several takes several columns where there are few.
    """
    at, least, stride = _columns(heat.step, columns)
    shown = METRICS[heat.metric]
    folded = _folded(heat.values, bands) if shown.rises else heat.values
    percent = shown.percent(heat, folded)[:, int(at[0]) :]
    if not shown.rises:
        percent = _folded(percent, bands)
    if named is not None and bands.folded:
        _leave_open(percent, heat.values[:, int(at[0]) :], bands, named)
    starts, cells = np.unique(at - at[0], return_inverse=True)
    rare = (
        _rare(percent, starts) if stride > FEW and not bands.folded else np.zeros((len(percent), len(starts)), np.bool_)
    )
    percent = np.fmax.reduceat(percent, starts, axis=1) if stride > 1 else percent[:, starts]
    levels = levels_of(percent)[:, cells]
    return Grid(levels, at, stride, least, heat.step[at], int(heat.step[-1]), rare[:, cells])


def _rare(percent: F32, starts: Ints) -> NDArray[np.bool_]:
    """[bands, cells] whether some of the known steps of a cell are not calm, and fewer than half of them."""
    loud = np.add.reduceat(percent >= STOPS[0], starts, axis=1, dtype=np.int32)
    known = np.add.reduceat(~np.isnan(percent), starts, axis=1, dtype=np.int32)
    few: NDArray[np.bool_] = (loud > 0) & (2 * loud < known)
    return few


def _folded(values: F32, bands: Bands) -> F32:
    """[bands, W] the largest of each band's ranks.

    Which way is fast depends on what lies side by side in memory: all ranks of a step, or all steps of a rank. The
    other way takes twelve times as long, and picking ranks of tables that lie by step seventeen times.
    """
    lies_by_step = values.strides[0] < values.strides[1]
    if not np.array_equal(bands.order, np.arange(len(values))):
        values = values.T.take(bands.order, axis=1).T if lies_by_step else values[bands.order]
    if not bands.folded:
        return values
    if lies_by_step:
        return np.fmax.reduceat(values, bands.starts, axis=0)
    return np.stack([np.fmax.reduce(band, axis=0) for band in np.split(values, bands.starts[1:])])


def _leave_open(percent: F32, values: F32, bands: Bands, named: Ints) -> None:
    """Make calm cells of [bands, W] unknown in the steps where nothing is known of those of their ranks that are named.

    `values` are [world, W].
    """
    for band in np.flatnonzero(np.maximum.reduceat(named[bands.order], bands.starts)).tolist():
        ranks = bands.ranks(band)
        unknown = np.isnan(values[ranks[named[ranks] > 0]]).all(axis=0)
        percent[band, unknown & (percent[band] < STOPS[0])] = np.nan


def _columns(step: Ints, columns: int) -> tuple[Ints, int, int]:
    """Where each column begins, and the fewest and the most steps that one holds.

    A few steps a cell are spread over all columns, so that a late step has one cell: what is late in every fifth step
    looks so. Of more steps a column begins at a multiple of the stride, so that a cell shows the same steps as further
    ones arrive; the first cell may have fewer, so there is one more than full ones.
    """
    if columns < len(step) <= FEW * columns:
        return np.arange(columns) * len(step) // columns, len(step) // columns, -(-len(step) // columns)
    stride = 1 if len(step) <= columns else -(-len(step) // max(columns - 1, 1))
    starts = np.flatnonzero(np.r_[True, (step[1:] // stride) != (step[:-1] // stride)])[-columns:]
    return starts[np.arange(columns) * len(starts) // columns].astype(np.int64), stride, stride


def levels_of(percent: F32) -> Levels:
    """The level of each value in percent, `MISSING` where it is not known."""
    levels = np.searchsorted(np.array(STOPS, np.float32), np.nan_to_num(percent, nan=0.0), side="right")
    return np.where(np.isnan(percent), MISSING, levels).astype(np.uint8)
