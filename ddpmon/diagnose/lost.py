"""Ranks that have been silent for too long, and those that are heard again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from ddpmon.diagnose.alert import Alert, Measures
from ddpmon.diagnose.late_policy import ALERTS
from ddpmon.diagnose.step_matrix import lost_ranks
from ddpmon.diagnose.stop_policy import COVERAGE
from ddpmon.diagnose.tick import Tick
from ddpmon.run.model import Run
from ddpmon.run.recent import RECENT


class LostMeasures(Measures, frozen=True):
    """The named ranks are lost.

    Attributes:
        rank: the one that has been silent for the longest; the rest is about it.
        host, pid: its process.
        silent_s: seconds since it was last heard.
        step: the last one that it had finished then, -1 before the first.
        phase: in which it was then.
        has_restarted: whether it has been seen to restart, since when it counts its steps from the beginning.
        others_go_on: whether the other ranks have finished steps long after it was last heard. In synchronous training
            no rank can do so without it: it took part, and only its reports are missing. An elastic run may go on with
            fewer ranks.
    """

    rank: int
    host: str
    pid: int
    silent_s: float
    step: int
    phase: str
    has_restarted: bool = False
    others_go_on: bool = False


class LostRule:
    """Says which ranks are lost, and remembers which of them were heard again. A rank that restarts is one of these.

    Attributes:
        resolved: the last losses that are over, oldest first.
    """

    def __init__(self) -> None:
        self.resolved: list[Alert] = []
        self._lasting: dict[int, Alert] = {}  # rank -> the alert that names it
        self._began: dict[int, int] = {}  # rank -> the run's step when it was heard last, -1 before the first

    def __call__(self, tick: Tick, said: Sequence[Alert]) -> list[Alert]:
        """One alert for all lost ranks without which the run stands still, and one for those that it has outlived."""
        lost = lost_ranks(tick.run, tick.ages)
        self._end(tick.run, lost)
        found = _find_lost(tick, said, lost)
        for alert in found:
            self._lasting |= dict.fromkeys(alert.ranks, alert)
        for rank in self._lasting.keys() - self._began.keys():
            told = self._lasting[rank].since_step
            self._began[rank] = max(_step_at(tick.run, rank), -1 if told is None else told)
        return found

    def _end(self, run: Run, lost: NDArray[np.int64]) -> None:
        """Resolve the losses of the ranks that are no longer lost: those that one alert named as one."""
        back: dict[tuple[int, ...], list[int]] = {}
        for rank in sorted(self._lasting.keys() - set(lost.tolist())) if self._lasting else ():
            back.setdefault(self._lasting[rank].ranks, []).append(rank)
        for ranks in back.values():
            self.resolved.append(_as_over(self._lasting[ranks[0]], ranks, self._began[ranks[0]], run))
            for rank in ranks:
                del self._lasting[rank], self._began[rank]
        del self.resolved[: -ALERTS.kept_resolved]


def _as_over(alert: Alert, ranks: Sequence[int], began: int, run: Run) -> Alert:
    """What was said of these ranks, as over since the step that the run is in; `began` is the step of their last word.

    Both are steps of the run: those of a rank that has restarted may begin at 0.
    """
    end = max(int(run.latest.step[~run.out_of_step()].max(initial=-1)) + 1, began)
    hosts = {state.frame.host for rank in ranks if (state := run.ranks[rank]) is not None}
    return replace(
        alert,
        severity="info",
        ranks=tuple(ranks),
        nodes=tuple(sorted(hosts)),
        since_step=began if began >= 0 else None,
        cleared_at_step=end,
    )


def _step_at(run: Run, rank: int) -> int:
    """The step that the run had finished when a rank was heard last, -1 where none is known to have ended by then."""
    steps, ended_at = run.step_times.known()
    place = int(np.searchsorted(ended_at, run.latest.heard_at[rank], side="right")) - 1
    return int(steps[place]) if place >= 0 else -1


def _find_lost(tick: Tick, said: Sequence[Alert], lost: NDArray[np.int64]) -> list[Alert]:
    """One alert for all lost ranks without which the run stands still, and one for those that it has outlived.

    None if all of them are named already, as those that ended before a failure.
    """
    if {rank for alert in said for rank in alert.ranks}.issuperset(lost.tolist()):
        return []
    outlived = _are_outlived(tick, lost)
    groups = (lost[~outlived].tolist(), False), (lost[outlived].tolist(), True)
    return [_lost_alert(tick, ranks, others_go_on=go_on) for ranks, go_on in groups if ranks]


def _lost_alert(tick: Tick, lost: Sequence[int], *, others_go_on: bool) -> Alert:
    run, ages, lives = tick.run, tick.ages, tick.run.latest.restarts
    first = max(lost, key=lambda rank: ages[rank])
    frames = {rank: state.frame for rank in lost if (state := run.ranks[rank]) is not None}  # all: they have an age
    frame, again, silent_s = frames[first], bool(lives[first] > 0), float(ages[first])
    counts_as_others = bool((lives[tick.alive] == lives[first]).all())  # if not, its step number is none of the run's
    return Alert(
        kind="rank_lost",
        severity="warning" if others_go_on else "critical",
        measures=LostMeasures(first, frame.host, frame.pid, silent_s, frame.step, frame.phase, again, others_go_on),
        ranks=tuple(lost),
        nodes=tuple(sorted({each.host for each in frames.values()})),
        since_step=frame.step if frame.step >= 0 and counts_as_others else None,
    )


def _are_outlived(tick: Tick, lost: NDArray[np.int64]) -> NDArray[np.bool_]:
    """[len(lost)] whether every other rank that is heard has finished a step long after each was heard last.

    A rank may die right after its last frame, in the step that the others then finish with it or without it; so one
    usual step and some seconds must lie between.
    """
    others = tick.alive & ~tick.run.out_of_step()
    durations = tick.steps.job("duration")
    if not others.any() or not durations.size:
        return np.zeros(len(lost), np.bool_)
    finished_s = tick.ages[others] + tick.run.latest.step_s[others]  # how long ago; NaN where a rank does not tell
    usual_s = float(np.median(durations[-RECENT:])) / 1e3
    found: NDArray[np.bool_] = np.max(finished_s) < tick.ages[lost] - usual_s - COVERAGE.outlived_s
    return found
