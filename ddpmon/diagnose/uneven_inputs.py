"""Uneven inputs: a rank whose data has ended while the others go on, or wait for it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ddpmon.diagnose.alert import Alert, Measures
from ddpmon.diagnose.stall_state import StallState
from ddpmon.diagnose.stop_policy import UNEVEN_INPUTS
from ddpmon.run.model import SILENT_S, Run


class UnevenInputsMeasures(Measures, frozen=True):
    """A job that stands still because the data of the named ranks has ended.

    Attributes:
        seconds: how long no step has finished.
        waiting: the ranks that wait for them.
        last_step: the last one that they have finished.
        has_finished: they have left the training; else only their data has ended.
    """

    seconds: float
    waiting: tuple[int, ...]
    last_step: int
    has_finished: bool


class LeftBehindMeasures(Measures, frozen=True):
    """A job that goes on without the named ranks, which have finished.

    Attributes:
        last_step: the last one that the first of them has finished.
        newest_step: the last one that any other rank has finished.
    """

    last_step: int
    newest_step: int


def find_uneven(state: StallState) -> Alert | None:
    """A job that stands still because some rank's data has ended earlier than the others'."""
    gone = [rank for rank, frame in state.ended.items() if frame.state == "finished" and state.close(frame.step)]
    dry = gone or _dry(state)
    others = sorted(set(state.waiting()) - set(dry))
    if not dry or not others:
        return None
    step = (state.ended[dry[0]] if gone else state.going[dry[0]]).step
    return Alert(
        kind="uneven_inputs",
        severity="critical",
        measures=UnevenInputsMeasures(state.seconds, tuple(others), step, has_finished=bool(gone)),
        ranks=tuple(dry),
        since_step=step + 1,
        cost_pct=100.0,
    )


def _dry(state: StallState) -> list[int]:
    """Ranks whose loader has ended after fewer batches than the loaders of the others, which have not ended."""
    loaders = {rank: frame.loader for rank, frame in state.going.items() if frame.loader is not None}
    ended = {rank: loader.batches for rank, loader in loaders.items() if loader.ended}
    others = [loader.batches for loader in loaders.values() if not loader.ended]
    if not ended or not others:
        return []
    return [rank for rank, batches in ended.items() if 0 < min(others) - batches <= UNEVEN_INPUTS.gap_batches]


def find_left_behind(run: Run, ages: NDArray[np.float64]) -> list[Alert]:
    """Ranks that have finished while the others go on without them (`Join`, or a rank that left on purpose)."""
    if not run.latest.finished.any():
        return []
    frames = {rank: state.frame for rank, state in enumerate(run.ranks) if state is not None}
    finished = {rank: frame.step for rank, frame in frames.items() if frame.state == "finished"}
    front = [frame.step for rank, frame in frames.items() if frame.state == "running" and ages[rank] <= SILENT_S]
    behind = [rank for rank, step in finished.items() if step + 1 < max(front, default=0)]
    if not behind:
        return []
    last = finished[behind[0]]
    measures = LeftBehindMeasures(last, max(front))
    found = Alert("uneven_inputs", "info", measures=measures, ranks=tuple(behind), since_step=last + 1)
    return [found]
