"""Uneven inputs: a rank whose data has ended while the others go on, or wait for it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ddpmon.diagnose.finding import Finding
from ddpmon.diagnose.stall_state import Scene
from ddpmon.diagnose.wording import does, format_ranks
from ddpmon.format import age
from ddpmon.run.model import SILENT_S, Run

_ADVICE = (
    "give every rank the same number of batches: DistributedSampler, drop_last=True, or a fixed number of steps; "
    "or let the others continue with torch.distributed.algorithms.join.Join"
)
_BATCH_GAP = 64  # batches of one step at most: beyond it, another loader has ended


def find_uneven(scene: Scene) -> Finding | None:
    """A job that stands still because some rank's data has ended earlier than the others'."""
    gone = [rank for rank, frame in scene.ended.items() if frame.state == "finished" and scene.close(frame.step)]
    dry = gone or _dry(scene)
    others = sorted(set(scene.waiting()) - set(dry))
    if not dry or not others:
        return None
    done = "finished" if gone else "reached the end of its data" if len(dry) == 1 else "reached the end of their data"
    step = (scene.ended[dry[0]] if gone else scene.going[dry[0]]).step
    ending = ": its data ended earlier" if len(dry) == 1 else ": their data ended earlier"
    return Finding(
        kind="uneven_inputs",
        severity="critical",
        summary=f"{format_ranks(dry)} {done} after step {step:,}; {does(others, 'have')} waited for {_it(dry)} at step "
        f"{step + 1:,} for {age(scene.seconds)}{ending if gone else ''}",
        ranks=tuple(dry),
        since_step=step + 1,
        cost_pct=100.0,
        evidence={"seconds": scene.seconds, "waiting": len(others), "last_step": step},
        advice=_ADVICE,
    )


def _dry(scene: Scene) -> list[int]:
    """Ranks whose loader has ended after fewer batches than the loaders of the others, which have not ended."""
    loaders = {rank: frame.loader for rank, frame in scene.going.items() if frame.loader is not None}
    ended = {rank: loader.batches for rank, loader in loaders.items() if loader.ended}
    others = [loader.batches for loader in loaders.values() if not loader.ended]
    if not ended or not others:
        return []
    return [rank for rank, batches in ended.items() if 0 < min(others) - batches <= _BATCH_GAP]


def find_left_behind(run: Run, ages: NDArray[np.float64]) -> list[Finding]:
    """Ranks that have finished while the others go on without them (`Join`, or a rank that left on purpose)."""
    if not run.standing.finished.any():
        return []
    frames = {rank: state.frame for rank, state in enumerate(run.ranks) if state is not None}
    finished = {rank: frame.step for rank, frame in frames.items() if frame.state == "finished"}
    front = [frame.step for rank, frame in frames.items() if frame.state == "running" and ages[rank] <= SILENT_S]
    behind = [rank for rank, step in finished.items() if step + 1 < max(front, default=0)]
    if not behind:
        return []
    last = finished[behind[0]]
    return [
        Finding(
            kind="uneven_inputs",
            severity="info",
            summary=f"{format_ranks(behind)} finished after step {last:,}; the others continue without {_it(behind)}",
            ranks=tuple(behind),
            since_step=last + 1,
            evidence={"last_step": last, "newest_step": max(front)},
            advice="if this is not intended, give every rank the same number of batches: DistributedSampler, "
            "drop_last=True",
        )
    ]


def _it(ranks: list[int]) -> str:
    return "it" if len(ranks) == 1 else "them"
