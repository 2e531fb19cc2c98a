"""What a drawing is given: one frozen snapshot, how to look, and how the watching itself goes."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ddpmon.format import age, clock, count, local_time
from ddpmon.report.finding_rows import what, who
from ddpmon.report.past import with_kill
from ddpmon.report.verdicts import is_kill
from ddpmon.snapshot import Finding, Link, ReplayView, Snapshot, is_over
from ddpmon.tui.filter.fits import fitting_findings
from ddpmon.tui.theme import Look

_LOOKING = "looking for a run; on a slow link the first picture takes some seconds"
FILLED_MOST = 1024  # ranks
_PATIENCE_S, _INTERVALS = 3.0, 3  # the longer one passes before the store's silence is said; chosen, not measured
_LONG_S = 0.8  # Seconds. After this time the screen says that a move takes long: a usual one would flicker. Chosen.
LONG_MOVE_S = _LONG_S + 0.2  # after the key: the reader may begin later
NOTHING_YET = Snapshot(link=Link("waiting", _LOOKING), taken_at=0.0, taken_monotonic=0.0)


@dataclass(frozen=True, slots=True)
class ViewState:
    """The state of the dashboard as every drawing function sees it.

    Where the run was killed or crashed, that is the first of the findings of both pictures.

    Attributes:
        snapshot: what is shown (the frozen one while paused).
        look: colours and glyphs.
        stuck_s: seconds since the store last answered, when that is too long; None while all is well.
        paused_s: seconds since the display was frozen; None while it is live.
        interval: seconds between two readings.
        wanted: the filter, which is understood; empty for none.
        whole: the picture that reaches furthest in time, over which the reader travels; None: `snapshot` does.
        marked: the ranks that the reader has marked, to compare them.
        zoom: how many steps the plots show, 0 for all on record.
        moving_s: for how many seconds the reader has been on the way to another moment; None if it is not.
    """

    snapshot: Snapshot
    look: Look
    stuck_s: float | None = None
    paused_s: float | None = None
    interval: float = 1.0
    wanted: str = ""
    whole: Snapshot | None = None
    marked: tuple[int, ...] = ()
    zoom: int = 0
    moving_s: float | None = None

    def __post_init__(self) -> None:
        """Put the kill of a run among the findings, for all views."""
        for name in ("snapshot", "whole"):
            picture = getattr(self, name)
            if picture is not None:
                object.__setattr__(self, name, with_kill(picture))

    @property
    def over(self) -> Snapshot:
        """The picture whose steps the timeline shows: the whole one, as long as it holds the moment that is shown."""
        whole, shown = self.whole, self.snapshot.run
        if whole is None or whole.timeline is None or shown is None or shown.step is None:
            return self.snapshot
        steps = whole.timeline.step
        return whole if len(steps) and steps[0] <= shown.step else self.snapshot

    @property
    def found(self) -> tuple[Finding, ...]:
        """The findings that the filter fits."""
        return fitting_findings(self.snapshot, self.wanted)

    @property
    def notice_tells_kill(self) -> bool:
        """Whether the notice says how the run was killed."""
        findings = self.snapshot.findings
        return bool(findings) and is_kill(findings[0]) and notice(self) == self.snapshot.link.message

    @property
    def below_notice(self) -> tuple[Finding, ...]:
        """The findings that the verdict and the list below it tell: not the kill where the notice tells it."""
        return self.snapshot.findings[self.notice_tells_kill :]

    @property
    def filtered(self) -> tuple[Finding, ...]:
        """Those of them that the filter fits. The verdict is the run's, whatever the filter is."""
        told = self.notice_tells_kill
        return tuple(finding for finding in self.found if not (told and is_kill(finding)))

    @property
    def stale(self) -> bool:
        """The picture is a memory: what it shows is no longer being watched."""
        return self.snapshot.link.state in ("gone", "silent") and self.snapshot.run is not None

    @property
    def is_complete(self) -> bool:
        """Nothing of this run comes any more."""
        run, is_gone = self.snapshot.run, self.snapshot.link.state == "gone"
        return run is not None and (run.state == "finished" or (is_gone and is_over(run.state)))

    @property
    def faded(self) -> bool:
        """Drawn dim as a whole, because the store has ended and does not come back; a finished run is complete."""
        run = self.snapshot.run
        return self.snapshot.link.state == "gone" and run is not None and run.state != "finished"


def silence_s(latest: Snapshot, interval: float) -> float | None:
    """Seconds since the store last answered, when that is too long; a finished run has nothing more to say."""
    run, silence = latest.run, time.monotonic() - latest.taken_monotonic
    is_late = silence > max(_PATIENCE_S, _INTERVALS * interval) and (run is None or run.state != "finished")
    return silence if is_late else None


def furthest(one: Snapshot | None, other: Snapshot) -> Snapshot:
    """Of two pictures of a run the one that reaches further in time; of another run, or of a live one, the newer."""
    if one is None or one.run is None or other.run is None or one.run.id != other.run.id or other.replay is None:
        return other
    behind = other.run.step is not None and one.run.step is not None and other.run.step < one.run.step
    return one if behind else other


def notice(picture: ViewState) -> str:
    """One sentence on what stands between the reader and a live picture; empty when nothing does."""
    link, run = picture.snapshot.link, picture.snapshot.run
    if picture.moving_s is not None and picture.moving_s >= _LONG_S:
        return "another moment is being read; until then the screen shows the one before"
    if picture.stuck_s is not None:
        known = "nothing has been read yet" if run is None else "the screen shows the last state"
        return f"no answer from the store for {age(picture.stuck_s)}; {known}"
    if picture.snapshot.replay is not None:
        return _moment(picture.snapshot.replay, picture.snapshot.told or _reached(picture.snapshot.reached))
    if picture.snapshot.told:
        return picture.snapshot.told
    if picture.paused_s is not None:
        step = f" at step {count(run.step)}" if run and run.step is not None else ""
        return f"display frozen{step} for {age(picture.paused_s)}; collection goes on, space resumes"
    if run is None or link.state == "live":
        return link.message if run is not None else ""
    return link.message or f"the store is {link.state}; this is the last state"


def _reached(finding: Finding | None) -> str:
    """The finding that the keys `n` and `N` went to: `rank 42: late +159 ms, backward, since step 60`."""
    if finding is None:
        return ""
    began = "before" if finding.since_is_bound else "since"
    step = "" if finding.since_step is None else f", {began} step {count(finding.since_step)}"
    return f"{who(finding)}: {what(finding)}{step}"


def _moment(replay: ReplayView, told: str) -> str:
    """Which moment of the past is shown, behind what has just been `told`, and how to go on from there."""
    playing = f"playing at {replay.speed:g}x" if replay.playing else "space plays"
    end = "end goes back to the live run" if replay.is_live else "[ ] step, { } minute, n finding"
    ahead = told or (replay.notes[0] if replay.notes else "")
    when = f"{local_time(replay.wall)}, {clock(replay.t)} of {clock(replay.length)}"
    return "; ".join(filter(None, [ahead, when, playing, end]))


def fills_room(picture: ViewState) -> bool:
    """Whether plots fill what a view leaves of a large terminal; not of thousands of ranks, which take long enough."""
    run = picture.snapshot.run
    return run is not None and run.world_size <= FILLED_MOST
