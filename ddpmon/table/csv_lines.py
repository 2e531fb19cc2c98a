"""A stream of bytes as numbered lines of text, and its heading."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct

from ddpmon.table.fields import COLUMNS, NODE, Column, normal

LONGEST = 1 << 16
_BLOCK = 1 << 20
SEPARATORS = (",", ";", "\t")
_SHOWN = 5


class TableError(ValueError):
    """A table that cannot be judged; the message says why in one sentence."""


class Lines:
    """Text lines, CRLF or LF, UTF-8 or UTF-16 with its mark; what is no text becomes replacement characters.

    A line longer than 65,536 characters loses what follows them.

    Attributes:
        number: the next line's, counted from 1.
    """

    def __init__(self, stream: io.BufferedReader) -> None:
        start = stream.peek(2)[:2]
        encoding = "utf-16" if start in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8-sig"
        self._text = io.TextIOWrapper(stream, encoding, errors="replace")
        self.number = 1

    def one(self) -> str:
        """The next line with its end; empty at the end of the stream."""
        line = rest = self._text.readline(LONGEST)
        while len(rest) == LONGEST and not rest.endswith("\n"):
            rest = self._text.readline(LONGEST)
        self.number += 1
        return line

    def blocks(self) -> Iterator[tuple[int, list[str]]]:
        """All lines from here on, without their ends, in large pieces: the number of the first, and the lines."""
        rest = ""
        while text := self._text.read(_BLOCK):
            *lines, rest = (rest + text).split("\n")
            rest = rest[:LONGEST]
            yield self.number, lines
            self.number += len(lines)
        if rest:
            yield self.number, [rest]


class Heading(Struct, frozen=True):
    """The first line that is not empty.

    Attributes:
        cells: as they stand there. separator: between cells.
        place: column -> which cell.
        unknown: headings that say nothing to us.
    """

    cells: list[str]
    separator: str
    place: dict[str, int]
    unknown: tuple[str, ...]


def read_heading(
    lines: Lines,
    source: str,
    columns: Mapping[str, Column] = COLUMNS,
    check: Callable[[Heading, str], None] | None = None,
) -> Heading:
    """Find out which of `columns` there are; `check` raises TableError where those are not enough.

    Raises:
        TableError: there is no heading, or a needed column is missing from it.
    """
    line = lines.one()
    while line and not line.strip():
        line = lines.one()
    if not line:
        raise TableError(f"{source} is empty: its first line must name the columns")
    heading = max((_split(line, separator, columns) for separator in SEPARATORS), key=lambda found: len(found.place))
    (check or _check)(heading, source)
    return heading


def _split(line: str, separator: str, columns: Mapping[str, Column]) -> Heading:
    cells = split_line(line, separator) or []
    names = [normal(cell) for cell in cells]
    known = [name for name in names if name in columns or name == NODE]
    place = {name: names.index(name) for name in known}
    unknown = [cell.strip() for cell, name in zip(cells, names, strict=True) if name and name not in place]
    twice = [name for name in place if known.count(name) > 1]
    return Heading(cells, separator, place, (*unknown, *(f"{name} a second time" for name in twice)))


def split_line(line: str, separator: str) -> list[str] | None:
    """The cells of one line; None where they cannot be told, as with a quote that is not closed."""
    try:
        return next(csv.reader([line.strip("\r\n")], delimiter=separator, skipinitialspace=True, strict=True), [])
    except csv.Error:
        return None


def _check(heading: Heading, source: str) -> None:
    place = heading.place
    if not place:
        raise TableError(
            f"{source} is not a table: its first line must name the columns, at least step, rank, duration_ms and "
            f"exposed_ms, or step, rank and work_ms"
        )
    need_columns(heading, source, ("step", "rank"))
    if "work_ms" in place or {"duration_ms", "exposed_ms"} <= {*place}:
        return
    if "duration_ms" not in place:
        raise TableError(f"{source} needs a column work_ms, or duration_ms and exposed_ms; it has {_has(heading)}")
    raise TableError(
        f"{source} has duration_ms, but neither exposed_ms nor work_ms: under synchronous DDP every rank's step takes "
        f"equally long, so durations alone do not show who is late"
    )


def need_columns(heading: Heading, source: str, names: Sequence[str]) -> None:
    """Check that columns are there.

    Raises:
        TableError: one is not.
    """
    missing = [name for name in names if name not in heading.place]
    if missing:
        raise TableError(f"{source} has no column {' and no column '.join(missing)}; it has {_has(heading)}")


def _has(heading: Heading) -> str:
    strange = f", and the unknown {listed([*heading.unknown])}" if heading.unknown else ""
    return f"{listed([*heading.place])}{strange}"


def listed(words: list[str]) -> str:
    """Words in a row, the first five and how many more."""
    more = f" and {len(words) - _SHOWN} more" if len(words) > _SHOWN else ""
    return ", ".join(word[:40] for word in words[:_SHOWN]) + more
