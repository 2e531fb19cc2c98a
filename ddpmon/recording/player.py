"""Plays a recording: the frames that a watcher took in go into a new `Run` and a new `Judge`, with the same clock.

What is played from the first look on is judged again, and comes to the same verdicts at the same steps. After a jump
the findings are those that were said at that moment: a judge that came late would have to confirm everything again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from ddpmon.diagnose.alert import Alert
from ddpmon.diagnose.judge import Judge
from ddpmon.recording.layout import ALLREDUCE, COLUMNS, JOB_COLUMNS
from ddpmon.recording.looks import DamageError, Look
from ddpmon.recording.reader import Chunk, Place, Recording
from ddpmon.recording.unpacker import Unpacker
from ddpmon.report.sentences import in_words
from ddpmon.run.model import Run
from ddpmon.snapshot import Finding, Link, Metric, Snapshot
from ddpmon.watcher.picture import Moment, take_picture

# So many looks are played rather than jumped over: a minute, which took 1.6 s of a slow, busy core with 64 ranks.
NEAR = 60
_STEPS_BEFORE = 256  # that a jump fills in before its chunk: what the pictures draw


class Player:
    """Stands at one look of a recording, and goes from there to others.

    Args:
        recording: what is played.

    Attributes:
        place: the look that was given to the run last; None before the first.
        run: as it was known then; None before the first look.
        is_exact: whether everything from the run's first look on has been played and judged.
        alerts, findings: what was said then. After a jump, alerts are not known.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self.place: Place | None = None
        self.run: Run | None = None
        self.is_exact = False
        self.alerts: tuple[Alert, ...] = ()
        self.findings: tuple[Finding, ...] = ()
        self._chunk: Chunk | None = None
        self._judge = Judge()
        self._unpacker: Unpacker | None = None
        self._look: Look | None = None
        self._is_damaged = False
        self._broken = 0  # the chunk that has been left for its damage

    def step(self) -> bool:
        """Play the next look, whatever it holds; False at the end."""
        place = self._recording.first() if self.place is None else self._recording.after(self.place)
        if place is None:
            return False
        self._play(place)
        return True

    def play(self, until_t: float, budget_s: float) -> None:
        """Play all looks up to `until_t` seconds after the beginning, but for no longer than `budget_s`."""
        end = time.monotonic() + budget_s
        while (place := self._next()) is not None and place.t <= until_t:
            self._play(place)
            if time.monotonic() >= end:
                return

    def go(self, place: Place) -> None:
        """Go to a look: what lies near ahead is played, anything else is jumped to."""
        here = self.place
        if here is not None and here.look <= place.look <= here.look + NEAR and self.run is not None:
            while self.place is not None and self.place.look < place.look and self.step():
                pass
        elif here is None or here.look != place.look:
            self._jump(place)

    def picture(self, focus: int | None, metric: Metric = "lateness") -> Snapshot | None:
        """What a watcher would have shown at this look; None before the first."""
        look, run = self._look, self.run
        if look is None or run is None:
            return None
        moment = Moment(look.read_at, look.read_at, look.wall, Link(look.link, look.reason), look.ended, look.source)
        pending = self._judge.pending if self.is_exact else ()
        return take_picture(run, moment, self.findings, pending, focus, metric)

    def _next(self) -> Place | None:
        return self._recording.first() if self.place is None else self._recording.after(self.place)

    def _jump(self, place: Place) -> None:
        """Begin at the chunk of the look, or at the run's first look if that is near."""
        recording = self._recording
        self.place, self.run, self._broken = place, None, 0
        try:
            chunk = recording.chunk_of(place)
        except DamageError as error:
            recording.note(f"the recording is damaged at {place.t:.0f} s (step {place.step:,}): {error}")
            return
        first = next((each for each in recording.chunks if each.run == chunk.run), chunk)
        begin = recording.places(first)[:1]
        self.place = None
        if first.kind == "first" and begin and place.look - begin[0].look <= NEAR:
            chunk = first
        for each in self._from(chunk, place):
            self._play(each)

    def _from(self, chunk: Chunk, place: Place) -> Iterator[Place]:
        """The looks from the beginning of a chunk to one of them."""
        for each in self._recording.chunks:
            if chunk.number <= each.number <= place.chunk:
                yield from (found for found in self._recording.places(each) if found.look <= place.look)

    def _play(self, place: Place) -> None:
        """Give one look to the run, and judge it as the watcher did.

        Figures are packed against those before them: behind a damaged look the rest of its chunk is passed over.
        """
        if place.chunk == self._broken:
            self.place = place
            return
        try:
            if self._chunk is None or self.run is None or place.chunk != self._chunk.number:
                self._enter(self._recording.chunk_of(place), place)
            assert self._chunk is not None
            look = self._recording.look(place, self._chunk)
            self._take(look)
        except DamageError as error:
            if not self._is_damaged:
                self._recording.note(f"the recording is damaged at {place.t:.0f} s (step {place.step:,}): {error}")
            self.is_exact, self._is_damaged, self._broken = False, True, place.chunk
        self.place = place

    def _enter(self, chunk: Chunk, place: Place) -> None:
        """Go on with a chunk, or begin with it."""
        before, self._chunk = self._chunk if self.run is not None else None, chunk
        info = self._recording.info(chunk.run)
        if before is None or before.run != chunk.run or self.run is None or self._unpacker is None:
            self.run, self._judge = Run(info), Judge()
            self._unpacker = Unpacker(self.run)
            self.alerts, self.findings = (), ()
            self.is_exact = chunk.kind == "first"
            before = None
            if not self.is_exact:
                self._fill(self.run, chunk)
        self._unpacker.begin()
        goes_on = before is not None and before.number == chunk.number - 1 and not self._broken
        if not goes_on or chunk.kind == "after a gap":
            parts, _ = self._recording.key(chunk)
            now = self._recording.look(place, chunk).read_at - place.t + chunk.t
            for part in parts:
                self._unpacker.give(part, now)
            self._unpacker.begin()
            self.is_exact &= chunk.kind == "first"

    def _fill(self, run: Run, chunk: Chunk) -> None:
        """What the tables hold of the time before a chunk: the run's curves, and its last steps."""
        columns = ", ".join(JOB_COLUMNS)
        query = f"SELECT step, {columns} FROM job WHERE run = ? AND life = ? AND step <= ? ORDER BY step"
        points = self._recording.numbers(query, 1 + len(JOB_COLUMNS), chunk.run, chunk.life, chunk.step)
        if len(points):
            run.series.restore(points)
        known = self._recording.columns("steps")
        names = [name for name in (*COLUMNS, ALLREDUCE) if name in known or name != ALLREDUCE]  # version 3 has none
        columns = ", ".join(names)
        query = f"SELECT rank, step, {columns} FROM steps WHERE run = ? AND life = ? AND step > ? AND step <= ?"
        first = chunk.step - min(_STEPS_BEFORE, run.rings.capacity)
        table = self._recording.numbers(query, 2 + len(names), chunk.run, chunk.life, first, chunk.step)
        table = table[np.isfinite(table[:, :2]).all(axis=1)]
        if len(table):
            who, steps = table[:, 0].astype(np.int64), table[:, 1].astype(np.int64)
            quantities = [name.removesuffix("_ms") for name in names]
            inside = (who >= 0) & (who < run.info.world_size)
            run.rings.add_rows(who[inside], steps[inside], [(quantities, table[inside, 2:])])

    def _take(self, look: Look) -> None:
        run, unpacker = self.run, self._unpacker
        assert run is not None
        assert unpacker is not None
        for part in look.parts:
            unpacker.give(part, look.read_at)
        self._look = look
        if look.is_settled:
            run.refused = look.refused
            run.rejected.clear()
            run.rejected.update(look.rejected)
            run.settle(look.read_at)
        else:
            run.outages.begin_outage()
        if self.is_exact and look.is_judged:
            self.alerts = self._judge(run, run.silences(look.read_at))
            self.findings = in_words(self.alerts)
        elif look.findings is not None:
            self.findings = tuple(look.findings)
