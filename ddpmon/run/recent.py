"""Every rank's last 20 steps in one figure a column, computed again only for the ranks that have sent new steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ddpmon.run.medians import row_medians
from ddpmon.run.rings import F32, I64, Rings
from ddpmon.schema import PHASES

RECENT = 20  # steps behind every median on the screen
_COLUMNS = ("duration", "exposed", "barrier", "wait", "allreduce", *PHASES, "loss")
F64 = NDArray[np.float64]


class Recent:
    """Medians of a rank's own last 20 steps on record, and the latest known loss.

    Where none of these steps has an all-reduce time, it is the latest known one.
    """

    def __init__(self, rings: Rings) -> None:
        self._rings = rings
        self._figures = {name: np.full(len(rings.last), np.nan) for name in _COLUMNS}

    def figures(self) -> dict[str, F64]:
        """Column -> [world], NaN where unknown; the caller's own."""
        rows = np.flatnonzero(self._rings.touched)
        self._rings.touched[rows] = False
        if rows.size:
            self._take(rows)
        return {name: figures.copy() for name, figures in self._figures.items()}

    def work(self, rows: I64) -> F64:
        """[len(rows)] the median work of these ranks."""
        return row_medians(self._newest(("work",), rows)[0])

    def _take(self, rows: I64) -> None:
        """Work out the figures of these ranks again."""
        waits_apart = not self._rings.is_nothing("barrier")
        names = [name for name in _COLUMNS if name != "wait" or waits_apart]
        for name, values in zip(names, self._newest(names, rows), strict=True):
            if self._rings.is_uniform(name):
                self._figures[name][rows] = values[:, -1]
            else:
                self._figures[name][rows] = _last_known(values) if name == "loss" else row_medians(values)
        if not waits_apart:
            self._figures["wait"][rows] = self._figures["exposed"][rows]
        unseen = rows[np.isnan(self._figures["allreduce"][rows])]  # on a GPU it is sampled once in a hundred steps
        if unseen.size:
            self._figures["allreduce"][unseen] = self._newest_known("allreduce", unseen)

    def _newest(self, names: Sequence[str], rows: I64) -> list[F32]:
        """A [rows, 20] table a column: the newest steps on record, oldest first; NaN before a rank's first."""
        rings = self._rings
        steps = rings.last[rows] - np.arange(RECENT - 1, -1, -1)[:, None]
        cells = rings.cells(rows, steps % rings.capacity)
        known: NDArray[np.bool_] = (rings.steps_in(cells) == steps.astype(rings.step.dtype)) & (steps >= 0)
        holes = np.flatnonzero(~known.all(axis=0))  # steps that were thinned, or a run that has just begun
        if holes.size:
            newest = np.argsort(rings.step[rows[holes]], axis=1)[:, -RECENT:].T
            cells[:, holes] = rings.cells(rows[holes], newest)
            known[:, holes] = rings.steps_in(cells[:, holes]) >= 0
        tables = rings.values_in(names, cells)
        if not known.all():
            tables = [np.where(known, table, np.float32(np.nan)) for table in tables]
        return [table.T for table in tables]

    def _newest_known(self, name: str, rows: I64) -> NDArray[np.float32]:
        values = self._rings.of(name, rows)
        steps = np.where(np.isnan(values), -1, self._rings.step[rows])
        newest = steps.argmax(axis=1)
        at = np.arange(len(rows))
        return np.where(steps[at, newest] >= 0, values[at, newest], np.float32(np.nan))


def _last_known(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """[rows] the newest known of each rank's values, which stand in order of steps."""
    known = ~np.isnan(values)
    newest = values.shape[1] - 1 - np.argmax(known[:, ::-1], axis=1)
    return np.where(known.any(axis=1), values[np.arange(len(values)), newest], np.float32(np.nan))
