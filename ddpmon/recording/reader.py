"""Reads a recording, as far as it is sound: its runs, its looks in their order, and where a moment lies."""

from __future__ import annotations

import bisect
import itertools
import math
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddpmon.codec import decode
from ddpmon.recording.layout import RecordingError, open_to_read
from ddpmon.recording.looks import DamageError, Look, Part, dictionary_of, key_of, look_of, unsqueezed
from ddpmon.schema import FrameError, RunInfo

_MOST_NOTES = 5
_ROWS_AT_ONCE = 1 << 14


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a recording that can be read without those before it.

    Attributes:
        number, run, life: its own, that of its run, and how often that had started again.
        kind: "first" of a run, "after a gap", or empty where it goes on from the one before.
        t, wall, step: when it begins: seconds since the recording began, Unix time, the run's newest step.
    """

    number: int
    run: int
    life: int
    kind: str
    t: float
    wall: float
    step: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where a look lies: its number, its chunk, and when it was, as `Chunk` has it."""

    look: int
    chunk: int
    t: float
    wall: float
    step: int
    findings: bool


class Recording:
    """One recording; for one thread.

    Args:
        source: its file, or a database that is being recorded to.

    Attributes:
        notes: what is damaged or missing, in sentences.

    Raises:
        RecordingError: it is none, of a newer ddpmon, or nothing of it can be read.
    """

    def __init__(self, source: Path | sqlite3.Connection) -> None:
        self.notes: list[str] = []
        self._owns = isinstance(source, Path)
        self.book = open_to_read(source) if isinstance(source, Path) else source
        self._chunks: list[Chunk] = []
        self._infos: dict[int, RunInfo] = {}
        self._keys: tuple[int, list[Part], bytes] = 0, [], b""
        self._places: tuple[int, list[Place]] = 0, []
        self.refresh()
        if self._owns and not self._chunks:
            self.close()
            raise RecordingError(f"{source} is a recording without any content: {self._why_empty()}")

    def _why_empty(self) -> str:
        return self.notes[0] if self.notes else "its recorder had not seen a run yet"

    def close(self) -> None:
        """Let go of the file."""
        if self._owns:
            self.book.close()

    def note(self, text: str) -> None:
        """Take down, once, that something is damaged."""
        if text not in self.notes and len(self.notes) < _MOST_NOTES:
            self.notes.append(text)

    def rows(self, query: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        """The rows of a query, up to the damage, which is noted."""
        try:
            yield from self.book.execute(query, values)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            self.note(f"the recording is damaged: {error}; what is shown is what could be read")

    def numbers(self, query: str, width: int, *values: Any) -> NDArray[np.float64]:
        """[n, width] the rows of a query, NaN where nothing is known; what is no number is left out and noted."""
        rows, parts = self.rows(query, *values), [np.empty((0, width))]
        while some := list(itertools.islice(rows, _ROWS_AT_ONCE)):
            try:
                parts.append(np.array(some, np.float64).reshape(-1, width))
            except (ValueError, TypeError):
                self.note("the recording is damaged: some steps hold what is no number")
        return np.concatenate(parts)

    def columns(self, table: str) -> set[str]:
        """The names of the columns of a table: older versions have fewer."""
        return {name for _, name, *_ in self.rows(f"PRAGMA table_info({table})")}

    def refresh(self) -> None:
        """Look which chunks there are by now: some may have been added, and the oldest dropped."""
        sound = "WHERE typeof(chunk) || typeof(run) || typeof(life) || typeof(step) = 'integerintegerintegerinteger' "
        sound += "AND typeof(t) = 'real' AND typeof(wall) = 'real' AND typeof(kind) = 'text'"
        query = f"SELECT chunk, run, life, kind, t, wall, step FROM chunks {sound} ORDER BY chunk"
        self._chunks = [Chunk(*row) for row in self.rows(query)]

    @property
    def chunks(self) -> list[Chunk]:
        """All chunks in their order."""
        return self._chunks

    def info(self, run: int) -> RunInfo:
        """What a run says of itself.

        Raises:
            DamageError: it cannot be read.
        """
        if run not in self._infos:
            found = self._bytes("SELECT description FROM runs WHERE run = ?", run)
            try:
                self._infos[run] = decode("the run's description", found, RunInfo)
            except FrameError as error:
                raise DamageError(f"run {run} cannot be read ({error})") from None
        return self._infos[run]

    def key(self, chunk: Chunk) -> tuple[list[Part], bytes]:
        """The parts that a chunk begins with, and what its looks are packed with.

        Raises:
            DamageError: they cannot be read.
        """
        if self._keys[0] != chunk.number:
            parts = key_of(unsqueezed(self._bytes("SELECT key FROM chunks WHERE chunk = ?", chunk.number), b""))
            self._keys = chunk.number, parts, b"" if chunk.kind == "first" else dictionary_of(parts)
        return self._keys[1:]

    def places(self, chunk: Chunk) -> list[Place]:
        """The looks of a chunk in their order; read again for the last chunk, which may grow."""
        if self._places[0] != chunk.number or chunk is self._chunks[-1]:
            self._places = chunk.number, [*self._looks("chunk = ? ORDER BY look", chunk.number)]
        return self._places[1]

    def look(self, place: Place, chunk: Chunk) -> Look:
        """A look.

        Raises:
            DamageError: it cannot be read.
        """
        found = self._bytes("SELECT data FROM frames WHERE look = ?", place.look)
        return look_of(unsqueezed(found, self.key(chunk)[1]))

    def _bytes(self, query: str, number: int) -> bytes:
        """The one value of a query; none is empty. `bytes` of a number would take as much memory as the number says."""
        found = next(self.rows(query, number), (b"",))[0]
        if not isinstance(found, bytes):
            raise DamageError("there is a number or a text where there should be bytes")
        return found

    def first(self) -> Place | None:
        """The first look."""
        return next((places[0] for chunk in self._chunks if (places := self.places(chunk))), None)

    def last(self) -> Place | None:
        """The newest look."""
        return next((places[-1] for chunk in reversed(self._chunks) if (places := self.places(chunk))), None)

    def chunk_of(self, place: Place) -> Chunk:
        """The chunk of a look.

        Raises:
            DamageError: it is missing.
        """
        at = bisect.bisect_left(self._chunks, place.chunk, key=lambda chunk: chunk.number)
        if at == len(self._chunks) or self._chunks[at].number != place.chunk:
            raise DamageError("what its part of the recording begins with is missing")
        return self._chunks[at]

    def after(self, place: Place) -> Place | None:
        """The look behind this one; None at the end."""
        return next(iter(self._looks("look > ? ORDER BY look LIMIT 1", place.look)), None)

    def before(self, place: Place) -> Place | None:
        """The look before this one; None at the beginning."""
        return next(iter(self._looks("look < ? ORDER BY look DESC LIMIT 1", place.look)), None)

    def at(self, t: float) -> Place | None:
        """The newest look that is not later than `t` seconds after the beginning; the first where none is."""
        end = bisect.bisect_right(self._chunks, t, key=lambda chunk: chunk.t)
        for chunk in reversed(self._chunks[:end]):
            places = self.places(chunk)
            if found := bisect.bisect_right(places, t, key=lambda place: place.t):
                return places[found - 1]
        return self.first()

    def at_step(self, step: int) -> Place | None:
        """The first look at which the run had come to this step; the last where it never did."""
        return self._reach("step", step)

    def at_wall(self, wall: float) -> Place | None:
        """The first look that is not before this Unix time; the last where all are."""
        return self._reach("wall", wall)

    def _reach(self, name: str, value: float) -> Place | None:
        for chunk, following in zip(self._chunks, [*self._chunks[1:], None], strict=True):
            if following is None or getattr(following, name) >= value:
                for place in self.places(chunk):
                    if getattr(place, name) >= value:
                        return place
        return self.last()

    def other_step(self, place: Place, direction: int) -> Place | None:
        """The nearest look before (-1) or behind (1) this one at which the run was at another step."""
        order = "look > ? AND step != ? ORDER BY look" if direction > 0 else "look < ? AND step != ? ORDER BY look DESC"
        return next(iter(self._looks(f"{order} LIMIT 1", place.look, place.step)), None)

    def other_finding(self, place: Place, direction: int) -> tuple[Place, float] | None:
        """The nearest look before (-1) or behind (1) this one at which an alert was said for the first time, and when.

        That is a Unix time, and not the look's own one where looks have been thinned.
        """
        order = "first_at > ? ORDER BY first_at" if direction > 0 else "first_at < ? ORDER BY first_at DESC"
        query = f"SELECT first_at FROM alerts WHERE typeof(first_at) = 'real' AND {order}"
        for (wall,) in self.rows(query, place.wall):
            found = self.at_wall(float(wall))
            if found is not None and (found.look - place.look) * direction > 0:
                return found, float(wall)
        return None

    def _looks(self, condition: str, *values: Any) -> Iterator[Place]:
        query = f"SELECT look, chunk, t, wall, step, findings FROM looks WHERE {condition}"
        for row in self.rows(query, *values):
            if all(isinstance(value, (int, float)) and math.isfinite(value) for value in row):
                look, chunk, at, wall, step, findings = row
                yield Place(look, chunk, at, wall, step, bool(findings))
