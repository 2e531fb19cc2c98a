"""What a heat-map shows in some room: ranks as rows, steps as columns, and the cell under its cursor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ddpmon.format import known
from ddpmon.run.medians import median
from ddpmon.snapshot import Heat, Ints
from ddpmon.tui.draw.bands import FRAME, Bands, bands_of, named_ranks, naming_worth
from ddpmon.tui.draw.grid import METRICS, MISSING, OF_TYPICAL, Grid, levels_of, quantise
from ddpmon.tui.view_state import ViewState


@dataclass(frozen=True, slots=True)
class Cursor:
    """What the cursor is on: a rank, and a step, None for the newest one, also once further steps have come."""

    rank: int
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    """The cell under the cursor, and the rank and the step that it is read for.

    Attributes:
        band: the row. column: the first column of the step.
        rank: the cursor's rank if its cell has this colour, else the worst one of the row.
        step: the cursor's step if it has this colour, else the worst one of the cell.
        value: of this rank at this step; NaN where it is not known.
        percent: the same as coloured.
        steps: how many steps the cell shows.
        is_worst: whether no other rank and step of the cell has more percent.
        is_newest: whether the cell shows the newest step.
    """

    band: int
    column: int
    rank: int
    step: int
    value: float
    percent: float
    steps: int
    is_worst: bool
    is_newest: bool

    @property
    def cursor(self) -> Cursor:
        """The cursor on this cell."""
        return Cursor(self.rank, None if self.is_newest else self.step)


@dataclass(frozen=True, slots=True)
class Layout:
    """A metric on the rows and columns that there is room for.

    Attributes:
        heat: the metric.
        bands: the rows.
        grid: the cells.
        marked: [at least the highest rank shown + 1] see `named_ranks`.
        worth: as long; see `naming_worth`.
    """

    heat: Heat
    bands: Bands
    grid: Grid
    marked: Ints
    worth: Ints

    def cell(self, cursor: Cursor) -> Cell:
        """The cell under the cursor: at an edge where its step is not shown, in the first row where its rank is not."""
        return self._cell(self.bands.band_of(cursor.rank), self._place_of(cursor.step), cursor.rank, cursor.step)

    def beside(self, cursor: Cursor, rows: int, cells: int) -> Cell:
        """The cell so many rows below and so many cells later; one that shows one step may take several columns."""
        band, place = self.bands.band_of(cursor.rank), self._place_of(cursor.step)
        there = max(0, min(place + cells, len(self._starts) - 1))
        below = max(0, min(band + rows, len(self.bands.starts) - 1))
        return self._cell(below, there, cursor.rank, cursor.step if there == place else None)

    def at(self, cursor: Cursor, band: int, column: int) -> Cell:
        """The cell that is drawn in this row and column, where a click has moved the cursor to."""
        column = max(0, min(column, len(self.grid.steps) - 1))
        band = max(0, min(band, len(self.bands.starts) - 1))
        return self._cell(band, self._place_of(int(self.grid.steps[column])), cursor.rank, None)

    @property
    def _starts(self) -> Ints:
        """The first step of each column: once where several columns show the same steps."""
        return np.unique(self.grid.steps)

    def _place_of(self, step: int | None) -> int:
        """Where in `_starts` the column of a step is; the first one of a step before all."""
        starts = self._starts
        return len(starts) - 1 if step is None else max(int(np.searchsorted(starts, step, side="right")) - 1, 0)

    def _leader(self, band: int) -> int:
        """The rank that a row is named after: one that a finding names, else its first."""
        named = self.bands.label_of(band, band + 1, self.worth)[1]
        return named if named >= 0 else int(self.bands.ranks(band)[0])

    def _cell(self, band: int, place: int, rank: int, step: int | None) -> Cell:
        """The cell of a row and a column, read for this rank and step if they have the colour of the cell."""
        column = self.grid.column_of(int(self._starts[place]))
        ranks, here = self.bands.ranks(band), self.grid.steps_in(column)
        rank = rank if rank in ranks else self._leader(band)
        heat = _part(self.heat, here)
        steps, values = heat.step, heat.values[ranks]
        percent = METRICS[heat.metric].percent(heat, values)
        read = _read(percent, int(self.grid.levels[band, column]), ranks == rank, steps == step)
        newest = place == len(self._starts) - 1
        if read is None:
            step = int(steps[0]) if step is None or step not in steps else step
            return Cell(band, column, rank, step, np.nan, np.nan, len(steps), False, newest)
        value, share, is_worst = float(values[read]), float(percent[read]), bool(percent[read] >= np.nanmax(percent))
        row, at = read
        return Cell(band, column, int(ranks[row]), int(steps[at]), value, share, len(steps), is_worst, newest)


def _read(percent: np.ndarray, level: int, mine: np.ndarray, now: np.ndarray) -> tuple[int, int] | None:
    """Which rank and step a cell is read for: (row, place) in `percent` [ranks, steps]; None where nothing is known.

    Of those that have the cell's `level` these of the rank `mine` [ranks] come first, of them the step `now` [steps],
    and else the worst. A cell that is left open is read for this rank alone.
    """
    wanted = (levels_of(percent) == level) if level != MISSING else ~np.isnan(percent) & mine[:, None]
    for preferred in (mine[:, None], now[None, :]):
        wanted = wanted & preferred if (wanted & preferred).any() else wanted
    if not wanted.any():
        return None
    row, place = np.unravel_index(int(np.where(wanted, percent, -np.inf).argmax()), percent.shape)
    return int(row), int(place)


def lay_out(picture: ViewState, width: int, height: int, wanted: str = "", only: Sequence[int] = ()) -> Layout | None:
    """The layout in so many cells and lines; None without steps or room, and where the filter `wanted` fits no rank.

    `only` are the ranks to show, in this order; empty for all.
    """
    heat = shown_heat(picture)
    if heat is None or heat.values.size == 0 or height < FRAME + 1:
        return None
    bands = bands_of(picture, height, wanted, only)
    if bands is None:
        return None
    heat, marked = _part(heat, slice(None)), named_ranks(bands, picture)
    grid = quantise(heat, max(width - bands.gutter - 1, 1), bands, marked)
    return Layout(heat, bands, grid, marked, naming_worth(marked, picture))


def shown_heat(picture: ViewState) -> Heat | None:
    """The metric that the reader asks for, else lateness, over the steps that the reader has zoomed in on."""
    heat = picture.snapshot.chosen_heat or picture.snapshot.heat
    if heat is None or not 0 < picture.zoom < len(heat.step):
        return heat
    return _part(heat, slice(-picture.zoom, None))


def _part(heat: Heat, steps: slice) -> Heat:
    """The metric at some of its steps; what is typical is so of all of them, and found once."""
    typical = median(heat.values) if heat.metric in OF_TYPICAL and not known(heat.typical) else heat.typical
    values, base_ms = heat.values[:, steps], heat.base_ms[steps]
    return replace(heat, step=heat.step[steps], values=values, base_ms=base_ms, typical=float(typical))
