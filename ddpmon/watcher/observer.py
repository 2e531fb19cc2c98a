"""The Observer: one tick reads the store, updates the Run, judges it, and builds a Snapshot.

It runs in one reader thread. A tick may block for as long as the store's patience; it never raises.
"""

from __future__ import annotations

import time

import numpy as np

from ddpmon.diagnose.judge import Judge
from ddpmon.diagnose.step_matrix import lost_ranks
from ddpmon.report import build, run_life
from ddpmon.report.sentences import in_words
from ddpmon.run.model import Run
from ddpmon.schema import FrameError
from ddpmon.snapshot import Finding, Snapshot
from ddpmon.store.base import StoreSilent, StoreUnavailable
from ddpmon.store.signed import CheckedStore
from ddpmon.watcher.feed import Feed
from ddpmon.watcher.link import StoreLink
from ddpmon.watcher.way import Way

_NAMED = 16  # findings, and ranks of each, that are read at every tick


class Observer:
    """Follows one run, through its store's death and its restart.

    Args:
        target: a URL, or None for the newest run on this host, else for the newest in the store of DDPMON_STORE.
        way: leads to a run that is elsewhere; `target` is then None.

    Attributes:
        focus: the rank whose detail the next snapshot carries.

    Raises:
        TargetError: the target makes no sense.
    """

    def __init__(self, target: str | None, way: Way | None = None) -> None:
        self.focus: int | None = None
        self._link = StoreLink(target, way)
        self._judge = Judge()
        self._judged: Feed | None = None  # the one that the judge knows
        self._findings: tuple[Finding, ...] = ()
        self._answered_at = 0.0  # when the store last answered, on the monotonic clock

    @property
    def run(self) -> Run | None:
        """What is known of the run, for the reader's thread alone; None before one was found."""
        return None if self._link.feed is None else self._link.feed.run

    def tick(self) -> Snapshot:
        """Read the store and build a snapshot of what is known now."""
        link = self._link
        try:
            link.open()
            if link.store is not None and link.feed is not None:
                self._read(link.store, link.feed)
                link.stand(link.feed.run)
        except StoreSilent as error:
            link.fall_silent(error)
        except StoreUnavailable as error:
            link.lose(error)
        except FrameError as error:
            link.refuse(str(error))
        return self.rebuild()

    def rebuild(self) -> Snapshot:
        """Build a snapshot of what is known, without reading."""
        now = time.monotonic()
        if self._link.feed is None:
            return Snapshot(self._link.state, time.time(), now)
        return self._build(self._link.feed, now)

    def close(self) -> None:
        """Let go of the store."""
        self._link.close()

    def _read(self, store: CheckedStore, feed: Feed) -> None:
        if feed is not self._judged:
            self._judge, self._judged, self._findings, self._answered_at = Judge(), feed, (), feed.read_at
        feed.read(store, self._in_question(feed.run), told_ages=self._link.outlives_runs)
        self._answered_at = feed.read_at
        if feed.is_complete:
            self._findings = in_words(self._judge(feed.run, feed.run.ages(feed.read_at)))

    def _in_question(self, run: Run) -> set[int]:
        """The ranks that are read at every tick: the reader's, and some of those that the findings name."""
        named = {rank for finding in self._findings[:_NAMED] for rank in finding.ranks[:_NAMED]}
        named |= {self.focus} if self.focus is not None else set()
        return {rank for rank in named if 0 <= rank < run.info.world_size}

    def _build(self, feed: Feed, now: float) -> Snapshot:
        run, link = feed.run, self._link
        ages = run.ages(now)
        lost = lost_ranks(run, run.ages(self._answered_at))  # while the store is silent, the ranks are not to blame
        told = ages * np.nan if link.state.state == "silent" else ages  # steps may be finished that nobody tells
        ranks = build.build_ranks(run, ages, lost)
        alive = run.taking_part()
        alive[lost] = False
        if not alive.any():  # then the last picture is of all
            alive = run.taking_part()
        view = build.build_run(run, told, lost, link.source, ended=link.ended)
        return Snapshot(
            link=link.state,
            taken_at=time.time(),
            taken_monotonic=now,
            run=view,
            coverage=build.build_coverage(run, ages, now),
            job=build.build_job(run, ranks, alive, self._findings),
            ranks=ranks,
            heat=build.build_heat(run),
            series=build.build_series(run),
            nodes=build.build_nodes(run, now),
            findings=self._findings,
            pending=self._judge.pending,
            notices=(*run_life.of_run(run.info, view.state), *link.notices(), *_notices(run)),
            detail=None if self.focus is None else build.build_detail(run, self.focus),
        )


def _notices(run: Run) -> list[str]:
    """What was set aside, and why."""
    said = [
        f"{'once' if count == 1 else f'{count:,} times'}: {reason}" for reason, count in run.rejected.most_common(5)
    ]
    noted = np.flatnonzero(run.latest.noted)[:5].tolist()
    said += [f"rank {rank}: {run.states[rank].frame.notes[-1]}" for rank in noted]
    if run.latest.thinned.any():
        said.append("steps are faster than they can be sent: only every second, fourth, ... step is kept")
    if run.rings.set_aside:
        said.append(f"{run.rings.set_aside} step records were set aside: their durations are impossible")
    return said
