"""A table of text into columns of numbers; what cannot be read is named by its line and left out."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct

from ddpmon.table.csv_lines import Heading, Lines, TableError, listed, read_heading, split_line
from ddpmon.table.fields import COLUMNS, NODE, Array, Column, numbers

NAMED = 5
_CELL = 40


class Table(Struct, frozen=True):
    """The rows that can be read, in the order of the file.

    Attributes:
        source: what the table is called.
        values: column -> [n] float64, NaN where it is missing; all columns that were looked for.
        broken_loss: [n] whether the row says that its loss is not finite.
        nodes: rank -> the node that it names.
        complaints: the first rows that cannot be read, each with its line number and the reason.
        refused: how many there are.
        notes: what a reader should know of it.
    """

    source: str
    values: dict[str, Array]
    broken_loss: Array
    nodes: dict[int, str]
    complaints: tuple[str, ...]
    refused: int
    notes: tuple[str, ...]


def read_table(stream: io.BufferedReader, source: str) -> Table:
    """Read a table.

    Raises:
        TableError: its heading lacks what is needed, or no row can be read.
        OSError: the stream cannot be read.
    """
    lines = Lines(stream)
    return Reader(lines, read_heading(lines, source), source, COLUMNS).table()


class Reader:
    """Reads the rows below a heading."""

    def __init__(self, lines: Lines, heading: Heading, source: str, columns: Mapping[str, Column]) -> None:
        self._lines, self._heading, self._source, self._columns = lines, heading, source, columns
        self._chunks: list[dict[str, Array]] = []
        self._nodes: dict[int, str] = {}
        self._complaints: list[tuple[int, str]] = []
        self._refused = 0
        self._headings = 0

    def table(self) -> Table:
        """The whole table.

        Raises:
            TableError: no row can be read.
        """
        for first, lines in self._lines.blocks():
            numbered, rows = self._rows(first, lines)
            if rows:
                self._take(numbered, rows)
        complaints = tuple(text for _, text in self._complaints)
        if not any(len(chunk["step"]) for chunk in self._chunks):
            reason = f": {complaints[0]}" if complaints else " below its heading"
            raise TableError(f"{self._source} has no readable row{reason}")
        joined = {name: np.concatenate([chunk[name] for chunk in self._chunks]) for name in self._chunks[0]}
        broken = joined.pop("broken_loss").astype(bool)
        notes = tuple(self._notes())
        return Table(self._source, joined, broken, self._nodes, complaints, self._refused, notes)

    def _notes(self) -> Iterator[str]:
        if self._refused:
            yield f"left out: {self._refused:,} unreadable row{'s' if self._refused > 1 else ''}"
        if self._heading.unknown:
            yield f"not used: {listed([*self._heading.unknown])}"
        if self._headings:
            yield f"the heading is repeated {self._headings} time{'s' if self._headings > 1 else ''}"

    def _rows(self, first: int, lines: list[str]) -> tuple[Sequence[int], list[list[str]]]:
        """The rows among these lines, as wide as the heading, and their line numbers."""
        separator, width = self._heading.separator, len(self._heading.cells)
        try:
            rows = list(csv.reader(lines, delimiter=separator, skipinitialspace=True, strict=True))
        except csv.Error:
            rows = []
        if len(rows) == len(lines) and {*map(len, rows)} == {width}:
            return range(first, first + len(lines)), rows
        numbered = [(number, self._row(number, line)) for number, line in enumerate(lines, first)]
        kept = [(number, row) for number, row in numbered if row is not None]
        return [number for number, _ in kept], [row for _, row in kept]

    def _row(self, number: int, line: str) -> list[str] | None:
        """One line's cells; None where they are no row, which is said unless the line is empty."""
        cells, width = split_line(line, self._heading.separator), len(self._heading.cells)
        if cells is None:
            self._refuse(number, "a quote is not closed, or a cell does not end")
        elif any(cells) and (len(cells) < width or any(cells[width:])):
            self._refuse(number, f"{len(cells)} cell{'s' if len(cells) > 1 else ''} where the heading has {width}")
        elif any(cells):
            return cells[:width]
        return None

    def _refuse(self, line: int, reason: str) -> None:
        self._refused += 1
        if len(self._complaints) < NAMED or line < self._complaints[-1][0]:
            self._complaints.append((line, f"{self._source}:{line}: {reason}"))
            self._complaints = sorted(self._complaints)[:NAMED]

    def _take(self, lines: Sequence[int], rows: list[list[str]]) -> None:
        cells = list(zip(*rows, strict=True))
        values: dict[str, Array] = {"broken_loss": np.zeros(len(rows), bool)}
        wrong: dict[str, Array] = {}
        for name, column in self._columns.items():
            if name not in self._heading.place:
                values[name] = np.full(len(rows), np.nan)
                continue
            read = column.read or numbers
            values[name], missing, strange = read(cells[self._heading.place[name]])
            said_nothing = (missing | np.isnan(values[name])) & ~strange
            wrong[name] = ~(said_nothing & (not column.needed) | ~strange & column.fits(values[name]))
            if name == "loss":
                values["broken_loss"] = ~(np.isfinite(values[name]) | missing | strange)
        good = ~np.any([*wrong.values()], axis=0)
        for at in np.flatnonzero(~good).tolist():
            self._name(lines[at], rows[at], next(name for name, faults in wrong.items() if faults[at]))
        self._chunks.append({name: column[good] for name, column in values.items()})
        self._take_nodes(cells)

    def _name(self, line: int, row: list[str], column: str) -> None:
        if row == self._heading.cells:
            self._headings += 1
            return
        cell = row[self._heading.place[column]]
        shown = cell if len(cell) <= _CELL else cell[:_CELL] + "..."
        point = ", with a decimal point" if "," in cell else ""
        self._refuse(line, f"{column} is {shown!r}, expected {self._columns[column].expected}{point}")

    def _take_nodes(self, cells: list[tuple[str, ...]]) -> None:
        if NODE not in self._heading.place:
            return
        for rank, node in set(zip(cells[self._heading.place["rank"]], cells[self._heading.place[NODE]], strict=True)):
            number, _, _ = numbers((rank,))
            if node.strip() and np.isfinite(number[0]):
                self._nodes[int(number[0])] = node.strip()[:64]
