"""Travels in time, in a recording that is played, or over what a live run's recorder has taken down."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Literal

from ddpmon.recording.beginning import begins_words, ends_words
from ddpmon.recording.layout import RecordingError
from ddpmon.recording.player import Player
from ddpmon.recording.reader import Place, Recording
from ddpmon.report.new_file import stem_of, write_new
from ddpmon.report.run_report import RunReport
from ddpmon.schema import RunInfo
from ddpmon.shell_command import of_the_past
from ddpmon.snapshot import Finding, Link, Metric, ReplayView, Snapshot

SPEEDS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
_USUAL = SPEEDS.index(1.0)
# So long one tick may play looks before it draws. A look of 64 ranks with its verdict took 26 ms of a slow, busy core:
# where that is too slow for the speed that was asked for, it plays as fast as it can.
_BUDGET_S = 0.5
_SAID_S = 10.0  # for which the screen says where a report was written, unless a key asks for something else
_REFUSED_S = 4.0  # for which it says what could not be reached, likewise
_LONGEST_S = 2.0  # between two ticks: a program that was stopped does not play what it missed
Refusal = Literal["", "before", "behind", "next finding", "finding before"]  # what the last of the moves cannot reach
_NO_FINDING: Mapping[Refusal, str] = {
    "next finding": "no finding begins after this moment",
    "finding before": "no finding begins before this moment",
}
Move = Literal["step", "seconds", "finding", "play", "speed", "start", "end", "to_step", "to_wall", "write"]


@dataclass(frozen=True, slots=True)
class Request:
    """What the reader of the screen asks for.

    Attributes:
        move: "step", "seconds" and "finding" go by `amount`, "speed" changes it by so many grades, "to_step" and
            "to_wall" go to a step or a Unix time; "play" plays or pauses; "start" and "end" go there; "write" writes a
            report.
        shown: of "write", the picture that the report is on; None stands for the one that is made next.
    """

    move: Move
    amount: float = 0.0
    shown: Snapshot | None = None


class Travel:
    """Where we are in a recording. `ask`, `is_under_way` and `moving_s` are for any thread, all else for one.

    Args:
        recording: what is travelled in.
        folder: where another recording may hold what was before its beginning; None: nowhere.

    Attributes:
        playing, speed: whether it goes on by itself, and how many times as fast as it was.
        wants_end: whether the end has been asked for, or has been reached, since this was last set to False.
    """

    def __init__(self, recording: Recording, folder: Path | None = None) -> None:
        self.recording, self.player, self._folder = recording, Player(recording), folder
        self.playing = self.wants_end = False
        self._report_asked: Request | None = None
        self._said, self._said_until = "", 0.0
        self._refusal: Refusal = ""
        self._grade, self._t, self._then = _USUAL, 0.0, time.monotonic()
        self._asked: SimpleQueue[Request] = SimpleQueue()
        self._moving_since: float | None = None  # until the picture of the moment is there
        self._aim: Place | None = None  # where the moves that are being made lead
        self._begun: float | None = None  # the Unix time at which the finding was said first that was gone to
        self._reached: Finding | None = None  # that finding, once the player is there

    @property
    def speed(self) -> float:
        """How many times as fast it plays as it was."""
        return SPEEDS[self._grade]

    @property
    def is_asked(self) -> bool:
        """Whether somebody has asked for something."""
        return not self._asked.empty()

    @property
    def moving_s(self) -> float | None:
        """For how many seconds a move has been made whose picture is not there yet; None without one."""
        since = self._moving_since
        return None if since is None else time.monotonic() - since

    @property
    def is_under_way(self) -> bool:
        """Whether a move is being made, or waits for its turn."""
        return self._moving_since is not None or self.is_asked

    def ask(self, request: Request) -> None:
        """Ask for a move; it is made by the thread that ticks."""
        self._asked.put(request)

    def go(self, place: Place | None) -> None:
        """Go to a look."""
        if place is not None:
            self.player.go(place)
            self._t = place.t

    def tick(self, *, ends_live: bool = False) -> None:
        """Make the moves that were asked for, and play on.

        The moves are added up, and the player goes once to where they lead: that may take a second, however many keys
        were pressed meanwhile. With `ends_live` it does not go to the end, which the live run shows.
        """
        now = time.monotonic()
        passed, self._then = min(now - self._then, _LONGEST_S), now
        self._moving_since = now if self.is_asked else None
        self._move(ends_live=ends_live)
        if self.playing:
            self._play_on(passed * self.speed)
        self._tell_refusal()

    def _move(self, *, ends_live: bool) -> None:
        with suppress(Empty):
            while True:
                self._make(self._asked.get_nowait())
        if not (ends_live and self.wants_end):
            self.go(self._aim)
        if self._aim is not None:
            self._reached = self._begins_here()
        self._aim = None

    @property
    def _here(self) -> Place | None:
        """Where the next move begins."""
        return self.player.place if self._aim is None else self._aim

    def _aim_at(self, place: Place | None) -> None:
        self._aim = self._aim if place is None else place

    def view(self, *, is_live: bool) -> ReplayView | None:
        """Where we are; None before the first look."""
        here, first, last = self.player.place, self.recording.first(), self.recording.last()
        if here is None or first is None or last is None:
            return None
        length = last.t - first.t
        notes = tuple(self.recording.notes)
        exact = self.player.is_exact
        return ReplayView(here.t - first.t, length, here.wall, self.playing, self.speed, is_live, exact, notes)

    @property
    def until(self) -> float:
        """The Unix time up to which a report here looks; without a bound at the end, since clocks may have jumped."""
        here = self.player.place
        return math.inf if here is None or here == self.recording.last() else here.wall

    def _make(self, request: Request) -> None:
        if request.move == "write":
            self._report_asked = request
            return
        moves: Mapping[Move, Callable[[float], None]] = {
            "step": lambda by: self._go_by(lambda here: self.recording.other_step(here, 1 if by > 0 else -1)),
            "finding": self._to_finding,
            "seconds": lambda by: self._go_by(lambda here: self.recording.at(here.t + by)),
            "to_step": lambda step: self._aim_at(self.recording.at_step(int(step))),
            "to_wall": lambda wall: self._aim_at(self.recording.at_wall(wall)),
            "start": lambda _: self._aim_at(self.recording.first()),
            "end": lambda _: self._to_end(),
            "speed": self._change_speed,
            "play": lambda _: self._play_or_pause(),
        }
        self._said_until = 0.0
        if request.move != "speed":
            self._begun = self._reached = None
        if request.move not in ("play", "speed"):
            self.playing = self.wants_end = False
            self._refusal = self._refused(request)
        moves[request.move](request.amount)

    def _refused(self, request: Request) -> Refusal:
        """Whether it asks for something before the beginning of the record, or goes to something behind its end."""
        first, last = self.recording.first(), self.recording.last()
        here = self._here or last
        if first is None or last is None or here is None:
            return ""
        is_before = {
            "to_step": request.amount < first.step,
            "to_wall": request.amount < first.wall,
            "seconds": here.t + request.amount < first.t,
            "step": request.amount < 0 and here.look == first.look,
        }
        is_behind = {"to_step": request.amount > last.step, "to_wall": request.amount > last.wall}
        if is_before.get(request.move, False):
            return "before"
        return "behind" if is_behind.get(request.move, False) else ""

    def _tell_refusal(self) -> None:
        """Say what could not be reached, and where the record begins or ends; only once, because that reads files."""
        first, last, refusal = self.recording.first(), self.recording.last(), self._refusal
        self._refusal = ""
        if not refusal or first is None or last is None:
            return
        if refusal in _NO_FINDING:
            self._said = _NO_FINDING[refusal]
        else:
            is_before = refusal == "before"
            self._said = begins_words(self.recording, first, self._folder) if is_before else ends_words(first, last)
        self._said_until = time.monotonic() + _REFUSED_S

    def finish(self, snapshot: Snapshot, live: RunInfo | None = None) -> Snapshot:
        """Write the report on this picture or on the one that was asked for; for a while this one says where it is.

        It holds the finding that was gone to. `live` is the run, if the picture is of now.
        """
        now, asked, self._moving_since = time.monotonic(), self._report_asked, None
        if asked is not None:
            self._report_asked = None
            self._said, self._said_until = self._write(asked.shown, snapshot, live), now + _SAID_S
        return replace(snapshot, reached=self._reached, told=self._said if now < self._said_until else "")

    def _write(self, frozen: Snapshot | None, snapshot: Snapshot, live: RunInfo | None) -> str:
        """Write a new page into the current folder; what became of that, in a sentence."""
        from ddpmon.report.report_html import page

        shown = frozen or snapshot
        until = math.inf if live is not None else self.until
        if shown.run is None:
            return "no report was written: no run is shown"
        try:
            told = self._report(shown, live, until if frozen is None else frozen.taken_at)
            path = write_new(stem_of("report", shown.run), ".html", page(told))
        except (RecordingError, OSError) as error:
            return f"no report was written: {error}"
        return f"the report is in {path}"

    def _report(self, shown: Snapshot, live: RunInfo | None, until: float) -> RunReport:
        from ddpmon.recording.story import report_of, report_of_snapshot

        assert shown.run is not None
        try:
            return report_of(self.recording, shown, shown.run.source, until)
        except RecordingError:  # too large to be recorded, or no tick could be written
            if live is None or live.run_id != shown.run.id:
                raise
            return report_of_snapshot(shown, live, shown.run.source)

    def _go_by(self, where: Callable[[Place], Place | None]) -> None:
        here = self._here or self.recording.last()
        if here is not None:
            self._aim_at(where(here) or here)

    def _to_finding(self, by: float) -> None:
        here = self._here or self.recording.last()
        found = None if here is None else self.recording.other_finding(here, 1 if by > 0 else -1)
        self._refusal = "" if found is not None else "next finding" if by > 0 else "finding before"
        place, self._begun = found or (here, None)
        self._aim_at(place)

    def _begins_here(self) -> Finding | None:
        """The finding that was gone to; None where a move was made that goes to none."""
        from ddpmon.recording.story import begun_at

        return begun_at(self.recording, self.player.place, self._begun, self.player.findings)

    def _to_end(self) -> None:
        self.wants_end = True
        self._aim_at(self.recording.last())

    def _change_speed(self, grades: float) -> None:
        self._grade = max(0, min(self._grade + int(grades), len(SPEEDS) - 1))

    def _play_or_pause(self) -> None:
        here, last = self._here, self.recording.last()
        if not self.playing and here is not None and last is not None and here.look >= last.look:
            self._aim_at(self.recording.first())
        self.playing = not self.playing

    def _play_on(self, seconds: float) -> None:
        self._t += seconds
        self.player.play(self._t, _BUDGET_S)
        here, last = self.player.place, self.recording.last()
        if here is None or last is None or here.look >= last.look:
            self.playing, self.wants_end = False, True
        elif self._t > here.t + max(self.speed, 2.0):  # looks take longer than they may, or are missing here
            following = self.recording.after(here)
            self._t = here.t if following is None or following.t <= self._t else self._t


class Replay:
    """A source of pictures from a recording's file: it stands at the end first, where the run's last state is.

    Args:
        path: the file.

    Attributes:
        focus: the rank whose detail the next snapshot carries.
        metric: what its heat-map shows.
        travel: where it stands.

    Raises:
        RecordingError: the file is no recording, or nothing of it can be read.
    """

    def __init__(self, path: Path) -> None:
        self.focus: int | None = None
        self.metric: Metric = "lateness"
        self._path = path
        self.travel = Travel(Recording(path))
        self.travel.go(self.travel.recording.last())

    def tick(self) -> Snapshot:
        """Play on, if it is playing, and build a snapshot of the moment."""
        self.travel.recording.refresh()
        self.travel.tick()
        return self._picture()

    def rebuild(self) -> Snapshot:
        """Make the moves that were asked for, and build a snapshot of the moment."""
        self.travel.tick()
        return self._picture()

    def close(self) -> None:
        """Let go of the file."""
        self.travel.recording.close()

    def _picture(self) -> Snapshot:
        snapshot = self.travel.player.picture(self.focus, self.metric)
        if snapshot is None:
            why = "; ".join(self.travel.recording.notes) or "its recorder had not read the run yet"
            return self.travel.finish(Snapshot(Link("waiting", f"{self._path}: {why}"), time.time(), time.monotonic()))
        past = tuple(replace(each, advice=of_the_past(each.advice)) for each in snapshot.findings)
        return self.travel.finish(replace(snapshot, findings=past, replay=self.travel.view(is_live=False)))
