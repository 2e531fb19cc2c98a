"""The way to a run on another host: where it is looked for, and what is known of it by the last look."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Protocol

from ddpmon.commands.choose import choose, of_job
from ddpmon.commands.listing import Listed, Listing
from ddpmon.store.base import StoreUnavailable, TargetError
from ddpmon.store.connect import Target, parse_target
from ddpmon.watcher.run_end import fate_of
from ddpmon.watcher.way import Fate

_EVERY_S, _LATER_S, _SOON_S = 4.0, 15.0, 60.0  # a look starts a ddpmon there, 0.3 s of a core: seldom after a minute
_ASKED_S = 15.0  # a dashboard asks once an interval, of 10 s at most; nobody looks for one that has what it wants


@dataclass(frozen=True, slots=True)
class Seen:
    """What one look found.

    Attributes:
        listing: the runs there; empty where there is nobody to ask yet.
        waits_for: what is waited for while there is no run, in a sentence.
        outcome: how the whole job has ended, which decides for each of its runs; None where it has not, or is no job.
    """

    listing: Listing
    waits_for: str
    outcome: Fate | None = None


class Place(Protocol):
    """Where runs are looked for: a host behind ssh, or the hosts of a Slurm job.

    Attributes:
        name: what the user calls it, as in "no run on NAME".
        options: those that lead there on the command line, with a space at the end.
    """

    name: str
    options: str

    def look(self) -> Seen:
        """Ask for the runs there; may take many seconds.

        Raises:
            TargetError: what the user named makes no sense.
            StoreUnavailable: nobody can be asked; the message is a sentence.
        """

    def reach(self, store: Target, run: Listed | None, *, attended: bool) -> Target:
        """How a store that the place can reach is read from here.

        Args:
            store: as the place reaches it.
            run: the run that was listed with it, if one was.
            attended: whether a person may be asked for a password.

        Raises:
            StoreUnavailable: there is no way to it.
        """

    def trouble(self) -> str:
        """As `ddpmon.watcher.way.Way` says."""

    def refusal(self) -> str:
        """As `ddpmon.watcher.way.Way` says."""

    def close(self) -> None:
        """Leave nothing behind."""


@dataclass(slots=True)
class Lookout:
    """The `ddpmon.watcher.way.Way` to the runs of a place: looks there again while a dashboard waits for an answer.

    Args:
        place: where to look.
        wanted: the run's name or id, or the beginning of one; None for the only run there.
        job: what a scheduler or a launcher calls the job of the run; None for any.
    """

    place: Place
    wanted: str | None
    job: str | None = None
    _seen: Seen | None = None
    _began: float = 0.0  # when the look began that found this, on the monotonic clock
    _trouble: str = ""  # why the last look found nothing out, in a sentence
    _unclear: str = ""  # why none of the runs that it found is read
    _run: Listed | None = None
    _is_given: bool = False  # the user has named an address
    _target: Target | None = None
    _asked: float = 0.0
    _wanted_since: float = 0.0  # a look that begins after this is wanted at once
    _wake: threading.Event = field(default_factory=threading.Event)
    _is_closed: bool = False
    _thread: threading.Thread | None = None

    def look_first(self, *, waits: bool) -> None:
        """Look once, now.

        Args:
            waits: whether a run that is not there yet is waited for.

        Raises:
            TargetError: several runs fit, or what the user named makes no sense.
            StoreUnavailable: nobody can be asked, or there is no run that fits.
        """
        self._look()
        self._choose(attended=True)
        is_over = self._seen is not None and self._seen.outcome is not None
        if self._target is None and (is_over or not waits):
            raise StoreUnavailable(self.waits_for())

    def go_to(self, store: Target) -> None:
        """Read the store at an address, as the place reaches it, whatever runs are there.

        Raises:
            StoreUnavailable: there is no way to it.
        """
        self._target, self._is_given = self.place.reach(store, None, attended=True), True

    def target(self) -> Target | None:
        """Where the run is to be read; None while there is none."""
        if self._target is None:
            self._ask()
        return self._target

    def waits_for(self) -> str:
        """What is waited for while there is no run, in a sentence."""
        waits = self._seen.waits_for if self._seen is not None else f"there is no run on {self.place.name} yet"
        return self._unclear or self._trouble or waits

    def trouble(self) -> str:
        """Why nothing comes through at present, in a sentence."""
        return self.place.trouble()

    def refusal(self) -> str:
        """Why the far end could not connect to the store."""
        return self.place.refusal()

    def fate(self, run_id: str, since: float) -> Fate | None:
        """What has become of a run, by a look that began after `since`; None while there is none."""
        self._ask()
        if self._began < since:
            if self._wanted_since < since:
                self._wanted_since = since
                self._wake.set()
            return None
        if self._seen is None or self._trouble:
            return Fate("unknown", self._trouble)
        return _fate(self._seen, run_id)

    def close(self) -> None:
        """Look no more."""
        self._is_closed = True
        self._wake.set()
        self.place.close()

    def _ask(self) -> None:
        """Have somebody look."""
        self._asked = time.monotonic()
        if self._thread is None:
            self._thread = threading.Thread(target=self._keep_looking, name="ddpmon-lookout", daemon=True)
            self._thread.start()

    def _keep_looking(self) -> None:
        since = time.monotonic()
        while not self._is_closed:
            now, pause_s = time.monotonic(), 0.5
            if now - self._asked < _ASKED_S and not self.place.trouble():
                self._look_again()
                pause_s = _EVERY_S if now - since < _SOON_S else _LATER_S
            else:
                since = now
            self._wake.wait(pause_s)
            self._wake.clear()

    def _look_again(self) -> None:
        began = time.monotonic()
        try:
            self._look()
        except (StoreUnavailable, TargetError) as error:
            self._trouble, self._began = _first_line(error), began
            return
        try:
            self._choose(attended=False)
        except (StoreUnavailable, TargetError) as error:
            self._unclear = _first_line(error)

    def _look(self) -> None:
        began = time.monotonic()
        self._seen, self._trouble = self.place.look(), ""
        self._began = began

    def _choose(self, *, attended: bool) -> None:
        """Go to the run that fits, unless the one that is read still lives."""
        runs, known = [] if self._seen is None else of_job(self._seen.listing.runs, self.job), self._run
        self._unclear = ""
        if self._is_given or (known is not None and known.id in {run.id for run in runs if run.state is None}):
            return
        run = choose(runs, self.wanted, self.place.name, self.place.options)
        if run is not None and (known is None or known.id != run.id):
            self._target = self.place.reach(parse_target(run.target), run, attended=attended)
            self._run = run


def _fate(seen: Seen, run_id: str) -> Fate:
    """What a look says of one run."""
    if seen.outcome is not None:
        return seen.outcome
    past = next((each for each in seen.listing.past or () if each.id == run_id), None)
    if past is not None:
        return fate_of(past)
    live = next((run for run in seen.listing.runs if run.id == run_id), None)
    if live is not None:
        return Fate("running" if live.state is None else "restarting" if live.state == "restarting" else "killed")
    return Fate("unknown" if seen.listing.past is None else "finished")


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
