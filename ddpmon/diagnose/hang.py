"""Hangs: a job that has stopped, the rank that the others wait for, where it is, and whether anything moves at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from ddpmon.diagnose.alert import Alert, Measures
from ddpmon.diagnose.pause import find_graphed, find_pause, find_unsynchronised, is_progressing, makes_progress
from ddpmon.diagnose.rank_position import RankPosition, first_line, position_of
from ddpmon.diagnose.stall_state import (
    Collective,
    CollectiveMismatch,
    CollectivePhase,
    StallState,
    find_mismatch,
    stall_state,
)
from ddpmon.diagnose.stop_policy import HANG, ONGOING_PAUSE, STALL
from ddpmon.diagnose.tick import Tick
from ddpmon.diagnose.uneven_inputs import find_left_behind, find_uneven
from ddpmon.diagnose.waiting import WAITING, device_phase, is_device_stuck
from ddpmon.parts import StackFrame
from ddpmon.run.model import LOST_S, Run
from ddpmon.schema import PHASES, RankFrame

_COLLECTIVES: tuple[CollectivePhase, ...] = ("exposed", "barrier")
_SHOWN = 4  # phases that a sentence counts ranks in, at most


class Waiters(Struct, frozen=True):
    """The ranks that wait for others, and the collective that most of them are in."""

    ranks: tuple[int, ...]
    collective: Collective


class Hang(Struct, frozen=True):
    """What is known of every hang.

    Attributes:
        seconds: how long no step has finished.
        waiters: who waits, None if nobody does.
        shown: where the first of the named ranks stands, or the first that is heard if nobody is named.
        is_first_step: no rank has finished a step yet, and the first may take as long as this, if it is compiled.
        backend: of the process group, as the run names it.
    """

    seconds: float
    waiters: Waiters | None
    shown: RankPosition
    is_first_step: bool
    backend: str


class SilentMeasures(Measures, frozen=True):
    """A hang whose named ranks have fallen silent."""

    hang: Hang


class MismatchMeasures(Measures, frozen=True):
    """A hang in which ranks never came to a collective, or are in different ones.

    Attributes:
        hang: what is known of every hang.
        mismatch: which ranks, and in which collectives.
        line: where the first of its `ranks` stands whose stack is known.
        others_line: the same of its `others`.
    """

    hang: Hang
    mismatch: CollectiveMismatch
    line: StackFrame | None
    others_line: StackFrame | None


class StuckMeasures(Measures, frozen=True):
    """A hang whose named ranks, or their GPUs, are stuck.

    Attributes:
        hang: what is known of every hang.
        line: where the first of them stands whose stack is known.
        is_alone: the job has a single rank, and it waits for its own GPU: the waiters of `hang` are no others.
    """

    hang: Hang
    line: StackFrame | None
    is_alone: bool = False


class UnattributedMeasures(Measures, frozen=True):
    """A hang in which nothing tells one rank from the others: all wait, or all are at work.

    Attributes:
        hang: what is known of every hang.
        ranks: those that are heard and have not ended.
        absent: how many ranks have not reported.
        phases: phase -> how many of `ranks` are in it, the four that most are in.
        device_phases: the same of their GPUs; empty if a GPU is seen to wait, or none is stuck.
        line: where the first of `ranks` stands whose stack is known.
    """

    hang: Hang
    ranks: tuple[int, ...]
    absent: int
    phases: tuple[tuple[str, int], ...]
    device_phases: tuple[tuple[str, int], ...]
    line: StackFrame | None


HangMeasures = SilentMeasures | MismatchMeasures | StuckMeasures | UnattributedMeasures


def find_hang(tick: Tick, _said: Sequence[Alert]) -> list[Alert]:
    """What holds a job up that makes no progress: a `hang`, a `pause` under way, or `uneven_inputs`.

    A lost or a failed rank that the others wait for is spoken of elsewhere: then there is nothing to say here. A job
    that goes on without a rank that has finished is `uneven_inputs` as information. Where the ranks that are heard
    prove which of them is wrong, silent and lost ones explain nothing.
    """
    run, ages = tick.run, tick.ages
    graphed = find_graphed(run, ages)
    if graphed is not None:
        return [graphed]
    state = stall_state(run, ages)
    if state is None:
        return find_left_behind(run, ages)
    if any(frame.state == "failed" and state.close(frame.step) for frame in state.ended.values()):
        return []
    return _despite_silence(run, state) or ([] if _is_lost(state, ages) else _verdict(run, state))


def _despite_silence(run: Run, state: StallState) -> list[Alert]:
    """The verdict without the silent ranks, if the others prove that a rank that it names is wrong."""
    culprits = _proven(state) if state.silent else set()
    if not culprits:
        return []
    found = _verdict(run, replace(state, silent={}))
    return [alert for alert in found if culprits.intersection(alert.ranks)]


def _verdict(run: Run, state: StallState) -> list[Alert]:
    """What is said of a job that has stopped, unless a lost or a failed rank explains it."""
    found = find_unsynchronised(state) or find_uneven(state) or find_pause(run, state)
    if found is not None:
        return [found]
    hang = _hang(run, state)
    return [] if _is_too_soon(state, hang.ranks) else [hang]


def _proven(state: StallState) -> set[int]:
    """The ranks that the others show to be wrong, whatever the silent ones do."""
    mismatch = find_mismatch(state.going)
    by_recorder = mismatch.ranks if mismatch is not None and mismatch.proven else ()
    return {*by_recorder, *(state.busy() if state.waits.proven else ())}


def _is_too_soon(state: StallState, ranks: Sequence[int]) -> bool:
    """Whether the job may be about to go on, or ranks have yet to tell where they stand, as they do within a moment.

    A rank that entered its phase less than 6 s ago, such as one back from an evaluation, is not stuck. A rank is named
    only once it has reported its stall, because between the phases it may save or evaluate. Where nobody is named, the
    culprit may be a rank that has not reported its own.
    """
    blamed = [state.going[rank] for rank in ranks or state.waiting() if rank in state.going]
    if state.seconds < HANG.goes_on_s and any(frame.phase_s < STALL.just_came_s for frame in blamed):
        return True
    told = all(frame.stall is not None for frame in (blamed if ranks else state.going.values()))
    return state.seconds < state.patience_s + HANG.soon_s and not told


def _is_lost(state: StallState, ages: NDArray[np.float64]) -> bool:
    """Whether a rank that the others may wait for is lost."""
    return any(ages[rank] > LOST_S for rank in state.missing())


def _hang(run: Run, state: StallState) -> Alert:
    """Who it is, by the best evidence there is: silence, the flight recorders, the phases."""
    silent = state.missing()
    if silent:
        return _alert(state, silent, SilentMeasures(_known(run, state, silent)))
    mismatch, proven = find_mismatch(state.going), state.waits.proven
    if mismatch is not None and mismatch.certain and (mismatch.absent or not proven):
        return _mismatched(run, state, mismatch)
    waiting, busy = state.waiting(), state.busy()
    if busy and (waiting or proven):
        return _stuck(run, state, [rank for rank in busy if not makes_progress(state, rank)] or busy)
    if run.info.world_size == 1 and 0 in state.going and is_device_stuck(state.going[0]):
        return _stuck(run, state, (0,), is_alone=True)
    mismatch = mismatch or mismatched_phases(state)
    return _unattributed(run, state) if mismatch is None else _mismatched(run, state, mismatch)


def mismatched_phases(state: StallState) -> CollectiveMismatch | None:
    """All wait, some for the gradient reduction, some in another collective: who is in which, without recorders."""
    going = state.going.items()
    sides = {phase: tuple(rank for rank, frame in going if frame.phase == phase) for phase in _COLLECTIVES}
    few, many = sorted(sides, key=lambda phase: len(sides[phase]))
    if not sides[few]:
        return None
    certain = len(sides[few]) < len(sides[many])
    theirs, collective = Collective(phase=few), Collective(phase=many)
    return CollectiveMismatch(sides[few], sides[many], False, certain, False, collective, theirs)


def _mismatched(run: Run, state: StallState, mismatch: CollectiveMismatch) -> Alert:
    ranks = mismatch.ranks if mismatch.certain else ()
    line, others = (first_line(state.going[rank] for rank in side) for side in (mismatch.ranks, mismatch.others))
    return _alert(state, ranks, MismatchMeasures(_known(run, state, ranks), mismatch, line, others))


def _stuck(run: Run, state: StallState, ranks: Sequence[int], *, is_alone: bool = False) -> Alert:
    line = first_line(state.going[rank] for rank in ranks)
    return _alert(state, ranks, StuckMeasures(_known(run, state, ranks), line, is_alone))


def _unattributed(run: Run, state: StallState) -> Alert:
    """Everybody waits, or everybody is at work."""
    ranks = (0,) if run.info.world_size == 1 else ()
    measures = UnattributedMeasures(
        hang=_known(run, state, ranks),
        ranks=tuple(state.going),
        absent=run.info.world_size - len(state.going) - len(state.ended),
        phases=tuple(Counter(frame.phase for frame in state.going.values()).most_common(_SHOWN)),
        device_phases=_device_phases(state),
        line=first_line(state.going.values()),
    )
    return _alert(state, ranks, measures)


def _device_phases(state: StallState) -> tuple[tuple[str, int], ...]:
    """What the GPUs are in, if one of them is stuck, and none of them is seen to wait."""
    phases = Counter(filter(None, map(device_phase, state.going.values())))
    if not phases or WAITING.intersection(phases) or not any(map(is_device_stuck, state.going.values())):
        return ()
    return tuple(phases.most_common(_SHOWN))


def _known(run: Run, state: StallState, ranks: Sequence[int]) -> Hang:
    """What is known of a hang in which `ranks` are named."""
    frames = _frames(state, ranks)
    shown = frames[0] if frames else next(iter(state.going.values()))
    is_first_step = state.held < 0 and state.seconds < _first_step_s(run, state)
    return Hang(state.seconds, _waiters(state), position_of(shown), is_first_step, run.info.backend)


def _waiters(state: StallState) -> Waiters | None:
    waiting = state.waiting()
    if not waiting:
        return None
    phases = Counter(device_phase(state.going[rank]) or state.going[rank].phase for rank in waiting)
    phase: CollectivePhase = "exposed" if phases.most_common(1)[0][0] == "exposed" else "barrier"
    return Waiters(tuple(waiting), Collective(_operation_of_most(state), phase))


def _operation_of_most(state: StallState) -> str:
    """The collective that most of the waiting ranks entered last, "" if unknown."""
    stalls = [stall for rank in state.waiting() if (stall := state.going[rank].stall) is not None and stall.flights]
    names = Counter(stall.flights[0].operation for stall in stalls)
    return names.most_common(1)[0][0] if names else ""


def _alert(state: StallState, ranks: Sequence[int], measures: HangMeasures) -> Alert:
    frames = _frames(state, ranks)
    at = (device_phase(frames[0]) if is_device_stuck(frames[0]) else frames[0].phase) if frames else ""
    return Alert(
        kind="hang",
        severity="info" if measures.hang.is_first_step else "critical",
        measures=measures,
        ranks=tuple(ranks),
        nodes=tuple(sorted({frame.host for frame in frames})),
        phase=at if at in PHASES else None,
        since_step=state.held + 1,
        cost_pct=100.0,
    )


def _frames(state: StallState, ranks: Sequence[int]) -> list[RankFrame]:
    return [state.going.get(rank) or state.silent[rank] for rank in ranks]


def _first_step_s(run: Run, state: StallState) -> float:
    """How long the first step may take: with GPUs longer on many hosts, and as long as some rank is seen at work."""
    frames = list(state.going.values())
    if all(frame.gpu_uuid is None for frame in frames):
        return HANG.first_step_s
    if any(map(is_progressing, frames)):
        return ONGOING_PAUSE.compilation_most_s
    return min(
        ONGOING_PAUSE.compilation_most_s, HANG.first_step_s + HANG.first_step_host_s * (len(run.info.node_keys) - 1)
    )
