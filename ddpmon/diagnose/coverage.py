"""How much of the run is seen: silent ranks, ranks that two processes publish, steps and frames lost on the way."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ddpmon.diagnose.alert import Alert, Measures
from ddpmon.diagnose.stop_policy import COVERAGE
from ddpmon.diagnose.tick import Tick
from ddpmon.run.latest_frames import Flags
from ddpmon.run.model import LOST_S, SILENT_S, Run


class Losses(Struct, frozen=True):
    """What was lost on the way, in numbers of each.

    Attributes:
        steps, frames: dropped in the ranks, since the store was too slow.
        rejected, refused: frames that the watcher could not accept, and that were not signed with its token.
        set_aside: records of steps with impossible durations.
    """

    steps: int
    frames: int
    rejected: int
    refused: int
    set_aside: int


class Publisher(Struct, frozen=True):
    """A process that publishes frames of a rank: its pid, and its host."""

    pid: int
    host: str


class CoverageMeasures(Measures, frozen=True):
    """How much of the run is not seen.

    Attributes:
        world_size: ranks of the run.
        silent: those that have stopped reporting and are not yet lost.
        silent_s: how long the one of them that has been silent for the longest has been so.
        unheard: those that have never reported.
        losses: what was lost within `window_s`.
        window_s: seconds; None is the time since the watcher began.
        thinned: how many ranks send only some of their steps.
        rank, process: the one of `silent` that has been silent for the longest, and its process; None for none.
    """

    world_size: int
    silent: tuple[int, ...]
    silent_s: float
    unheard: tuple[int, ...]
    losses: Losses
    window_s: float | None
    thinned: int
    rank: int | None = None
    process: Publisher | None = None


class RestartedAloneMeasures(Measures, frozen=True):
    """The named ranks have restarted more often than others and are at other steps, as far as is known."""


class DuplicateRanksMeasures(Measures, frozen=True):
    """Two processes publish as each of the named ranks; `publishers` are those of the first one."""

    publishers: tuple[Publisher, Publisher]


class CoverageRule:
    """Says which verdicts lack evidence, and counts what was lost within the last minute."""

    def __init__(self) -> None:
        self._past: deque[tuple[float, Losses]] = deque()  # what was lost so far, by the watcher's clock in seconds

    def __call__(self, tick: Tick, _said: Sequence[Alert]) -> list[Alert]:
        """One alert if the picture has holes, and one on ranks that restarted alone.

        None for a run that has just started or has ended.
        """
        run, ages = tick.run, tick.ages
        latest = run.latest
        if not run.states:
            return _unheard(run)
        lost = self._lately(run, float(np.nanmax(latest.heard_at + ages)))
        if latest.failed.any() or latest.states == {"finished"}:
            return []
        with np.errstate(invalid="ignore"):
            silent: list[int] = np.flatnonzero((ages > SILENT_S) & (ages <= LOST_S) & ~latest.ended).tolist()
            apart = _restarted_apart(run, ages <= SILENT_S)
        alone = [_alone(run, apart)] if apart else []
        unheard: list[int] = []
        if int(latest.seq.max()) >= COVERAGE.first_frames or lost.rejected or lost.refused:
            unheard = np.flatnonzero(~latest.known).tolist()
        some_lost = any((lost.steps, lost.frames, lost.rejected, lost.refused, lost.set_aside))
        if not silent and not unheard and not some_lost:
            return alone
        longest = max(silent, key=lambda rank: float(ages[rank]), default=None)
        measures = CoverageMeasures(
            world_size=run.info.world_size,
            silent=tuple(silent),
            silent_s=float(ages[silent].max(initial=0.0)),
            unheard=tuple(unheard),
            losses=lost,
            window_s=COVERAGE.lately_s,
            thinned=int(latest.thinned.sum()),
            rank=longest,
            process=None if longest is None else Publisher(latest.pid[longest], latest.host[longest]),
        )
        return [_alert(measures), *alone]

    def _lately(self, run: Run, now: float) -> Losses:
        """What was lost within the last minute that this watcher has seen; its own counts begin with it."""
        total = Losses(
            int(run.latest.dropped_steps.sum()),
            int(run.latest.dropped_frames.sum()),
            run.rejected.total(),
            run.refused,
            run.rings.set_aside,
        )
        if not self._past:
            self._past.append((now, replace(total, rejected=0, refused=0)))
        self._past.append((now, total))
        while now - self._past[0][0] > COVERAGE.lately_s:
            self._past.popleft()
        _, first = self._past[0]
        return Losses(
            max(0, total.steps - first.steps),
            max(0, total.frames - first.frames),
            total.rejected - first.rejected,
            total.refused - first.refused,
            total.set_aside - first.set_aside,
        )


def _restarted_apart(run: Run, heard: Flags) -> list[int]:
    """The ranks among those heard that have restarted, while others of them have not and cannot be compared.

    A watcher that has not seen the restart takes for them whoever is at the lower steps.
    """
    apart, lives, step = run.out_of_step() & heard, run.latest.restarts, run.latest.step
    if not apart.any():
        return []
    if (lives[heard] == lives[heard].min()).all():
        going_on = heard & ~apart
        is_behind = not going_on.any() or step[apart].max() < step[going_on].max()
        again = apart if is_behind else going_on
    else:
        again = heard & (lives > lives[heard].min())
    found: list[int] = np.flatnonzero(again).tolist()
    return found


def _alone(run: Run, ranks: list[int]) -> Alert:
    hosts = tuple(sorted({run.latest.host[rank] for rank in ranks}))
    measures = RestartedAloneMeasures()
    since = max((step for step, _, first in run.restarted if first in ranks and step >= 0), default=None)
    return Alert("monitor_degraded", "info", measures=measures, ranks=tuple(ranks), nodes=hosts, since_step=since)


def _unheard(run: Run) -> list[Alert]:
    """Nobody has been heard of: an alert if that is because nothing could be read or believed."""
    lost, world = Losses(0, 0, run.rejected.total(), run.refused, 0), run.info.world_size
    if not lost.rejected and not lost.refused:
        return []
    thinned = int(run.latest.thinned.sum())
    return [_alert(CoverageMeasures(world, (), 0.0, tuple(range(world)), lost, None, thinned))]


def _alert(measures: CoverageMeasures) -> Alert:
    absent = tuple(sorted([*measures.silent, *measures.unheard]))
    severe = len(absent) >= COVERAGE.warning_share * measures.world_size
    return Alert("monitor_degraded", "warning" if severe else "info", measures=measures, ranks=absent)


def find_duplicates(tick: Tick, _said: Sequence[Alert]) -> list[Alert]:
    """One alert for all ranks as which two processes publish, if this was seen within the last minute."""
    run, ages = tick.run, tick.ages
    if not run.duplicates.seen:
        return []
    now = float(np.nanmax(run.latest.heard_at + ages))
    ranks = sorted(rank for rank, double in run.duplicates.seen.items() if now - double.at <= COVERAGE.lately_s)
    if not ranks:
        return []
    double = run.duplicates.seen[ranks[0]]
    measures = DuplicateRanksMeasures((Publisher(*double.kept), Publisher(*double.other)))
    return [Alert("monitor_degraded", "warning", measures=measures, ranks=tuple(ranks))]
