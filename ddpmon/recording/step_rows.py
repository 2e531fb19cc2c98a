"""The tables `steps` and `job` of a recording: finished steps, carried over from the `Run` as it goes on."""

from __future__ import annotations

import sqlite3

import numpy as np

from ddpmon.recording.bounds import Bounds, Thinner
from ddpmon.recording.layout import JOB_COLUMNS, QUANTITIES, STEP_BITS
from ddpmon.run.model import Run
from ddpmon.run.rings import I64

ROWS_A_LOOK = 2048  # of `steps` on average; chosen: at 93 bytes each, 0.7 GB an hour before they are thinned
_NAMES = (*QUANTITIES, "loss", "samples", "allreduce")
_MOST_EPOCHS = 1 << 13
_STEP = f"INSERT OR REPLACE INTO steps VALUES (?, ?, ?, ?, ?{', ?' * len(_NAMES)})"
_JOB = f"INSERT OR REPLACE INTO job VALUES (?, ?, ?, ?, ?{', ?' * len(JOB_COLUMNS)})"
StepMark = tuple[int, int, int, int, list[tuple[Thinner, int]]]


class StepRows:
    """Writes the steps of one life of a run: its steps are counted from the beginning in the next one.

    A step has its rows once every rank that takes part has finished it. If the run is so fast or so large that these
    are too many, every second, fourth, ... step is written.

    Args:
        run: its number in the recording. life: how often the run has started again before.
        epoch: the number of this life among all in the recording.
        model: the run. bounds: of the recording.

    Attributes:
        life: as given.
        written: the newest step of `steps`, or of those passed over.
    """

    def __init__(self, run: int, life: int, epoch: int, model: Run, bounds: Bounds) -> None:
        self._run, self.life, self._base = run, life, epoch << STEP_BITS
        self._model, self._ranks = model, model.info.world_size
        self._last = (1 << STEP_BITS) // self._ranks if epoch < _MOST_EPOCHS else -1
        self._stride, self._credit = 1, 0
        self.written = self._job_written = -1
        self._series = model.series
        self._thinners: tuple[Thinner, ...] = ()
        self._epoch, self._bounds = epoch, bounds

    @property
    def is_over(self) -> bool:
        """Whether the run has started again since."""
        return self._model.series is not self._series

    def mark(self) -> StepMark:
        """How far it has come, for `go_back`."""
        thinned = [(thinner, thinner.newest) for thinner in self._thinners]
        return self.written, self._job_written, self._stride, self._credit, thinned

    def go_back(self, mark: StepMark) -> None:
        """What was written since has been rolled back: write it again."""
        self.written, self._job_written, self._stride, self._credit, thinned = mark
        self._thinners = tuple(thinner for thinner, _ in thinned)
        for thinner, newest in thinned:
            thinner.newest = newest

    def catch_up(self, book: sqlite3.Connection, wall: float) -> None:
        """Carry over everything that is finished, however much that is.

        Raises:
            sqlite3.Error: the file cannot be written.
        """
        before = -2
        while before < self.written:
            before, self._credit = self.written, 1 << 30
            self.write(book, wall)

    def write(self, book: sqlite3.Connection, wall: float) -> None:
        """Carry over what has been finished since; `wall` is the Unix time.

        Raises:
            sqlite3.Error: the file cannot be written.
        """
        newest = min(self._series.newest, self._last)
        self._write_job(book, newest, wall)
        rings = self._model.rings
        oldest = newest - rings.capacity + 1
        if max(self.written, oldest - 1) < newest - rings.capacity // 2:
            self._hurry(oldest)
        self._credit = max(self._credit, min(self._credit + ROWS_A_LOOK, 8 * ROWS_A_LOOK + 2 * self._ranks))
        many = self._credit // self._ranks * self._stride
        start = max(self.written + 1, oldest, 0)
        steps = np.arange(start, min(newest + 1, start + many))
        if steps.size:
            self.written = int(steps[-1])
            self._write_steps(book, steps[steps % self._stride == 0])
            self._thin(book, newest)

    def _hurry(self, oldest: int) -> None:
        """It lies behind by half of what the run remembers: pass every second step over."""
        if self.written >= 0 and self._stride < 1 << 20:
            self._stride *= 2
        self.written = max(self.written, oldest - 1)

    def _write_steps(self, book: sqlite3.Connection, steps: I64) -> None:
        present = self._model.rings.present(steps)
        tables = self._model.rings.takes(_NAMES, steps)
        who, at = np.nonzero(present)
        order = np.lexsort((who, at))
        who, at = who[order], at[order]
        self._credit -= len(who)
        numbers = np.stack([self._base + steps[at] * self._ranks + who, steps[at], who]).T.tolist()
        values = tables[:, who, at].T.astype(np.float64).tolist()
        run, life = self._run, self.life
        book.executemany(_STEP, [(i, run, life, s, r, *row) for (i, s, r), row in zip(numbers, values, strict=True)])

    def _write_job(self, book: sqlite3.Connection, newest: int, wall: float) -> None:
        points = self._series.points
        fresh = points[(points[:, 0] > self._job_written) & (points[:, 0] <= newest)]
        if len(fresh):
            self._job_written = int(fresh[-1, 0])
            rows = [
                (self._base + int(step), self._run, self.life, int(step), wall, *rest)
                for step, *rest in fresh[:, : 1 + len(JOB_COLUMNS)].tolist()
            ]
            book.executemany(_JOB, rows)

    def _thin(self, book: sqlite3.Connection, newest: int) -> None:
        if not self._thinners:
            whole, points = self._bounds.whole_steps(self._ranks), self._bounds.whole_points()
            self._thinners = (
                Thinner("steps", self._ranks, whole, self._epoch, max(0, newest - self._model.rings.capacity)),
                Thinner("job", 1, points, self._epoch, max(0, newest - self._model.rings.capacity)),
            )
        for thinner in self._thinners:
            thinner.reach(book, newest)
