"""Ranks that ended with an exception: whose came first, and which failures only follow from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ddpmon.diagnose.alert import Alert, Measures
from ddpmon.diagnose.stop_policy import STALL
from ddpmon.diagnose.tick import Tick
from ddpmon.failure_role import Role, is_terminated, role_of
from ddpmon.run.model import SILENT_S, Run
from ddpmon.schema import RankFrame


class RankError(Struct, frozen=True):
    """The exception that ended a rank: its class, such as "IndexError", and its message."""

    kind: str
    message: str


class RankEnd(Struct, frozen=True):
    """How a rank ended.

    Attributes:
        step: the last one that it had finished, -1 before the first.
        error: None if it did not report any.
        traceback: the last lines of it, most recent call last.
    """

    step: int
    error: RankError | None = None
    traceback: tuple[str, ...] = ()


class FirstFailureMeasures(Measures, frozen=True):
    """The named ranks failed by themselves.

    Attributes:
        first: how the first of them ended.
        other_errors: the different exceptions of the rest of them.
        followers: the ranks whose failures follow from it.
    """

    first: RankEnd
    other_errors: tuple[RankError | None, ...] = ()
    followers: tuple[int, ...] = ()


class InterruptedMeasures(Measures, frozen=True):
    """Somebody interrupted the run.

    Attributes:
        step: the last one that an interrupted rank had finished, -1 before the first.
        error: of the first interrupted rank.
        ranks: those that were interrupted; `are_all` says whether these are all ranks of the run.
        failed: how many ranks have failed in any way.
    """

    step: int
    error: RankError | None
    ranks: tuple[int, ...]
    are_all: bool
    failed: int


class DisappearedMeasures(Measures, frozen=True):
    """The named ranks fell silent without a message, and others failed because of it.

    Attributes:
        first: how far the first of them had come.
        followers: the ranks that failed because of it.
        error: of the first of these.
    """

    first: RankEnd
    followers: tuple[int, ...]
    error: RankError | None


class LeftMeasures(Measures, frozen=True):
    """The named ranks ended without an exception, while others still needed them.

    Attributes:
        first: how far the first of them had come.
        followers: the ranks that failed because of it.
        error: of the first of these.
    """

    first: RankEnd
    followers: tuple[int, ...]
    error: RankError | None


class BrokenConnectionMeasures(Measures, frozen=True):
    """All failures follow from another rank's end, and no rank reported one.

    Attributes:
        first: how the first of the failed ranks ended.
        ranks: all of these.
    """

    first: RankEnd
    ranks: tuple[int, ...]


def step_of(frame: RankFrame) -> int:
    """The last step that it had finished, -1 before the first."""
    return frame.failure.step if frame.failure is not None else frame.step


def find_failed(tick: Tick, _said: Sequence[Alert]) -> list[Alert]:
    """One alert for all ranks that have failed: the first cause by step, then rank; the rest as its consequence.

    None yet where all failures may follow from the end of a rank of which that is not known yet.
    """
    run, ages = tick.run, tick.ages
    if undecided(run, ages).any() and _are_consequences(run):
        return []
    return _alerts(run, _disappeared(run, ages))


def conclude(run: Run) -> list[Alert]:
    """What ended a run whose store is gone: the ranks that have not said how they end have disappeared."""
    return _alerts(run, np.flatnonzero(run.latest.known & ~run.latest.ended).tolist())


def undecided(run: Run, ages: NDArray[np.float64]) -> NDArray[np.bool_]:
    """[world] the ranks that may have ended without a message before the first rank failed.

    They have not been silent for long enough, and have not been heard since for long enough.
    """
    latest = run.latest
    if not latest.failed.any():
        return np.zeros(len(ages), np.bool_)
    with np.errstate(invalid="ignore"):
        found: NDArray[np.bool_] = (
            ~latest.ended & (ages <= SILENT_S) & (latest.heard_at <= latest.heard_at[latest.failed].min() + SILENT_S)
        )
    return found


def _are_consequences(run: Run) -> bool:
    """Whether ranks have failed because another rank had ended, and none by itself or because somebody interrupted it.

    A launcher sends SIGTERM to the others once a rank has ended.
    """
    failures = [run.states[rank].frame.failure for rank in np.flatnonzero(run.latest.failed).tolist()]
    roles = {role_of(failure) for failure in failures if not is_terminated(failure)}
    return "secondary" in roles and roles.isdisjoint({"cause", "interrupt"})


def _alerts(run: Run, disappeared: Sequence[int]) -> list[Alert]:
    failed = {rank: run.states[rank].frame for rank in np.flatnonzero(run.latest.failed).tolist()}
    if not failed:
        return []
    order = sorted(failed, key=lambda rank: (step_of(failed[rank]), rank))
    by_role: dict[Role, list[int]] = {"cause": [], "unknown": [], "interrupt": [], "secondary": []}
    for rank in order:
        by_role[role_of(failed[rank].failure)].append(rank)
    if by_role["cause"]:
        return [_primary(failed, by_role["cause"])]
    if by_role["interrupt"] and not (disappeared and _are_consequences(run)):
        return [_interrupted(run, failed, by_role["interrupt"])]
    if disappeared and by_role["secondary"]:
        return [_after_disappearing(run, failed, disappeared, by_role["secondary"])]
    if by_role["unknown"]:
        return [_primary(failed, by_role["unknown"])]
    left = _left(run, failed[by_role["secondary"][0]])
    if left:
        return [_after_leaving(run, failed, left, by_role["secondary"])]
    return [_without_cause(failed, by_role["secondary"])]


def _disappeared(run: Run, ages: NDArray[np.float64]) -> list[int]:
    """Ranks that were heard of once, are silent now, and never said that they end."""
    with np.errstate(invalid="ignore"):
        silent: list[int] = np.flatnonzero(~run.latest.ended & (ages > SILENT_S)).tolist()
    return silent


def _left(run: Run, secondary: RankFrame) -> list[int]:
    """Ranks that had ended without an exception just where another could not go on."""
    steps, last = run.latest.step, step_of(secondary)
    left: list[int] = np.flatnonzero(
        run.latest.finished & (steps <= last) & (steps >= last - STALL.queued_steps)
    ).tolist()
    return left if 2 * len(left) <= run.rank_count else []  # most have simply come to the end


def _primary(failed: Mapping[int, RankFrame], causes: Sequence[int]) -> Alert:
    others = tuple(dict.fromkeys(_error(failed[rank]) for rank in causes[1:]))
    followers = tuple(sorted(failed.keys() - set(causes)))
    return _alert(failed, causes, FirstFailureMeasures(_end(failed[causes[0]]), others, followers))


def _interrupted(run: Run, failed: Mapping[int, RankFrame], ranks: Sequence[int]) -> Alert:
    everybody = len(failed) == run.info.world_size
    step = max(step_of(failed[rank]) for rank in ranks)
    measures = InterruptedMeasures(
        step=step,
        error=_error(failed[ranks[0]]),
        ranks=tuple(ranks),
        are_all=everybody and len(ranks) == len(failed),
        failed=len(failed),
    )
    return Alert(
        kind="rank_failed",
        severity="info" if everybody else "warning",
        measures=measures,
        ranks=() if everybody else tuple(ranks),
        since_step=step + 1,
    )


def _after_disappearing(
    run: Run, failed: Mapping[int, RankFrame], disappeared: Sequence[int], followers: Sequence[int]
) -> Alert:
    lost = {rank: state.frame for rank in disappeared if (state := run.ranks[rank]) is not None}
    first, error = _end(lost[disappeared[0]]), _error(failed[followers[0]])
    return _alert(lost, disappeared, DisappearedMeasures(first, tuple(followers), error))


def _after_leaving(run: Run, failed: Mapping[int, RankFrame], left: Sequence[int], followers: Sequence[int]) -> Alert:
    gone = {rank: run.states[rank].frame for rank in left}
    first, error = _end(gone[left[0]]), _error(failed[followers[0]])
    return _alert(gone, left, LeftMeasures(first, tuple(followers), error))


def _without_cause(failed: Mapping[int, RankFrame], ranks: Sequence[int]) -> Alert:
    return _alert(failed, (), BrokenConnectionMeasures(_end(failed[ranks[0]]), tuple(ranks)))


def _end(frame: RankFrame) -> RankEnd:
    traceback = () if frame.failure is None else tuple(frame.failure.traceback)
    return RankEnd(step_of(frame), _error(frame), traceback)


def _error(frame: RankFrame) -> RankError | None:
    return None if frame.failure is None else RankError(frame.failure.kind, frame.failure.message)


def _alert(
    frames: Mapping[int, RankFrame],
    ranks: Sequence[int],
    measures: FirstFailureMeasures | DisappearedMeasures | LeftMeasures | BrokenConnectionMeasures,
) -> Alert:
    return Alert(
        kind="rank_failed",
        severity="critical",
        measures=measures,
        ranks=tuple(ranks),
        nodes=tuple(sorted({frames[rank].host for rank in ranks})),
        since_step=measures.first.step + 1,
    )
