"""A simulated device's marks through the probe's own log, replay and frames, and a watcher that judges them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from detection_truth import Tick
from device_job import Trace

from ddpmon.codec import decode, encode
from ddpmon.diagnose.judge import Judge
from ddpmon.probe import frames
from ddpmon.probe.clock import CpuClock
from ddpmon.probe.event_log import EventLog
from ddpmon.probe.loss import LossReader
from ddpmon.probe.record import Elapsed, HostTimes, StepRow, resolve
from ddpmon.probe.step_assembler import StepAssembler
from ddpmon.report.sentences import in_words
from ddpmon.run.model import Run
from ddpmon.schema import RankFrame, RunInfo

RUN_ID = "simulated-device"
HOST_SIZE = 8
_TICK = 10  # steps that a frame brings
_OVERLAP = 4
_NS = 1e6


class _Mark:
    """An event as torch.cuda has it, whose times are known."""

    __slots__ = ("device", "host_ns")

    def __init__(self, host: float, device: float) -> None:
        self.host_ns, self.device = int(host * _NS), device


class _DeviceClock(CpuClock):
    """The device's clock: all marks have been passed."""

    name = "simulated events"

    def ready(self, mark: Any) -> bool:  # noqa: ARG002
        return True

    def ms(self, start: Any, end: Any) -> float:
        return float(np.float32(end.device - start.device))

    def recycle(self, marks: list[Any]) -> None:
        """Nobody reads them again."""


def rows_of(trace: Trace, seed: int, rank: int) -> list[StepRow]:
    """What the publisher makes of one rank's marks."""
    clock = _DeviceClock()
    recorder = EventLog(clock, LossReader(), _fail)
    replay, times, rows = StepAssembler(recorder), HostTimes(), []
    host = {name: values[:, seed, rank].tolist() for name, values in trace.host.items()}
    device = {name: values[:, seed, rank].tolist() for name, values in trace.device.items()}
    for step in range(trace.job.steps):
        _put_step(recorder, step, {name: _Mark(host[name][step], device[name][step]) for name in _DEVICE}, host)
        replay.drain()
        while replay.finished:
            record = replay.finished.popleft()
            elapsed = Elapsed(record, clock)
            rows.append(resolve(record, elapsed.ms, 0.0, times.of(record, elapsed)))
    return rows


_DEVICE = ("forward", "forwarded", "ready", "synced", "optimizer", "optimized")


def _put_step(recorder: EventLog, step: int, mark: dict[str, _Mark], host: dict[str, list[float]]) -> None:
    put, began, ended = recorder.put, int(host["load"][step] * _NS), int(host["loaded"][step] * _NS)
    put("load", began, _Mark(host["load"][0], host["load"][0]) if step == 0 else None)
    put("loaded", ended, ended - began, None)
    for name in ("forward", "forwarded", "ready"):
        put(name, mark[name])
    put("synced", mark["synced"], step)
    put("log", 1.0, 8, None, 0)
    for name in ("optimizer", "optimized"):
        put(name, mark[name])
    if host["pause"][step] == host["pause"][step]:
        put("pause", int(host["pause"][step] * _NS), "eval")
        put("resume", int(host["resume"][step] * _NS))


def _fail(error: Exception) -> None:
    raise error


def watch(trace: Trace, seed: int) -> Iterator[Tick]:
    """What a watcher says, tick by tick."""
    run, judge = Run(run_info(trace.job.ranks)), Judge()
    for tick, told in enumerate(frames_of(trace, seed)):
        now = float(tick)
        run.add_ranks([decode("rank", encode(frame), RankFrame) for frame in told], now, {})
        run.settle(now)
        yield Tick(now, told[0].step, in_words(judge(run, run.ages(now))))


def frames_of(trace: Trace, seed: int) -> Iterator[list[RankFrame]]:
    """The ranks' frames of every tick."""
    rows = [rows_of(trace, seed, rank) for rank in range(trace.job.ranks)]
    for tick, first in enumerate(range(0, trace.job.steps - 1, _TICK)):
        part = slice(max(0, first - _OVERLAP), first + _TICK)
        yield [_frame(rank, tick, rows[rank][part]) for rank in range(trace.job.ranks)]


def _frame(rank: int, tick: int, rows: Sequence[StepRow]) -> RankFrame:
    node = rank // HOST_SIZE
    return RankFrame(
        run_id=RUN_ID, rank=rank, seq=tick, sent_at=float(tick), host=f"node{node}", node=node, pid=100 + rank,
        local_rank=rank % HOST_SIZE, gpu_uuid=f"GPU-{rank}", state="running", phase="backward", step=rows[-1].step,
        phase_s=0.0, steps=frames.columns(rows), marks=frames.marks(rows),
    )  # fmt: skip


def run_info(ranks: int) -> RunInfo:
    """What rank 0 would say of the job."""
    return RunInfo(
        run_id=RUN_ID, name="simulated device", world_size=ranks, node_keys=list(range(-(-ranks // HOST_SIZE))),
        backend="nccl", device="cuda", parameters=1 << 20, gradient_bytes=4 << 20, bucket_detail=False,
        started_at=0.0, host="node0", pid=100, versions={},
    )  # fmt: skip
