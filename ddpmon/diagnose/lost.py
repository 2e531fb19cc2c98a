"""Ranks that have been silent for too long, and those that are heard again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from ddpmon.diagnose.alert import Alert, Measures, Severity, at_or_above
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


class Loss(Struct, frozen=True):
    """One lost rank, as it was when it was heard last.

    Attributes:
        id: the number of its life in the book of alerts, 1 or more.
        host, pid: its process.
        step: the last one that it had finished, -1 before the first.
        phase: in which it was.
        began: the run's step then, -1 before the first.
        has_restarted: whether it had been seen to restart by then.
        worst: the worst severity of the alerts on it.
    """

    id: int
    host: str
    pid: int
    step: int
    phase: str
    began: int
    has_restarted: bool
    worst: Severity = "info"


class LostRule:
    """Says which ranks are lost, and remembers which of them were heard again. A rank that restarts is one of these.

    Each lost rank has a life. An alert on several has that of the one that it is about.

    Args:
        ids: where the numbers of lives come from.

    Attributes:
        resolved: the last losses that are over, oldest first.
    """

    def __init__(self, ids: Iterator[int]) -> None:
        self.resolved: list[Alert] = []
        self._ids = ids
        self._losses: dict[int, Loss] = {}  # rank -> its loss, of those that an alert has named
        self._outlived: set[int] = set()  # those of them that the run was last seen to go on without
        self._ages: NDArray[np.float64] = np.empty(0)  # [world] of the last tick, in s

    def __call__(self, tick: Tick, said: Sequence[Alert]) -> list[Alert]:
        """One alert for all lost ranks without which the run stands still, and one for those that it has outlived.

        None if all of them are named already, as those that ended before a failure. After a failure the launcher ends
        the other ranks, some of them before their last frame: those that the run has not outlived follow from it.
        """
        lost = lost_ranks(tick.run, tick.ages)
        self._end(tick.run, lost)
        self._ages = tick.ages
        if {rank for alert in said for rank in alert.ranks}.issuperset(lost.tolist()):
            return []
        outlived = _are_outlived(tick, lost)
        if any(alert.kind == "rank_failed" for alert in said):
            lost, outlived = lost[outlived], outlived[outlived]
        self._outlived = set(lost[outlived].tolist())
        own_steps = _counted_by_the_run(tick)
        self._begin(tick, lost, own_steps)
        groups = (lost[~outlived], False), (lost[outlived], True)
        return [self._lasting(ranks, own_steps, others_go_on=go_on) for ranks, go_on in groups if len(ranks)]

    def begin_again(self) -> None:
        """Most ranks count their steps from the beginning: forget what is over, and the steps at which losses began."""
        self.resolved.clear()
        self._losses = {rank: replace(loss, began=-1) for rank, loss in self._losses.items()}

    def _begin(self, tick: Tick, lost: NDArray[np.int64], own_steps: NDArray[np.bool_]) -> None:
        """Begin the lives of the ranks that were not `lost` before, that of the longest silent first.

        Args:
            tick: what is judged.
            lost: the ranks that are lost now.
            own_steps: [world] whether a rank counts its steps as the run does.
        """
        new = np.array([rank for rank in lost.tolist() if rank not in self._losses], np.int64)
        new = new[np.argsort(-tick.ages[new], kind="stable")]
        latest = tick.run.latest
        own = latest.step[new]
        began = np.maximum(_steps_at(tick.run, latest.heard_at[new]), np.where(own_steps[new], own, -1))
        known = zip(new.tolist(), own.tolist(), began.tolist(), (latest.restarts[new] > 0).tolist(), strict=True)
        for rank, step, since, again in known:
            process = latest.host[rank], latest.pid[rank]
            self._losses[rank] = Loss(next(self._ids), *process, step, latest.phase[rank], since, again)

    def _lasting(self, ranks: NDArray[np.int64], own_steps: NDArray[np.bool_], *, others_go_on: bool) -> Alert:
        """What is said of these lost ranks. The step of a rank that has restarted alone is none of the run's."""
        alert, about = self._alert(ranks, others_go_on=others_go_on)
        step = self._losses[about].step
        for rank in alert.ranks:
            if not at_or_above(self._losses[rank].worst, alert.severity):
                self._losses[rank] = replace(self._losses[rank], worst=alert.severity)
        return replace(alert, since_step=step if step >= 0 and own_steps[about] else None)

    def _end(self, run: Run, lost: NDArray[np.int64]) -> None:
        """Resolve the losses of the ranks that are heard again, those together that one alert has named.

        A rank that says in its last frame that it has ended leaves nothing behind: others tell how.
        """
        if not self._losses:
            return
        back = np.array(sorted(self._losses.keys() - set(lost.tolist())), np.int64)
        heard = back[~run.latest.ended[back]]
        outlived = np.isin(heard, [*self._outlived])
        for ranks, go_on in (heard[~outlived], False), (heard[outlived], True):
            if len(ranks):
                self.resolved.append(self._over(run, ranks, others_go_on=go_on))
        del self.resolved[: -ALERTS.kept_resolved]
        for rank in back.tolist():
            del self._losses[rank]

    def _over(self, run: Run, ranks: NDArray[np.int64], *, others_go_on: bool) -> Alert:
        """What was said of these ranks, as over since the step that the run is in; both steps are the run's."""
        alert, about = self._alert(ranks, others_go_on=others_go_on)
        began = self._losses[about].began
        end = max(int(run.latest.step[~run.out_of_step()].max(initial=-1)) + 1, began)
        since = began if began >= 0 else None
        return replace(alert, severity=self._losses[about].worst, since_step=since, cleared_at_step=end)

    def _alert(self, ranks: NDArray[np.int64], *, others_go_on: bool) -> tuple[Alert, int]:
        """An alert on these ranks, without steps; and which of them it is about: the one silent for the longest."""
        about = int(ranks[np.argmax(self._ages[ranks])])
        loss, silent_s = self._losses[about], float(self._ages[about])
        named = ranks.tolist()
        alert = Alert(
            kind="rank_lost",
            severity="warning" if others_go_on else "critical",
            measures=LostMeasures(
                about, loss.host, loss.pid, silent_s, loss.step, loss.phase, loss.has_restarted, others_go_on
            ),
            ranks=tuple(named),
            nodes=tuple(sorted({self._losses[rank].host for rank in named})),
            id=loss.id,
        )
        return alert, about


def _steps_at(run: Run, moments: NDArray[np.float64]) -> NDArray[np.int64]:
    """[n] the steps that the run had finished at these [n] moments, -1 where none is known to have ended by then.

    Args:
        run: which.
        moments: in monotonic seconds.
    """
    steps, ended_at = run.step_times.known()
    behind = np.concatenate(([-1], steps.astype(np.int64)))  # behind so many moments
    found: NDArray[np.int64] = behind[np.searchsorted(ended_at, moments, side="right")]
    return found


def _counted_by_the_run(tick: Tick) -> NDArray[np.bool_]:
    """[world] whether a rank is of the same life as all that take part; if not, its steps are none of the run's."""
    lives = tick.run.latest.restarts
    theirs = lives[tick.alive]
    if not len(theirs):
        return ~tick.run.out_of_step()
    same: NDArray[np.bool_] = (lives == theirs.min()) & (lives == theirs.max()) & ~tick.run.out_of_step()
    return same


def _are_outlived(tick: Tick, lost: NDArray[np.int64]) -> NDArray[np.bool_]:
    """[len(lost)] whether every other rank that takes part has finished a step long after each was heard last.

    A rank may die right after its last frame, in the step that the others then finish with it or without it; so one
    usual step and some seconds must lie between.
    """
    others = _others(tick, lost)
    usual_s = _usual_s(tick, others)
    if not others.any() or np.isnan(usual_s):
        return np.zeros(len(lost), np.bool_)
    finished_s = tick.ages[others] + tick.run.latest.step_s[others]  # how long ago; NaN where a rank does not tell
    found: NDArray[np.bool_] = np.max(finished_s) < tick.ages[lost] - usual_s - COVERAGE.outlived_s
    return found


def _usual_s(tick: Tick, others: NDArray[np.bool_]) -> float:
    """What a step takes; of steps of these ranks alone where no rank takes part; NaN where that is not known."""
    durations = tick.steps.job("duration")
    if durations.size:
        return float(np.median(durations[-RECENT:])) / 1e3
    return tick.run.rings.usual_ms(np.flatnonzero(others)) / 1e3


def _others(tick: Tick, lost: NDArray[np.int64]) -> NDArray[np.bool_]:
    """[world] the ranks that take part without the lost ones; where none is left, those that are at other steps."""
    run = tick.run
    if tick.alive.any():
        return tick.alive
    others: NDArray[np.bool_] = run.out_of_step() & run.latest.known & ~run.latest.ended
    others[lost] = False
    return others
