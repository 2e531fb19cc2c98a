"""The steps of a recording as the table that `ddpmon diagnose` judges: as CSV, and as what its reader makes of that."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from ddpmon.recording.layout import COLUMNS, RecordingError
from ddpmon.recording.reader import Recording
from ddpmon.report.wording import clean
from ddpmon.table.fields import COLUMNS as TABLE_COLUMNS
from ddpmon.table.fields import Array
from ddpmon.table.read import Table

_COLUMNS = ("step", "rank", *COLUMNS)
_QUERY = f"SELECT {', '.join(_COLUMNS)} FROM steps WHERE run = ? AND life = ? AND step BETWEEN ? AND ? ORDER BY id"
HEADING = (*_COLUMNS, "node")


class StepTable:
    """The newest life of the newest run of a recording: step numbers count from the beginning in each.

    Args:
        source: the recording, or its file.
        steps: the first and the last step that are wanted; None for all.

    Raises:
        RecordingError: the file is no recording, or has no steps.
    """

    def __init__(self, source: Path | Recording, steps: tuple[int, int] | None = None) -> None:
        self._path = source if isinstance(source, Path) else "the run"
        self._recording = Recording(source) if isinstance(source, Path) else source
        self._steps = steps or (0, 1 << 62)
        newest = "SELECT run, life FROM steps ORDER BY id DESC LIMIT 1"
        found = next(self._recording.rows(newest), None)
        if found is None:
            self.close()
            raise RecordingError(f"{self._path} holds no finished step of a run")
        self.run, self.life = found

    def close(self) -> None:
        """Let go of the file."""
        self._recording.close()

    @property
    def notes(self) -> list[str]:
        """What of the recording is damaged."""
        return self._recording.notes

    def nodes(self) -> dict[int, str]:
        """Rank -> the name of its host."""
        rows = self._recording.rows("SELECT rank, host FROM ranks WHERE run = ?", self.run)
        return {int(rank): clean(str(host), 64) for rank, host in rows if isinstance(rank, int) and host}

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """The rows in the order of steps and ranks: step, rank, and the columns; None where unknown."""
        yield from self._recording.rows(_QUERY, self.run, self.life, *self._steps)

    def values(self) -> Array:
        """[n, 2 + columns] the same as numbers, NaN where unknown; what is no number is left out and noted."""
        return self._recording.numbers(_QUERY, 2 + len(COLUMNS), self.run, self.life, *self._steps)

    def write_csv(self, out: TextIO) -> int:
        """Write them as CSV; how many rows there were."""
        nodes, count = self.nodes(), 0
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(HEADING)
        with np.errstate(over="ignore"):  # a damaged recording may hold what float32 does not
            for row in self.rows():
                writer.writerow([*map(_text, row), nodes.get(row[1], "")])
                count += 1
        return count

    def table(self) -> Table:
        """What the reader of tables makes of that CSV.

        Raises:
            RecordingError: no row can be read.
        """
        read = self.values()
        found: dict[str, Array] = dict(zip(_COLUMNS, read.T, strict=True))
        good = np.ones(len(read), bool)
        for name, column in TABLE_COLUMNS.items():
            if name in found:
                with np.errstate(invalid="ignore"):
                    good &= (np.isnan(found[name]) & (not column.needed)) | column.fits(found[name])
            else:
                found[name] = np.full(len(read), np.nan)
        if not good.any():
            raise RecordingError(f"{self._path} holds no step that can be read")
        found = {name: column[good] for name, column in found.items()}
        broken = np.isinf(found["loss"])
        refused = int(len(read) - good.sum())
        return Table(str(self._path), found, broken, self.nodes(), (), refused, tuple(self.notes))


def _text(value: Any) -> str:
    """The shortest text that gives the number back: ranks tell float32, so `0.1` and not `0.10000000149`."""
    if isinstance(value, float):
        single = np.float32(value)
        return str(single) if single == value else repr(value)
    return "" if value is None else repr(value)
