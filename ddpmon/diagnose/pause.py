"""A stall that is no hang: an evaluation, a checkpoint, a compilation, or steps that a CUDA graph holds."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ddpmon.diagnose.alert import Alert, Measures, Severity
from ddpmon.diagnose.rank_position import RankPosition, position_of
from ddpmon.diagnose.stall_state import StallState
from ddpmon.diagnose.stop_policy import ONGOING_PAUSE, STALL
from ddpmon.diagnose.waiting import in_named_phase, is_device_stuck
from ddpmon.parts import StackFrame
from ddpmon.run.model import SILENT_S, Run
from ddpmon.schema import PHASES, RankFrame

Activity = Literal["named_phase", "compilation", "unnamed"]
# Triton's own package: other packages keep their kernels in folders of that name, too.
_TRITON = r"(?<=-packages/)triton|triton(?=/(?:compiler|backends|runtime)/)"
_COMPILER = re.compile(rf"/(torch/_dynamo|torch/_inductor|{_TRITON})/(.+)")
# What is on the stack whenever compiled code runs, too.
_RUNTIME_FILES = re.compile(r"eval_frame\.py|external_utils\.py|cudagraph_trees\.py|output_code\.py|backends/\w+\.py")
_RUNTIME_FUNCTIONS = frozenset({"run", "forward", "__call__", "__getitem__", "<lambda>", "launch_metadata", "runner"})


class GraphMeasures(Measures, frozen=True):
    """Ranks that replay a CUDA graph of whole steps, in which no step is measured.

    Attributes:
        seconds: how long no step has finished.
        ranks: which ones; `are_all` says whether these are all ranks of the run.
        is_replaying: they go on replaying it.
        replay_s: seconds since the last replay of the rank that has replayed none for the longest.
    """

    seconds: float
    ranks: tuple[int, ...]
    are_all: bool
    is_replaying: bool
    replay_s: float


class OngoingPauseMeasures(Measures, frozen=True):
    """Ranks that are busy, while no step finishes.

    Attributes:
        activity: they are in a phase that the user named, in a compiler, or busy with something that has no name.
        seconds: how long they have been in the named phase, else how long no step has finished.
        ranks: the busy ones.
        waiting: those that wait for others.
        others_finished: all others have finished.
        shown: where the first of `ranks` stands.
        stack_moves: the stack of one of them is seen to move.
        write_bytes_s: bytes a second that the one that writes most writes to disks; None if it is less than 8 MB/s.
    """

    activity: Activity
    seconds: float
    ranks: tuple[int, ...]
    waiting: tuple[int, ...]
    others_finished: bool
    shown: RankPosition
    stack_moves: bool
    write_bytes_s: float | None


class UnsynchronisedMeasures(Measures, frozen=True):
    """Ranks that go from phase to phase without a reduction of gradients.

    Attributes:
        seconds: how long no step has finished.
        waiting: how many ranks are in a collective now.
        ranks: those that are heard; `are_all` says whether none is silent or has ended.
        phases: those that most of them are in now, two at most.
    """

    seconds: float
    waiting: int
    ranks: tuple[int, ...]
    are_all: bool
    phases: tuple[str, ...]


def replay_s(frame: RankFrame) -> float | None:
    """Seconds since the rank last replayed a CUDA graph of whole steps; None if it does not."""
    return frame.stall.graph_replay_s if frame.stall is not None and frame.gpu_uuid is not None else None


def replays(frame: RankFrame) -> bool:
    """Whether the rank goes on replaying such a graph."""
    since = replay_s(frame)
    return since is not None and (frame.state == "running" or since <= STALL.patience_s)


def find_graphed(run: Run, ages: NDArray[np.float64]) -> Alert | None:
    """That no step is measured since all ranks replay a graph: information, or a warning if they replay no more.

    What holds up a graph is unknown: it has neither marks nor collectives that the flight recorder knows.
    """
    if all(stall is None or stall.graph_replay_s is None for stall in run.latest.stall):
        return None
    states = [state for rank, state in enumerate(run.ranks) if state is not None and ages[rank] <= SILENT_S]
    frames = [state.frame for state in states if state.frame.state in ("running", "stalled")]
    if not frames or any(replay_s(frame) is None for frame in frames) or any(map(in_named_phase, frames)):
        return None
    replaying = all(replays(frame) or (frame.stall is not None and frame.stall.moves) for frame in frames)
    measures = GraphMeasures(
        seconds=max(0.0 if frame.stall is None else frame.stall.seconds for frame in frames),
        ranks=tuple(frame.rank for frame in frames),
        are_all=len(frames) >= run.info.world_size,
        is_replaying=replaying,
        replay_s=max(replay_s(frame) or 0.0 for frame in frames),
    )
    return Alert(
        kind="pause" if replaying else "hang",
        severity="info" if replaying else "warning",
        measures=measures,
        since_step=max(frame.step for frame in frames) + 1,
    )


def is_compiling(frame: RankFrame) -> bool:
    """Whether the training thread is in a compiler that makes progress: its stack moves, or the processes compute."""
    stall, process = frame.stall, frame.process
    if stall is None or not stall.stacks or not any(map(_is_compiler, stall.stacks[0].frames)):
        return False
    computes = process is not None and (
        (process.cpu_pct or 0.0) >= ONGOING_PAUSE.compiler_cpu_pct
        or (process.workers_cpu_pct or 0.0) >= ONGOING_PAUSE.compiler_workers_cpu_pct
    )
    return stall.moves or computes


def _is_compiler(frame: StackFrame) -> bool:
    """Whether a line of a stack is one of a compiler at work, and not of what it has compiled."""
    found = None if frame.own else _COMPILER.search(frame.file.replace("\\", "/"))
    if found is None or frame.function.rpartition(".")[2] in _RUNTIME_FUNCTIONS:
        return False
    return found[1] == "triton" or not _RUNTIME_FILES.fullmatch(found[2])


def find_pause(run: Run, state: StallState) -> Alert | None:
    """The pause that explains why no step finishes; it turns into a `hang` when it takes too long.

    It is one if the ranks that do not wait are in a phase that the user named; or if they go from phase to phase (an
    evaluation that nobody named); or if they are between the phases of a step, and nobody waits, or they visibly make
    progress (their stacks move, or they write to a disk: a checkpoint that nobody named); or if they compile; or if
    the others have finished, and these are still busy. On GPUs a rank that makes progress may be in any phase.
    """
    busy = state.busy()
    if not busy or state.silent:
        return None
    frames = [state.going[rank] for rank in busy]
    if all(in_named_phase(frame) and not is_device_stuck(frame) for frame in frames):
        return _describe(run, state, busy, named=True)
    if state.held < 0:
        compiling = [frame.rank for frame in frames if is_compiling(frame)]
        return _describe(run, state, compiling, named=False) if compiling else None
    if _is_over(state):
        return _describe(run, state, busy, named=False, over=True)
    return _unnamed(run, state, busy)


def _unnamed(run: Run, state: StallState, busy: Sequence[int]) -> Alert | None:
    """That some make progress: for the first minute, if others are between the phases and may wait for them by hand."""
    on = [rank for rank in busy if makes_progress(state, rank)]
    rest = [state.going[rank] for rank in busy if rank not in on]
    if not on or any(frame.phase != "other" or is_device_stuck(frame) for frame in rest):
        return None
    found = _describe(run, state, on, named=False)
    return found if len(on) == len(busy) or found.severity == "info" else None


def find_unsynchronised(state: StallState) -> Alert | None:
    """A job in which every rank goes from phase to phase and none synchronises: that is no hang, however long.

    So it is while gradients are accumulated, under `no_sync` for good, and where another model is trained than the one
    that is attached; an evaluation looks like it, too.
    """
    frames = list(state.going.values())
    if _is_over(state) or not frames:
        return None
    if any(in_named_phase(frame) or not _changes_phases(state, frame) for frame in frames):
        return None
    measures = UnsynchronisedMeasures(
        seconds=state.seconds,
        waiting=len(state.waiting()),
        ranks=tuple(sorted(state.going)),
        are_all=not state.silent and not state.ended,
        phases=tuple(phase for phase, _ in Counter(frame.phase for frame in frames).most_common(2)),
    )
    return Alert(kind="pause", severity="info", measures=measures, since_step=state.held + 1)


def _is_over(state: StallState) -> bool:
    """Whether the others have finished, just where these are."""
    return any(frame.state == "finished" and state.close(frame.step) for frame in state.ended.values())


def _changes_phases(state: StallState, frame: RankFrame) -> bool:
    """Whether the rank has entered its phase lately; before the first step phases may well take longer."""
    return frame.phase_s < (state.patience_s if state.held < 0 else min(state.patience_s, state.seconds) / 2)


def makes_progress(state: StallState, rank: int) -> bool:
    """Whether the rank changes phases, compiles, is seen at work outside the phases, or is not waited for.

    On a GPU a host only launches in the phases of a step: one that is seen at work there for seconds is busy, too.
    """
    frame = state.going[rank]
    if is_device_stuck(frame):
        return False
    between = frame.phase == "other" and (not state.waits.anybody or is_progressing(frame))
    launches = frame.gpu_uuid is not None and is_progressing(frame)
    return in_named_phase(frame) or _changes_phases(state, frame) or between or launches or is_compiling(frame)


def is_progressing(frame: RankFrame) -> bool:
    """Whether the rank is seen at work: its stack moves, it writes to disks, or it replays a CUDA graph."""
    return frame.stall is not None and (
        frame.stall.moves or _written(frame) >= ONGOING_PAUSE.writes_bytes_s or replays(frame)
    )


def _written(frame: RankFrame) -> float:
    """Bytes a second that the rank's process writes to disks, 0 where unknown."""
    return frame.stall.write_bytes_s if frame.stall is not None else 0.0


def _describe(run: Run, state: StallState, busy: Sequence[int], *, named: bool, over: bool = False) -> Alert:
    compiling = [] if named else [rank for rank in busy if is_compiling(state.going[rank])]
    busy = compiling or busy
    frames = [state.going[rank] for rank in busy]
    seconds = max(frame.phase_s for frame in frames) if named else state.seconds
    severity: Severity = "info" if over else _severity(run, frames[0].phase if named else "", seconds)
    if compiling:
        severity = "info" if seconds <= ONGOING_PAUSE.compilation_most_s else "critical"
    activity: Activity = "named_phase" if named else "compilation" if compiling else "unnamed"
    measures = _measured(activity, seconds, frames, waiting=state.waiting(), over=over)
    waiting, phase = bool(measures.waiting), frames[0].phase
    return Alert(
        kind="pause" if severity == "info" else "hang",
        severity=severity,
        measures=measures,
        ranks=measures.ranks if waiting or over else (),
        nodes=tuple(sorted({frame.host for frame in frames})) if waiting or over else (),
        phase=None if not waiting else phase if compiling and phase in PHASES else "other",
        since_step=state.held + 1,
    )


def _measured(
    activity: Activity, seconds: float, frames: Sequence[RankFrame], *, waiting: Sequence[int], over: bool
) -> OngoingPauseMeasures:
    written = max(map(_written, frames))
    return OngoingPauseMeasures(
        activity=activity,
        seconds=seconds,
        ranks=tuple(frame.rank for frame in frames),
        waiting=tuple(waiting),
        others_finished=over,
        shown=position_of(frames[0]),
        stack_moves=any(frame.stall is not None and frame.stall.moves for frame in frames),
        write_bytes_s=written if written >= ONGOING_PAUSE.writes_bytes_s else None,
    )


def _severity(run: Run, name: str, seconds: float) -> Severity:
    """Information, until it takes longer than a minute and five times as long as it ever did."""
    if seconds <= max(ONGOING_PAUSE.usual_s, ONGOING_PAUSE.usual_ratio * run.marks.longest_s(name)):
        return "info"
    return "critical" if seconds > ONGOING_PAUSE.critical_s else "warning"
