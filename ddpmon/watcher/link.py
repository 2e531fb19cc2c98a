"""A watcher's way to a run: finds its store, opens it again when it was lost, and says how things stand."""

from __future__ import annotations

import socket
import time
from dataclasses import replace

from ddpmon.report.wording import clean
from ddpmon.run.model import SILENT_S, Run
from ddpmon.schema import RunInfo
from ddpmon.snapshot import Link, RunState
from ddpmon.store.base import StoreHungUp, StoreSilent, StoreUnavailable, run_prefix
from ddpmon.store.connect import Target, connect, external_store_of_environment, list_runs, parse_target
from ddpmon.store.discovery import discover, told_of_containers
from ddpmon.store.private import squatted
from ddpmon.store.signed import CheckedStore, Checks, token_of_environment
from ddpmon.watcher import run_end
from ddpmon.watcher.feed import Feed
from ddpmon.watcher.select_run import select_run
from ddpmon.watcher.tap import Tap
from ddpmon.watcher.way import Fate, Way

_REOPEN_S = 5.0  # between attempts at a store that was silent: an attempt may take as long
_NEWS_S = 60.0  # so long it is said that another run has taken the place of the one before
_SUCCESSOR_S = 2.0  # between looks for a run that has started since
_HOW = "start one, or name one on other hosts by tcp://HOST:PORT, --ssh HOST or --slurm JOBID"
_OPEN = (None, "restarting", "lost")  # what is known of a run's end, where a later look may tell more
_DEAD = ("killed", "cancelled", "failed")  # known ends of a run whose own store can still be read for a minute


class StoreLink:
    """Waiting, live, silent or gone: the state of the way to one run, through its store's death and its restart.

    Args:
        target: a URL, or None for the newest run on this host, else for the newest in the store of DDPMON_STORE.
        way: leads to a run that is elsewhere; `target` is then None.
        tap: what else is given all that is read.

    Attributes:
        store: where frames are read; None while there is no connection.
        feed: the run that is followed, or was followed last; None before the first.
        state: how the watcher stands with the store.
        ended: the run's state once its end is known; None while it runs.
        source: the URL of what was opened last.
        own_host: the name of this host, if the run is announced here; else "".
        passed_over: newer runs in the store that were not believed.

    Raises:
        TargetError: the target makes no sense.
    """

    def __init__(self, target: str | None, way: Way | None = None, tap: Tap | None = None) -> None:
        self._way, self._tap = way, tap
        self.store: CheckedStore | None = None
        self.feed: Feed | None = None
        self.state = Link("waiting", "looking for a run")
        self.ended: RunState | None = None
        self.source, self.own_host = target or "", ""
        self.passed_over = 0
        self._target = None if target is None else parse_target(target)
        self._engine = external_store_of_environment() if target is None and way is None else None
        self._checks = Checks(token_of_environment())
        self._followed: Target | None = None  # what was opened last
        self._next_open = self._next_look = self._news_until = 0.0
        self._over_since: float | None = None  # when the run first seemed to be over, on the monotonic clock
        self._news = ""

    @property
    def outlives_runs(self) -> bool:
        """Whether the store does not end with the run, and tells how old its values are."""
        return self._followed is not None and self._followed.redis is not None

    def notices(self) -> list[str]:
        """What was not believed, in sentences."""
        said = self._checks.notices()
        if self.passed_over:
            runs = "runs are" if self.passed_over > 1 else "run is"
            said.append(f"{self.passed_over} newer {runs} not signed with this DDPMON_TOKEN")
        return said

    def open(self) -> None:
        """Find a run and connect to its store, unless there is a connection; without a run, wait.

        Raises:
            StoreUnavailable: there is an address, but no store behind it.
            FrameError: the store's run cannot be read.
        """
        if self.store is not None or time.monotonic() < self._next_open:
            return
        target = self._way.target() if self._way is not None else self._target or self._discovered()
        if target is None:
            self._wait()
            return
        store = connect(target, checks=self._checks)
        try:
            self._begin(store, target)
        except BaseException:
            store.close()
            raise
        self.store, self.source, self._followed = store, target.url, target

    def stand(self, feed: Feed) -> None:
        """The store has answered: say whether the run lives, or is a memory that the store keeps."""
        run, now = feed.run, feed.read_at  # what this watcher has taken since then is no silence of the ranks
        ages, silences = run.ages(now), run.silences(now)
        over, is_mute = run_end.is_over(run, silences), run_end.is_over(run, silences, SILENT_S)
        fate = self._fate(run) if is_mute else None
        self._over_since = self._over_since if is_mute else None
        if fate is not None and (fate.state == "restarting" or (fate.state in _DEAD and not self.outlives_runs)):
            self.ended, message = run_end.store_gone(run, "", fate)
            self.state = Link("gone", message)
        elif over and fate is not None and fate.state == "finished" and not self.outlives_runs:
            self.ended, message = run_end.store_gone(run, "", fate)
            self.state = Link("gone", message)
            self.close()  # all has been read: the store's process need not wait for this reader
        elif over and self.outlives_runs:
            self.ended, message = run_end.remembered(run, ages)
            self.state = Link("gone", message)
        else:
            news = self._news if now < self._news_until else run_end.after_outage(run, now, feed.all_read_since)
            mute = run_end.no_word(run, fate, silences, is_asked=self._way is not None) if is_mute else ""
            self.state, self.ended = Link("live", mute or news), None
        if over and now >= self._next_look:
            self._next_look = now + _SUCCESSOR_S
            self._look_for_a_successor(run)

    def fall_silent(self, reason: StoreSilent) -> None:
        """The store does not answer in time: keep the last picture, and go on asking."""
        if self._is_cut_off() or self._leads_elsewhere():
            self.close()
        elif self.store is not None:
            self.state = Link("silent", f"{reason}: its host may be stopped or disconnected; ddpmon keeps trying")
        else:
            if not isinstance(reason, StoreHungUp):  # which takes no time
                self._next_open = time.monotonic() + _REOPEN_S
            self.lose(reason)

    def lose(self, reason: StoreUnavailable) -> None:
        """The store has ended, or the way to it: keep the last picture and say whether the run has ended with it."""
        self.close()
        if self._is_cut_off():
            return
        why = (self._way.refusal() if self._way is not None else "") or str(reason)
        if self.feed is None:
            self.state = Link("waiting", why)
        elif self.outlives_runs:
            self.state = Link("silent", f"{why}; the run does not depend on it; ddpmon keeps trying")
        elif self.ended in _OPEN:
            self._judge_the_end(self.feed.run, why)
        elif self._way is not None:
            self._fate(self.feed.run)  # so that the next run there is found
            self._next_open = time.monotonic() + _REOPEN_S

    def _is_cut_off(self) -> bool:
        """Whether the way is what fails; then that is said, and nothing of the run."""
        trouble = "" if self._way is None or self.ended not in _OPEN else self._way.trouble()
        if trouble:
            self.state = Link("waiting" if self.feed is None else "silent", trouble)
        return bool(trouble)

    def _leads_elsewhere(self) -> bool:
        """Whether the way leads to another run by now, so that the tunnel of this one is closed."""
        return self._way is not None and self.store is not None and self._way.target() != self._followed

    def _judge_the_end(self, run: Run, why: str) -> None:
        """Say what has become of a run whose store has ended, as soon as somebody who can look has looked."""
        fate = self._fate(run)
        if fate is not None and fate.state == "running":
            self._over_since = None  # it may end after that look
            self.state = Link("silent", f"{why}; its process still runs, so ddpmon keeps trying")
        elif fate is None and self._way is not None:
            self.state = Link("silent", f"{why}; ddpmon looks there what has become of the run")
        else:
            self.ended, message = run_end.store_gone(run, why, fate)
            self.state = Link("gone", message)

    def refuse(self, reason: str) -> None:
        """What lies in the store cannot be read as a run."""
        self.state = Link("gone" if self.feed is not None else "waiting", reason)
        self.close()

    def close(self) -> None:
        """Let go of the store."""
        store, self.store = self.store, None
        if store is not None:
            store.close()

    def _fate(self, run: Run) -> Fate | None:
        """What has become of a run that seems over; None where nobody can look, or nobody has looked yet."""
        if self._way is None:
            return run_end.fate_here(run)
        self._over_since = self._over_since or time.monotonic()
        return self._way.fate(run.info.run_id, self._over_since)

    def _wait(self) -> None:
        """There is no run on this host.

        Raises:
            StoreUnavailable: the run that was followed is no longer announced.
        """
        if self._way is not None:
            if self.feed is None and not self._is_cut_off():
                self.state = Link("waiting", self._way.waits_for())
        elif self.feed is None:
            why = squatted() or told_of_containers() or _HOW
            self.state = Link("waiting", f"there is no run on this host now; {why}")
        elif self.ended is None:  # when its store fell silent, it was still announced
            raise StoreUnavailable("the run is no longer announced on this host")

    def _discovered(self) -> Target | None:
        runs = discover()
        if not runs:
            return self._engine or (self._followed if self.outlives_runs else None)
        return replace(parse_target(runs[0].url), run_id=runs[0].run_id)

    def _begin(self, store: CheckedStore, target: Target) -> None:
        """Read which run this is; a run that is not the one we know starts with a clean sheet."""
        known = None if self.feed is None else self.feed.run.info.run_id
        kept = known if target.redis is not None and self.ended is None else None
        info, self.passed_over = select_run(store, target, kept)
        if known == info.run_id:
            return
        if known is not None:
            self._news = _news(info, known)
            self._news_until = time.monotonic() + _NEWS_S
        self.feed = Feed(info, self._tap)
        is_here = self._way is None and any(each.run_id == info.run_id for each in discover())
        self.own_host = socket.gethostname() if is_here else ""
        self._checks.begin()
        store.expect(run_prefix(info.run_id))  # rank 0 makes all of a run's keys before it describes the run

    def _look_for_a_successor(self, run: Run) -> None:
        """The run is over: where no particular one was asked for, go on to one that has started since."""
        newest: list[str | None] = []
        if self._way is not None:
            newest += [target.run_id] if (target := self._way.target()) is not None and target.run_id else []
        elif self._target is None:
            newest += [found.run_id for found in discover()[:1]]
        if self.store is not None and self._followed is not None and self._followed.run_id is None:
            newest += list_runs(self.store)[-1:]
        if any(run_id != run.info.run_id for run_id in newest):
            self.close()


def _news(info: RunInfo, before: str) -> str:
    """Which run has taken the place of the one before: its next attempt, or another one."""
    if before in (attempt.run_id for attempt in info.attempts):
        return f"the launcher has restarted {clean(info.name)}: the notices say how the attempt before it ended"
    return f"another run has started here: {clean(info.name)}; the previous one has ended"
