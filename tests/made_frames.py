"""Frames as ranks would publish them, made from arrays: the watcher's half is tested through frames alone."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ddpmon.diagnose.alert import Alert
from ddpmon.diagnose.judge import Judge
from ddpmon.diagnose.step_matrix import StepMatrix
from ddpmon.diagnose.tick import Tick
from ddpmon.machine import GpuFigures, HostFigures, ProcessFigures
from ddpmon.report.sentences import in_words
from ddpmon.run.model import Run
from ddpmon.schema import Mark, NodeFrame, RankFrame, RunInfo, StepColumns
from ddpmon.snapshot import Finding

Floats = NDArray[np.float64]
RUN_ID = "made-run"
Said = TypeVar("Said", Alert, Finding)


def run_info(world_size: int, **changes: Any) -> RunInfo:
    """A run of `world_size` ranks on one host."""
    values: dict[str, Any] = {
        "run_id": RUN_ID,
        "name": "made",
        "world_size": world_size,
        "node_keys": [0],
        "backend": "gloo",
        "device": "cpu",
        "parameters": 1000,
        "gradient_bytes": 4000,
        "bucket_detail": False,
        "started_at": 0.0,
        "host": "node0",
        "pid": 1,
        "versions": {},
    }
    return RunInfo(**(values | changes))


def columns(steps: Sequence[int], values: Mapping[str, Sequence[float]], stride: int = 1) -> StepColumns:
    """Step records as they cross the store."""
    assert sys.byteorder == "little"
    return StepColumns(
        step=array("q", list(steps)).tobytes(),
        values={name: array("f", list(column)).tobytes() for name, column in values.items()},
        stride=stride,
    )


def rank_frame(rank: int, seq: int, steps: StepColumns, **changes: Any) -> RankFrame:
    """One rank's frame."""
    last = int(np.frombuffer(steps.step, "<i8")[-1]) if len(steps) else -1
    values: dict[str, Any] = {
        "run_id": RUN_ID,
        "rank": rank,
        "seq": seq,
        "sent_at": float(seq),
        "host": "node0",
        "node": 0,
        "pid": 100 + rank,
        "local_rank": rank,
        "gpu_uuid": None,
        "state": "running",
        "phase": "exposed",
        "step": last,
        "phase_s": 0.1,
        "steps": steps,
    }
    return RankFrame(**(values | changes))


def node_frame(node: int, seq: int, **changes: Any) -> NodeFrame:
    """One host's frame."""
    values: dict[str, Any] = {
        "run_id": RUN_ID,
        "node": node,
        "seq": seq,
        "sent_at": float(seq),
        "host": f"node{node}",
    }
    return NodeFrame(**(values | changes))


class MadeJob:
    """A synchronous job: per rank and step the phases' durations; waits follow from who is last.

    Args:
        phases: phase name -> [ranks, steps] ms of work.
        transfer_ms: what the reduction takes once all have come.
        marked: [steps] or [ranks, steps] ms inside a user's phase, already part of `other`.

    Attributes:
        samples: [ranks, steps] samples of a step.
        gc: [ranks, steps] ms inside the garbage collector, already part of a phase.
    """

    def __init__(self, phases: Mapping[str, Floats], transfer_ms: float = 2.0, marked: Floats | None = None) -> None:
        self.samples = np.full(next(iter(phases.values())).shape, 8.0)
        self.gc: Floats | None = None
        self.phases = dict(phases)
        self.work = np.sum(list(phases.values()), axis=0)
        self.wait = self.work.max(axis=0) - self.work + transfer_ms
        self.ranks, self.steps = self.work.shape
        self.marked = np.broadcast_to(np.zeros(self.steps) if marked is None else marked, self.work.shape)

    def seconds(self, steps: int) -> float:
        """When so many steps are done, in seconds."""
        return float((self.work + self.wait)[0, :steps].sum()) / 1000

    def columns(self, rank: int, first: int, last: int) -> StepColumns:
        """The records of steps first..last-1."""
        part = slice(first, last)
        values: dict[str, NDArray[Any]] = {
            name: table[rank, part] for name, table in self.phases.items() if name != "other"
        }
        values["exposed"] = self.wait[rank, part]
        values["barrier"] = np.zeros(last - first)
        values["duration"] = self.work[rank, part] + self.wait[rank, part]
        values["marked"] = self.marked[rank, part]
        values["loss"] = 4.0 - 0.001 * np.arange(first, last)
        values["samples"] = self.samples[rank, part]
        if self.gc is not None:
            values["gc"] = self.gc[rank, part]
        return StepColumns(
            step=np.arange(first, last, dtype="<i8").tobytes(),
            values={name: column.astype("<f4").tobytes() for name, column in values.items()},
        )


def noisy(ranks: int, steps: int, mean_ms: float, cv: float, seed: int) -> Floats:
    """[ranks, steps] healthy work with Gaussian noise."""
    return mean_ms * np.maximum(0.1, 1 + cv * np.random.default_rng(seed).standard_normal((ranks, steps)))


def healthy_phases(ranks: int, steps: int, cv: float = 0.02, seed: int = 0) -> dict[str, Floats]:
    """A step of 100 ms: input 5, forward 30, backward 60, optimizer 3, other 2."""
    means = {"input": 5.0, "forward": 30.0, "backward": 60.0, "optimizer": 3.0, "other": 2.0}
    return {name: noisy(ranks, steps, mean, cv, seed * 10 + i) for i, (name, mean) in enumerate(means.items())}


def play(
    job: MadeJob,
    steps_per_tick: int = 10,
    silent: Mapping[int, int] | None = None,
    hosts: Sequence[str] | None = None,
    begins_at: int = 0,
) -> list[tuple[Finding, ...]]:
    """Run a watcher over the job's frames, tick by tick; returns the findings of every tick.

    Args:
        job: what the ranks do.
        steps_per_tick: steps that a tick of one second brings.
        silent: rank -> the step from which on it is not heard of any more.
        hosts: [ranks] host names; one host by default.
        begins_at: the first step that the watcher reads.
    """
    run, judge = Run(run_info(job.ranks)), Judge()
    said = []
    for tick, first in enumerate(range(begins_at, job.steps, steps_per_tick)):
        now = float(tick)
        frames = []
        for rank in range(job.ranks):
            if first < (silent or {}).get(rank, job.steps):
                part = job.columns(rank, max(begins_at, first - 5), min(job.steps, first + steps_per_tick))
                host = hosts[rank] if hosts else "node0"
                frames.append(rank_frame(rank, tick, part, host=host))
        run.add_ranks(frames, now, {})
        run.settle(now)
        said.append(in_words(judge(run, run.ages(now))))
    return said


def play_hosts(
    job: MadeJob,
    figures: Callable[[int, int], HostFigures] = lambda _tick, _node: HostFigures(),
    gpus: Callable[[int, int], Sequence[GpuFigures]] = lambda _tick, _node: (),
    process: Callable[[int, int], ProcessFigures | None] = lambda _tick, _rank: None,
    nodes: Sequence[int] | None = None,
    name: Callable[[int], str] = "node{}".format,
    info: Mapping[str, Any] | None = None,
    frame: Callable[[int, int], Mapping[str, Any]] = lambda _tick, _rank: {},
    steps_per_tick: int = 10,
    timed: bool = False,
) -> list[tuple[Finding, ...]]:
    """Run a watcher over the job and its hosts' frames, a tick a second; returns the findings of every tick.

    Args:
        job: what the ranks do.
        figures, gpus: of a host at a tick, by the tick and the node.
        process: a rank's figures, by the tick and the rank.
        nodes: [ranks] the node of each; one by default.
        name: of a node's host.
        info: what the run says of itself besides.
        frame: what a rank's frame says besides, by the tick and the rank.
        steps_per_tick: steps that a tick brings.
        timed: a tick comes when its steps have taken their time.
    """
    where = nodes or [0] * job.ranks
    run, judge = Run(run_info(job.ranks, node_keys=sorted(set(where)), **(info or {}))), Judge()
    said = []
    for tick, first in enumerate(range(0, job.steps, steps_per_tick)):
        now = job.seconds(first + steps_per_tick) if timed else float(tick)
        frames = []
        for rank, node in enumerate(where):
            part = job.columns(rank, max(0, first - 5), min(job.steps, first + steps_per_tick))
            own = {"host": name(node), "node": node, "process": process(tick, rank), **frame(tick, rank)}
            frames.append(rank_frame(rank, tick, part, **own))
        run.add_ranks(frames, now, {})
        for node in sorted(set(where)):
            told = {"figures": figures(tick, node), "gpus": list(gpus(tick, node))}
            run.add_node(node_frame(node, tick, host=name(node), **told), now)
        run.settle(now)
        said.append(in_words(judge(run, run.ages(now))))
    return said


def tick(run: Run, ages: Floats) -> Tick:
    """What a rule gets that does not look at steps."""
    return Tick(run, ages, StepMatrix())


def open_findings(said: Sequence[Said]) -> list[Said]:
    """Those that last and are more than advice."""
    return [finding for finding in said if finding.cleared_at_step is None and finding.kind != "advice"]


def mark(step: int, name: str, ms: float) -> Mark:
    """A user's phase."""
    return Mark(step, name, ms)
