"""The Observer: one tick reads the store, updates the Run, judges it, and builds a Snapshot.

It runs in one reader thread. A tick may block for as long as the store's patience; it never raises.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from ddpmon.diagnose.alert import Alert
from ddpmon.diagnose.judge import Judge
from ddpmon.report.sentences import in_words
from ddpmon.run.model import Run
from ddpmon.schema import FrameError
from ddpmon.snapshot import Finding, Metric, Snapshot
from ddpmon.store.base import StoreSilent, StoreUnavailable
from ddpmon.store.signed import CheckedStore
from ddpmon.watcher.feed import Feed
from ddpmon.watcher.link import StoreLink
from ddpmon.watcher.memory import keep_little_memory, return_free_memory
from ddpmon.watcher.picture import Moment, take_picture
from ddpmon.watcher.tap import Tap, Tick
from ddpmon.watcher.way import Way

_TRIMS_EVERY = 10  # snapshots, unless many ranks are read in turns: their tables are large. Chosen, not measured.


@dataclass(frozen=True, slots=True)
class _Built:
    """A snapshot, and what it was built of."""

    snapshot: Snapshot
    feed: Feed | None
    focus: int | None
    metric: Metric


class Observer:
    """Follows one run, through its store's death and its restart. Its process keeps little memory that is free.

    Args:
        target: a URL, or None for the newest run on this host, else for the newest in the store of DDPMON_STORE.
        way: leads to a run that is elsewhere; `target` is then None.
        tap: what else is given all that is read.

    Attributes:
        focus: the rank whose detail the next snapshot carries.
        metric: what its heat-map shows.

    Raises:
        TargetError: the target makes no sense.
    """

    def __init__(self, target: str | None, way: Way | None = None, tap: Tap | None = None) -> None:
        keep_little_memory()
        self.focus: int | None = None
        self.metric: Metric = "lateness"
        self._tap = tap
        self._link = StoreLink(target, way, tap)
        self._judge = Judge()
        self._judged: Feed | None = None  # the one that the judge knows
        self._alerts: tuple[Alert, ...] = ()
        self._findings: tuple[Finding, ...] = ()
        self._builds = 0  # snapshots that ticks have built
        self._last = _Built(Snapshot(self._link.state, 0.0, 0.0), None, None, self.metric)
        self._answered_at = 0.0  # when the store last answered, on the monotonic clock

    @property
    def run(self) -> Run | None:
        """What is known of the run, for the reader's thread alone; None before one was found."""
        return None if self._link.feed is None else self._link.feed.run

    def tick(self) -> Snapshot:
        """Read the store and build a snapshot of what is known now."""
        link, has_read, is_settled = self._link, False, False
        try:
            link.open()
            if link.store is not None and link.feed is not None:
                self._read(link.store, link.feed)
                has_read, is_settled = True, not link.feed.unread_histories
                if link.feed.is_complete or link.feed.unread_histories or link.state.state != "live":
                    link.stand(link.feed)  # else only a part of the ranks has been asked
        except StoreSilent as error:
            link.fall_silent(error)
        except StoreUnavailable as error:
            link.lose(error)
        except FrameError as error:
            link.refuse(str(error))
        if link.feed is not None and not is_settled:
            link.feed.run.outages.begin_outage()
        if link.feed is not None and link.state.state == "gone" and link.feed is self._judged and link.store is None:
            self._take(self._judge.conclude(link.feed.run, self._alerts))
        if self._tap is not None and link.feed is not None:
            self._tap.tick(link.feed.run, self._told(link.feed, is_settled=is_settled))
        return (self._repeated_snapshot() if has_read else None) or self._next_snapshot()

    def _next_snapshot(self) -> Snapshot:
        """Another snapshot; now and then what reading, judging and building took is returned to the system."""
        built, feed = self.rebuild(), self._link.feed
        self._builds += 1
        if self._builds % _TRIMS_EVERY == 0 or (feed is not None and feed.reads_in_parts):
            return_free_memory()
        return built

    def rebuild(self) -> Snapshot:
        """Build a snapshot of what is known, without reading."""
        feed, now = self._link.feed, time.monotonic()
        built = Snapshot(self._link.state, time.time(), now) if feed is None else self._build(feed, now)
        self._last = _Built(built, feed, self.focus, self.metric)
        return built

    def _repeated_snapshot(self) -> Snapshot | None:
        """The last snapshot with the present time, where another one would tell next to nothing new; else None.

        This happens between two turns of a run that is too large to be read whole at every tick.
        """
        last, feed = self._last, self._link.feed
        if feed is None or feed.is_complete or feed.unread_histories or last.snapshot.link != self._link.state:
            return None
        if (last.feed, last.focus, last.metric) != (feed, self.focus, self.metric):
            return None
        return replace(last.snapshot, taken_at=time.time(), taken_monotonic=time.monotonic())

    def close(self) -> None:
        """Let go of the store."""
        self._link.close()

    def _read(self, store: CheckedStore, feed: Feed) -> None:
        if feed is not self._judged:
            self._judge, self._judged, self._alerts, self._findings = Judge(), feed, (), ()
            self._answered_at = feed.read_at
        feed.read(store, self._focused_rank(feed.run), told_ages=self._link.outlives_runs)
        self._answered_at = feed.read_at
        if feed.is_complete:
            self._take(self._judge(feed.run, feed.run.silences(feed.read_at)))

    def _take(self, alerts: tuple[Alert, ...]) -> None:
        if alerts is not self._alerts:
            self._alerts, self._findings = alerts, in_words(alerts)

    def _focused_rank(self, run: Run) -> int | None:
        """The rank that is read at every tick: the reader's, if the run has it."""
        return self.focus if self.focus is not None and 0 <= self.focus < run.info.world_size else None

    def _told(self, feed: Feed, *, is_settled: bool) -> Tick:
        """What the tap is told at the end of a tick."""
        link = self._link
        return Tick(
            read_at=feed.read_at,
            wall=time.time(),
            is_settled=is_settled,
            is_judged=is_settled and feed.is_complete,
            link=link.state,
            ended=link.ended,
            source=link.source,
            alerts=self._alerts if feed is self._judged else (),
            findings=self._findings if feed is self._judged else (),
        )

    def _build(self, feed: Feed, now: float) -> Snapshot:
        link = self._link
        moment = Moment(
            now,
            self._answered_at,
            time.time(),
            link.state,
            link.ended,
            link.source,
            link.notices(),
            feed.unread_histories,
            link.own_host,
        )
        return take_picture(feed.run, moment, self._findings, self._judge.pending, self.focus, self.metric)
