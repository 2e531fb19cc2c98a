"""Whole-step CUDA graphs: a replay runs no hook, so that steps are not measured although the job may well train."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ddpmon.diagnose.finding import Finding, Severity
from ddpmon.diagnose.scene import PATIENCE_S
from ddpmon.diagnose.waiting import in_named_phase
from ddpmon.diagnose.wording import who
from ddpmon.format import age
from ddpmon.run.model import SILENT_S, Run
from ddpmon.schema import RankFrame


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
    ranks = who([frame.rank for frame in frames]) if len(frames) < run.info.world_size else f"all {len(frames):,} ranks"
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
