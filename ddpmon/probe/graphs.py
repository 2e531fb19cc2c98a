"""CUDA graphs: a replay runs no hook, so that a job whose whole steps are in a graph is not measured, but not stuck."""

from __future__ import annotations

import functools
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import torch

from ddpmon.probe.clock import CpuClock
from ddpmon.probe.event_log import EventLog
from ddpmon.probe.step_assembler import StepAssembler

_ALONE_S = 10.0  # replays that go on for so long without a mark are not parts of a step, whose marks lie around them


def hook_graphs(recorder: EventLog) -> list[Callable[[], None]]:
    """Note when `torch.cuda.CUDAGraph.replay` is called last; returns what undoes it. Nothing on a host's clock."""
    if recorder.clock.name == CpuClock.name:
        return []
    kind: Any = torch.cuda.CUDAGraph
    original = kind.replay

    @functools.wraps(original)
    def replay(graph: Any) -> Any:
        recorder.replayed_ns = perf_counter_ns()
        return original(graph)

    def undo() -> None:
        if kind.replay is replay:
            kind.replay = original

    kind.replay = replay
    return [undo]


class GraphWatch:
    """Tells whether the steps of this rank are in a CUDA graph."""

    def __init__(self, recorder: EventLog, replay: StepAssembler) -> None:
        self._recorder = recorder
        self._replay = replay
        self._marked_ns = self._first_ns = 0  # the last mark, and the first replay seen after it

    def inspect(self) -> None:
        """Note the first replay after the last mark; call it once a turn."""
        at, marked_ns = self._recorder.replayed_ns, self._replay.marked_ns
        if marked_ns != self._marked_ns:
            self._marked_ns, self._first_ns = marked_ns, 0
        if at > marked_ns and not self._first_ns:
            self._first_ns = at

    @property
    def replay_s(self) -> float | None:
        """Seconds since the last replay of a graph that holds whole steps; None if none does.

        One does if a sync point was captured and none has been seen outside since, or if replays go on without marks:
        a graph that was captured before `attach`. A single replay behind a long silence proves nothing: a compilation
        may have come before it in the same phase.
        """
        at, captured = self._recorder.replayed_ns, self._replay.captured_ns
        alone = 0 < self._first_ns < at - _ALONE_S * 1e9
        if not at or not (alone or (captured is not None and at > captured)):
            return None
        return (perf_counter_ns() - at) / 1e9
