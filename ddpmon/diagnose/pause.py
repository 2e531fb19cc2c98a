"""A stall that is no hang: an evaluation, a checkpoint, a compilation, or steps that a CUDA graph holds."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ddpmon.diagnose.finding import Finding, Severity
from ddpmon.diagnose.stall_state import PATIENCE_S, Scene
from ddpmon.diagnose.waiting import in_named_phase, is_device_stuck
from ddpmon.diagnose.wording import clean, does, format_ranks, place, stack_command, stack_text
from ddpmon.format import age
from ddpmon.parts import StackFrame
from ddpmon.run.model import SILENT_S, Run
from ddpmon.schema import PHASES, RankFrame

LONG_S = 1800.0  # max-autotune of a large model takes 10 to 20 min; nothing is known to compile for longer
_CPU_PCT = 50.0  # of a core: LLVM and ptxas compute in one call for up to a minute, in which no stack moves
_WORKERS_PCT = 20.0  # of a core, in the compiler's own processes, which the training thread waits for
# Triton's own package: other packages keep their kernels in folders of that name, too.
_TRITON = r"(?<=-packages/)triton|triton(?=/(?:compiler|backends|runtime)/)"
_COMPILER = re.compile(rf"/(torch/_dynamo|torch/_inductor|{_TRITON})/(.+)")
# What is on the stack whenever compiled code runs, too.
_RUNTIME_FILES = re.compile(r"eval_frame\.py|external_utils\.py|cudagraph_trees\.py|output_code\.py|backends/\w+\.py")
_RUNTIME_FUNCTIONS = frozenset({"run", "forward", "__call__", "__getitem__", "<lambda>", "launch_metadata", "runner"})
_LONG_S, _LONG_TIMES = 60.0, 5.0
_VERY_LONG_S = 600.0
_WRITES = 8e6  # bytes a second: a checkpoint, and no log


def replay_s(frame: RankFrame) -> float | None:
    """Seconds since the rank last replayed a CUDA graph of whole steps; None if it does not."""
    return frame.stall.graph_replay_s if frame.stall is not None and frame.gpu_uuid is not None else None


def replays(frame: RankFrame) -> bool:
    """Whether the rank goes on replaying such a graph."""
    since = replay_s(frame)
    return since is not None and (frame.state == "running" or since <= PATIENCE_S)


def find_graphed(run: Run, ages: NDArray[np.float64]) -> Finding | None:
    """That no step is measured since all ranks replay a graph: information, or a warning if they replay no more.

    What holds up a graph is unknown: it has neither marks nor collectives that the flight recorder knows.
    """
    if all(stall is None or stall.graph_replay_s is None for stall in run.standing.stall):
        return None
    states = [state for rank, state in enumerate(run.ranks) if state is not None and ages[rank] <= SILENT_S]
    frames = [state.frame for state in states if state.frame.state in ("running", "stalled")]
    if not frames or any(replay_s(frame) is None for frame in frames) or any(map(in_named_phase, frames)):
        return None
    seconds = max(0.0 if frame.stall is None else frame.stall.seconds for frame in frames)
    moving = all(replays(frame) or (frame.stall is not None and frame.stall.moves) for frame in frames)
    longest = max(replay_s(frame) or 0.0 for frame in frames)
    ranks = (
        format_ranks([frame.rank for frame in frames])
        if len(frames) < run.info.world_size
        else f"all {len(frames):,} ranks"
    )
    replay = f"{ranks} replay a CUDA graph" if moving else f"{ranks} have replayed no CUDA graph for {age(longest)}"
    return _finding(frames, f"not measured: a CUDA graph: {replay}, in which no step is seen", seconds, moving=moving)


def _finding(frames: list[RankFrame], summary: str, seconds: float, *, moving: bool) -> Finding:
    severity: Severity = "info" if moving else "warning"
    return Finding(
        kind="pause" if moving else "hang",
        severity=severity,
        summary=summary,
        since_step=max(frame.step for frame in frames) + 1,
        evidence={"seconds": seconds, "name": "CUDA graph"},
        advice="ranks are compared in steps outside CUDA graphs: run some steps without the graph to measure them"
        if moving
        else "look at the stacks of the ranks and at the GPUs (nvidia-smi): where a graph stands is not known",
    )


def is_compiling(frame: RankFrame) -> bool:
    """Whether the training thread is in a compiler that makes progress: its stack moves, or the processes compute."""
    stall, process = frame.stall, frame.process
    if stall is None or not stall.stacks or not any(map(_is_compiler, stall.stacks[0].frames)):
        return False
    computes = process is not None and (
        (process.cpu_pct or 0.0) >= _CPU_PCT or (process.workers_cpu_pct or 0.0) >= _WORKERS_PCT
    )
    return stall.moves or computes


def _is_compiler(frame: StackFrame) -> bool:
    """Whether a line of a stack is one of a compiler at work, and not of what it has compiled."""
    found = None if frame.own else _COMPILER.search(frame.file.replace("\\", "/"))
    if found is None or frame.function.rpartition(".")[2] in _RUNTIME_FUNCTIONS:
        return False
    return found[1] == "triton" or not _RUNTIME_FILES.fullmatch(found[2])


def find_pause(run: Run, scene: Scene) -> Finding | None:
    """The pause that explains why no step finishes; it turns into a `hang` when it takes too long.

    It is one if the ranks that do not wait are in a phase that the user named; or if they are visibly at something
    (they go from phase to phase: an evaluation that nobody named); or if they are between the phases of a step, and
    nobody waits, or they visibly get on (their stacks move, or they write to a disk: a checkpoint that nobody named);
    or if they compile; or if the others have finished, and these are still at something. On GPUs a rank that makes
    progress may be in any phase.
    """
    busy = scene.busy()
    if not busy or scene.silent:
        return None
    frames = [scene.going[rank] for rank in busy]
    if all(in_named_phase(frame) and not is_device_stuck(frame) for frame in frames):
        return _describe(run, scene, busy, named=True)
    if scene.held < 0:
        compiling = [frame.rank for frame in frames if is_compiling(frame)]
        return _describe(run, scene, compiling, named=False) if compiling else None
    if _is_over(scene):
        return _describe(run, scene, busy, named=False, over=True)
    return _unnamed(run, scene, busy)


def _unnamed(run: Run, scene: Scene, busy: Sequence[int]) -> Finding | None:
    """That some get on: for the first minute, if others are between the phases and may wait for them by hand."""
    on = [rank for rank in busy if is_at_something(scene, rank)]
    rest = [scene.going[rank] for rank in busy if rank not in on]
    if not on or any(frame.phase != "other" or is_device_stuck(frame) for frame in rest):
        return None
    found = _describe(run, scene, on, named=False)
    return found if len(on) == len(busy) or found.severity == "info" else None


def find_apart(scene: Scene) -> Finding | None:
    """A job in which every rank goes from phase to phase and none synchronises: that is no hang, however long.

    So it is while gradients are accumulated, under `no_sync` for good, and where another model is trained than the one
    that is attached; an evaluation looks like it, too.
    """
    frames = list(scene.going.values())
    if _is_over(scene) or not frames or any(in_named_phase(frame) or not _moves(scene, frame) for frame in frames):
        return None
    ranks, phases = sorted(scene.going), Counter(frame.phase for frame in frames)
    now = " and ".join(phase for phase, _ in phases.most_common(2))
    go = does(ranks, "go") if len(ranks) < 2 or scene.silent or scene.ended else f"all {len(ranks):,} ranks go"
    return Finding(
        kind="pause",
        severity="info",
        summary=f"no gradient reduction for {age(scene.seconds)}, although {go} from phase to phase (now {now}): "
        f"gradient accumulation, no_sync, an evaluation, or a model other than the attached one",
        since_step=scene.held + 1,
        evidence={"seconds": scene.seconds, "waiting": len(scene.waiting()), "name": now},
        advice="nothing to do if this is intended: ranks are compared in steps that reduce gradients; "
        "wrap an evaluation in `with monitor.phase(name)`",
    )


def _is_over(scene: Scene) -> bool:
    """Whether the others have finished, just where these are."""
    return any(frame.state == "finished" and scene.close(frame.step) for frame in scene.ended.values())


def _moves(scene: Scene, frame: RankFrame) -> bool:
    """Whether the rank has entered its phase lately; before the first step phases may well take longer."""
    return frame.phase_s < (scene.patience_s if scene.held < 0 else min(scene.patience_s, scene.seconds) / 2)


def is_at_something(scene: Scene, rank: int) -> bool:
    """Whether the rank changes phases, compiles, makes progress outside the phases, or is not waited for.

    On a GPU a host only launches in the phases of a step: one that makes progress there for seconds is busy, too.
    """
    frame = scene.going[rank]
    if is_device_stuck(frame):
        return False
    between = frame.phase == "other" and (not scene.waits.anybody or is_progressing(frame))
    launches = frame.gpu_uuid is not None and is_progressing(frame)
    return in_named_phase(frame) or _moves(scene, frame) or between or launches or is_compiling(frame)


def is_progressing(frame: RankFrame) -> bool:
    """Whether the rank is seen at work: its stack moves, it writes to disks, or it replays a CUDA graph."""
    return frame.stall is not None and (frame.stall.moves or _written(frame) >= _WRITES or replays(frame))


def _written(frame: RankFrame) -> float:
    """Bytes a second that the rank's process writes to disks, 0 where unknown."""
    return frame.stall.write_bytes_s if frame.stall is not None else 0.0


def _describe(run: Run, scene: Scene, busy: Sequence[int], *, named: bool, over: bool = False) -> Finding:
    compiling = [] if named else [rank for rank in busy if is_compiling(scene.going[rank])]
    busy = compiling or busy
    frames = [scene.going[rank] for rank in busy]
    phase = clean(frames[0].phase, 40)
    seconds = max(frame.phase_s for frame in frames) if named else scene.seconds
    severity: Severity = "info" if over else _severity(run, frames[0].phase if named else "", seconds)
    if compiling:
        severity = "info" if seconds <= LONG_S else "critical"
    waiting = scene.waiting()
    doing = f"in {phase}" if named else f"busy without finishing a step (now {phase}{_writing(frames)})"
    doing = "compiling" if compiling else doing
    alone = "the others have finished" if over else "no rank waits for another"
    rest = does(waiting, "wait") if waiting else alone
    where = place(frames[0].stall)
    evidence: dict[str, float | int | str] = {"seconds": seconds, "waiting": len(waiting), "name": phase}
    return Finding(
        kind="pause" if severity == "info" else "hang",
        severity=severity,
        summary=f"{does(busy, 'have')} been {doing} for {age(seconds)}{f', at {where}' if where else ''}; {rest}",
        ranks=tuple(busy) if waiting or over else (),
        nodes=tuple(sorted({frame.host for frame in frames})) if waiting or over else (),
        phase=None if not waiting else phase if compiling and phase in PHASES else "other",
        since_step=scene.held + 1,
        evidence=evidence | ({"compiling": "yes"} if compiling else {}) | _signs(frames),
        advice=_on_compilation(frames[0], late=severity != "info")
        if compiling
        else _advice(frames[0] if waiting else None, busy, named=named, late=severity != "info"),
    )


def _signs(frames: Sequence[RankFrame]) -> dict[str, float | int | str]:
    """By what the ranks are seen to get on, and the first one's stack."""
    signs: dict[str, float | int | str] = {}
    if any(frame.stall is not None and frame.stall.moves for frame in frames):
        signs["stack_moves"] = "yes"
    if (written := max(map(_written, frames))) >= _WRITES:
        signs["writes_gb_s"] = written / 1e9
    stack = stack_text(frames[0].stall)
    return signs | ({"stack": stack} if stack else {})


def _writing(frames: Sequence[RankFrame]) -> str:
    written = max(map(_written, frames))
    return f", writing {written / 1e6:,.0f} MB/s" if written >= _WRITES else ""


def _advice(blamed: RankFrame | None, busy: Sequence[int], *, named: bool, late: bool) -> str:
    if named:
        return f"it takes far longer than before: check the storage that {format_ranks(busy)} uses" if late else ""
    wrap = "wrap evaluations and checkpoints in `with monitor.phase(name)`, so that their time has a name"
    if blamed is None or not late:
        return wrap
    return f"see where it is: {stack_command(blamed.host, blamed.pid)}; {wrap}"


def _on_compilation(frame: RankFrame, *, late: bool) -> str:
    if late:
        return f"see where it is: {stack_command(frame.host, frame.pid)}"
    return "if it compiles again and again, find out why: TORCH_LOGS=recompiles; a shared TORCHINDUCTOR_CACHE_DIR helps"


def _severity(run: Run, name: str, seconds: float) -> Severity:
    """Information, until it takes longer than a minute and five times as long as it ever did."""
    if seconds <= max(_LONG_S, _LONG_TIMES * run.marks.longest_s(name)):
        return "info"
    return "critical" if seconds > _VERY_LONG_S else "warning"
