"""Writes a recording while a watcher reads a run: the same frames, in the same order, with the same clock."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from ddpmon.codec import encode
from ddpmon.recording import facts
from ddpmon.recording.bounds import Bounds, drop_old_alerts, drop_old_host_rows
from ddpmon.recording.layout import create
from ddpmon.recording.looks import Look, Nodes, Packer, Part, Rows, Whole, dictionary_of, squeezed
from ddpmon.recording.step_rows import StepMark, StepRows
from ddpmon.run.host_rows import HostRows
from ddpmon.run.model import Run
from ddpmon.schema import HistoryFrame, NodeFrame, RankFrame
from ddpmon.snapshot import Finding
from ddpmon.watcher.tap import Tick

# The first key comes soon: what follows is packed with its help. A jump plays from the key before it.
FIRST_LOOKS, LOOKS_A_CHUNK = 10, 120
_FINDINGS_EVERY = 10  # looks, at least: between them costs may have moved on a little
_TIDY_EVERY_S = 60.0
Mark = tuple[tuple[StepRows, StepMark] | None, facts.RankMark, float, facts.AlertMark]


class Recorder:
    """A tap that writes a recording; it belongs to the thread that reads.

    Every tick is one transaction. If one fails, because a disk is full, the ticks until the next that succeeds are
    missing: the recording says so, and goes on with a whole picture.

    Args:
        path: of the new file; None records into memory.
        bounds: of its size and age.

    Attributes:
        book: the open database.
        trouble: why the last tick could not be written; empty if it was.
        looks: how many ticks have been written. missed: how many could not be.

    Raises:
        RecordingError: the file is there already, or cannot be made.
    """

    def __init__(self, path: Path | None, bounds: Bounds | None = None) -> None:
        self._path, self.book = path, create(path)
        self.trouble = ""
        self.looks = self.missed = 0
        self._bounds = bounds or Bounds()
        self._runs = self._epochs = self._chunks = 0
        self._frame_bytes = 0
        self._next_tidy = 0.0
        self._began = time.monotonic()
        self._one: _OneRun | None = None

    def begin(self, run: Run) -> None:
        """Record this run from now on."""
        self._one = None
        if run.info.world_size > self._bounds.ranks:
            return
        self._runs += 1
        try:
            facts.insert_run(self.book, self._runs, run.info, time.time())
        except sqlite3.Error as error:
            self._fail(error)
            return
        self._one = _OneRun(self._runs, run)

    def histories(self, _run: Run, frames: Sequence[HistoryFrame], *, are_last: bool) -> None:
        """What some ranks remember."""
        if self._one is not None:
            self._one.parts.append(self._one.packer.histories(frames, are_last=are_last))

    def rows(self, run: Run, rows: HostRows) -> None:
        """The figures of host frames."""
        if self._one is not None and len(rows.ranks):
            self._one.parts.append(self._one.packer.rows(run, rows))

    def ranks(self, run: Run, frames: Sequence[RankFrame], ages: Mapping[int, float]) -> None:
        """Whole frames."""
        if self._one is not None and frames:
            self._one.parts.append(self._one.packer.ranks(run, frames, ages))

    def nodes(self, _run: Run, frames: Sequence[NodeFrame], ages: Mapping[int, float]) -> None:
        """Frames of hosts."""
        if self._one is not None and frames:
            self._one.parts.append(self._one.packer.nodes(frames, ages))

    def _begin_late(self, run: Run) -> None:
        self.begin(run)
        if self._one is not None:
            self._one.has_gap = True

    def tick(self, run: Run, tick: Tick) -> None:
        """Write what has come in, in one transaction."""
        if self._one is None:  # its beginning could not be written
            self._begin_late(run)
        one = self._one
        if one is None or one.is_idle(tick):
            return
        self._transact(one, lambda: self._write(one, tick))
        one.parts = []

    def catch_up(self) -> None:
        """Write all finished steps at once: usually they are written over some ticks, where a run has a past."""
        one = self._one
        if one is not None and one.rows is not None:
            rows = one.rows
            self._transact(one, lambda: rows.catch_up(self.book, time.time()))

    def close(self) -> None:
        """End the recording; what the journal holds is taken over into the file. One without a look is removed.

        The last look gets the findings as they were said then, so that a jump to the end finds no older figures.
        """
        if self._one is not None and (last := self._one.last_without_findings()) is not None:
            self._transact(self._one, lambda: self._write_again(*last))
        with contextlib.suppress(sqlite3.Error):  # somebody reads it now: then its journal stays beside it
            self.book.execute("PRAGMA journal_mode = DELETE")
        try:
            self.book.close()
        except sqlite3.Error as error:
            self._fail(error)
        if self._path is not None and not self.looks:
            with contextlib.suppress(OSError):
                self._path.unlink()

    def _transact(self, one: _OneRun, write: Callable[[], None]) -> None:
        """Write in one transaction; if it fails, nothing is written, and nothing is counted as written."""
        counts, mark = (self.looks, self._frame_bytes, self._epochs, self._next_tidy), one.mark()
        try:
            self.book.execute("BEGIN IMMEDIATE")
            write()
            self.book.execute("COMMIT")
        except sqlite3.Error as error:
            self._fail(error)
            self.looks, self._frame_bytes, self._epochs, self._next_tidy = counts
            one.go_back(mark)
        else:
            self.trouble = ""

    def _fail(self, error: sqlite3.Error) -> None:
        self.missed += 1
        self.trouble = str(error)
        if self.book.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                self.book.execute("ROLLBACK")

    def _write(self, one: _OneRun, tick: Tick) -> None:
        t = tick.read_at - self._began
        step = int(one.run.latest.step.max(initial=-1))
        if one.has_gap:
            self._begin_chunk(one, tick, t, step, "after a gap")
            one.has_gap = False
        else:
            if not one.chunk:
                self._begin_chunk(one, tick, t, step, "first")
            self._write_look(one, tick, t, step)
        self._write_tables(one, tick, step)
        if one.is_chunk_full:
            self._begin_chunk(one, tick, t, step, "")
        if tick.read_at >= self._next_tidy:
            self._tidy(tick)

    def _write_look(self, one: _OneRun, tick: Tick, t: float, step: int) -> None:
        look = one.look(tick)
        data = squeezed(look, one.dictionary)
        self.looks += 1
        has_findings = look.findings is not None
        values = (None, one.chunk, t, tick.wall, step, has_findings)
        number = self.book.execute("INSERT INTO looks VALUES (?, ?, ?, ?, ?, ?)", values).lastrowid
        self.book.execute("INSERT INTO frames VALUES (?, ?)", (number, data))
        self._frame_bytes += len(data)
        one.last_look = number or 0, look, one.dictionary

    def _write_again(self, number: int, look: Look, dictionary: bytes) -> None:
        """Write a look again that has been written without its findings."""
        self.book.execute("UPDATE frames SET data = ? WHERE look = ?", (squeezed(look, dictionary), number))
        self.book.execute("UPDATE looks SET findings = 1 WHERE look = ?", (number,))

    def _begin_chunk(self, one: _OneRun, tick: Tick, t: float, step: int, kind: str) -> None:
        """Begin a part that can be read without those before it: it has the newest word of all ranks and hosts."""
        key = squeezed([], b"") if kind == "first" else one.begin_chunk(tick)
        life = one.rows.life if one.rows else 0
        values = (None, one.number, life, kind, t, tick.wall, step, key)
        one.chunk = self.book.execute("INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values).lastrowid or 0
        self._frame_bytes += len(key)

    def _write_tables(self, one: _OneRun, tick: Tick, step: int) -> None:
        if one.rows is None or one.rows.is_over:
            life = 0 if one.rows is None else one.rows.life + 1
            one.rows = StepRows(one.number, life, self._epochs, one.run, self._bounds)
            self._epochs += 1
        one.rows.write(self.book, tick.wall)
        one.rank_rows.write(self.book, tick)
        one.host_rows.write(self.book, tick)
        if tick.is_judged:
            one.alert_rows.write(self.book, tick, step)
        facts.update_run(self.book, one.number, tick)
        self._drop_chunks(tick)

    def _drop_chunks(self, tick: Tick) -> None:
        """Drop the oldest chunk if the frames are too many or it is too old; never the one that is written."""
        oldest = self.book.execute("SELECT chunk, t FROM chunks ORDER BY chunk LIMIT 2").fetchall()
        if len(oldest) < 2:
            return
        (chunk, _), (_, end) = oldest
        too_old = tick.read_at - self._began - end > self._bounds.age_s
        if self._frame_bytes > self._bounds.frame_bytes or too_old:
            self._frame_bytes -= self._drop(chunk)

    def _drop(self, chunk: int) -> int:
        """Delete a chunk; returns how many bytes its frames had."""
        inside = "look IN (SELECT look FROM looks WHERE chunk = ?)"
        (frames,) = self.book.execute(f"SELECT total(length(data)) FROM frames WHERE {inside}", (chunk,)).fetchone()
        (key,) = self.book.execute("SELECT length(key) FROM chunks WHERE chunk = ?", (chunk,)).fetchone()
        self.book.execute(f"DELETE FROM frames WHERE {inside}", (chunk,))
        self.book.execute("DELETE FROM looks WHERE chunk = ?", (chunk,))
        self.book.execute("DELETE FROM chunks WHERE chunk = ?", (chunk,))
        return int(frames) + int(key)

    def _tidy(self, tick: Tick) -> None:
        self._next_tidy = tick.read_at + _TIDY_EVERY_S
        drop_old_alerts(self.book)
        drop_old_host_rows(self.book, tick.wall - self._bounds.age_s)


class _OneRun:
    """What belongs to the run that is recorded now.

    Attributes:
        number: in the recording. run: its model.
        parts: what has come in at this tick.
        chunk: the one that is written, 0 before the first. dictionary: what its looks are packed with.
        has_gap: whether looks before the next one are missing.
        last_look: the number of the look that was written last, the look, and what it was packed with.
    """

    def __init__(self, number: int, run: Run) -> None:
        self.number, self.run = number, run
        self.packer = Packer(run.info.world_size)
        self.parts: list[Part] = []
        self.chunk = 0
        self.dictionary = b""
        self.has_gap = False
        self.rows: StepRows | None = None
        self.rank_rows, self.host_rows = facts.RankRows(number, run), facts.HostRows(number, run)
        self.alert_rows = facts.AlertRows(number)
        self._left = FIRST_LOOKS
        self._told: tuple[object, ...] = ()
        self._findings: Sequence[Finding] = ()  # as they were written last
        self._newest_findings: Sequence[Finding] = ()  # those of the last look
        self.last_look: tuple[int, Look, bytes] | None = None
        self._quiet = 0

    def mark(self) -> Mark:
        """How far its tables have come, for `go_back`."""
        rows = None if self.rows is None else (self.rows, self.rows.mark())
        return rows, self.rank_rows.mark(), self.host_rows.mark(), self.alert_rows.mark()

    def go_back(self, mark: Mark) -> None:
        """What was written since has been rolled back: looks are missing, and the tables are written again."""
        rows, ranks, hosts, alerts = mark
        self.has_gap = True
        self.rows = None if rows is None else rows[0]
        if rows is not None:
            rows[0].go_back(rows[1])
        self.rank_rows.go_back(ranks)
        self.host_rows.go_back(hosts)
        self.alert_rows.go_back(alerts)

    @property
    def is_chunk_full(self) -> bool:
        return self._left <= 0

    def is_idle(self, tick: Tick) -> bool:
        """Whether nothing has come in and nothing has changed: the run has ended, or its store is silent."""
        told = (tick.link, tick.ended, tick.is_judged)
        idle = not self.parts and told == self._told and not (tick.is_judged and tick.findings != self._findings)
        self._told = told
        return idle and not tick.is_settled

    def look(self, tick: Tick) -> Look:
        """This tick's look."""
        self._left -= 1
        findings = self._new_findings(tick)
        return Look(
            read_at=tick.read_at,
            wall=tick.wall,
            parts=self.parts,
            is_settled=tick.is_settled,
            is_judged=tick.is_judged,
            link=tick.link.state,
            reason=tick.link.message,
            ended=tick.ended,
            source=tick.source,
            refused=self.run.refused,
            rejected=dict(self.run.rejected),
            findings=findings,
        )

    def _new_findings(self, tick: Tick) -> list[Finding] | None:
        """What is said now, where that is new, or has not been written for some looks."""
        self._quiet, self._newest_findings = self._quiet + 1, tick.findings
        if self._outline(tick.findings) == self._outline(self._findings) and self._quiet < _FINDINGS_EVERY:
            return None
        self._findings, self._quiet = tick.findings, 0
        return [*tick.findings]

    def last_without_findings(self) -> tuple[int, Look, bytes] | None:
        """The last look's number, the look with its findings, and what it was packed with.

        None if the look was written with its findings, or if they are those that were written before it.
        """
        if self.last_look is None or self.last_look[1].findings is not None or self._newest_findings == self._findings:
            return None
        number, look, dictionary = self.last_look
        return number, replace(look, findings=[*self._newest_findings]), dictionary

    @staticmethod
    def _outline(findings: Sequence[Finding]) -> list[tuple[object, ...]]:
        return [(f.kind, f.severity, f.ranks, f.nodes, f.phase, f.since_step, f.cleared_at_step) for f in findings]

    def begin_chunk(self, tick: Tick) -> bytes:
        """The key of a new chunk: the newest whole frames and figures of all ranks, and the hosts."""
        self.packer.begin()
        parts = self._key(tick.read_at)
        self.packer.begin()
        data = squeezed(parts, b"")
        self.dictionary = dictionary_of(parts)
        self._left, self._quiet = LOOKS_A_CHUNK, _FINDINGS_EVERY
        return data

    def _key(self, now: float) -> list[Part]:
        run, latest = self.run, self.run.latest
        newer = latest.seq > latest.whole_seq  # their figures follow
        whole = [
            frame if newer[frame.rank] else latest.frame(frame.rank) for frame in latest.whole if frame is not None
        ]
        sent_at, heard_at = latest.column("sent_at"), latest.heard_at
        ages = {f.rank: float(now - heard_at[f.rank] + sent_at[f.rank] - f.sent_at) for f in whole}
        nodes = {number: (frame, now - heard_at) for number, (frame, heard_at) in run.nodes.items()}
        return [
            Whole([encode(frame) for frame in whole], ages),
            self._figures(),
            Nodes([encode(frame) for frame, _ in nodes.values()], {n: age for n, (_, age) in nodes.items()}),
        ]

    def _figures(self) -> Rows:
        latest = self.run.latest
        ranks = np.flatnonzero(latest.known & (latest.seq > latest.whole_seq))
        place = np.arange(len(ranks))
        rows = HostRows(ranks, latest.figures[ranks], latest.phase[ranks], place >= 0, place, {}, len(ranks))
        return self.packer.rows(self.run, rows)
