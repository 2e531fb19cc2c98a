"""Hand-made snapshots for the faces that print."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from ddpmon.format import json_line
from ddpmon.machine import GpuFigures, HostFigures, ProcessFigures
from ddpmon.parts import Failure, Flight, Stack, StackFrame, Stall
from ddpmon.report.status_json import status_object
from ddpmon.snapshot import Coverage, Finding, JobView, Link, NodeView, Ranks, RunView, Snapshot

NAN = float("nan")
GPU = GpuFigures(
    index=1,
    uuid="GPU-bbbb",
    name="H200",
    utilization_pct=91.0,
    memory_used=9 << 30,
    memory_total=80 << 30,
    temperature_c=61.0,
    power_w=300.5,
    power_limit_w=700.0,
    sm_clock_mhz=1980.0,
)
PROCESS = ProcessFigures(
    cpu_pct=50.25, runqueue_pct=38.25, cpus="0-1", compute_threads=2, workers=4, quota_cpus=1.5, throttled_pct=12.5
)
STALL = Stall(
    seconds=14.2,
    stacks=[
        Stack(
            "MainThread",
            [StackFrame("/gpt/train.py", 41, "main", " loss = step(batch)"), StackFrame("/gpt/data.py", 7, "read")],
        ),
        Stack("pin-memory", [StackFrame("/usr/lib/queue.py", 171, "get", "self.wait()", False)]),
    ],
    flights=[Flight("0", 41, 40, "gloo:all_reduce")],
)
FAILURE = Failure(
    kind="ValueError",
    message="no such shard",
    step=12,
    traceback=[
        "Traceback (most recent call last):",
        '  File "/gpt/data.py", line 7, in read',
        "    raise ValueError(name)",
        "ValueError: no such shard",
    ],
)
STRAGGLER = Finding(
    kind="straggler",
    severity="warning",
    summary="rank 1 (node0) is late by 41 ms a step, mostly in input (since step 812). Costs 19 % of the run's time.",
    ranks=(1,),
    nodes=("node0",),
    phase="input",
    cause="run-queue wait",
    since_step=812,
    cost_pct=19.25,
    advice="Look at the DataLoader of rank 1.",
)


def floats(*values: float) -> Any:
    return np.array(values, dtype=np.float64)


def ints(*values: int) -> Any:
    return np.array(values, dtype=np.int64)


def two_ranks(**changes: Any) -> Ranks:
    """Rank 0 is early and has no GPU, rank 1 is late and has one."""
    columns: dict[str, Any] = {
        "host": ("node0", "node0"),
        "state": ("running", "running"),
        "phase": ("backward", "input"),
        "gpu": (None, GPU),
        "process": (None, PROCESS),
        "stall": (None, None),
        "failure": (None, None),
        "node": ints(0, 0),
        "local_rank": ints(0, 1),
        "pid": ints(4000, 4001),
        "step": ints(1203, 1204),
        "out_of_step": np.zeros(2, np.bool_),
        "age_s": floats(0.4, 0.5),
        "loss": floats(2.3140001296997070, 2.25),
        "step_ms": floats(172.1, 172.2),
        "work_ms": floats(117.1, 158.2),
        "exposed_ms": floats(54.1, 13.2),
        "barrier_ms": floats(1.1, 1.2),
        "wait_ms": floats(55.2, 14.4),
        "allreduce_ms": floats(60.1, 20.2),
        "lateness_ms": floats(0.0, 40.8),
        "input_ms": floats(2.1, 43.2),
        "forward_ms": floats(40.1, 40.2),
        "backward_ms": floats(70.1, 70.2),
        "optimizer_ms": floats(3.1, 3.2),
        "other_ms": floats(1.8, 1.4),
        "figures": {"cpu_pct": floats(99.5, 50.25), "rss_bytes": floats(3e8, 4e8)},
    }
    return Ranks(**{**columns, **changes})


def unknown_ranks(count: int, **changes: Any) -> Ranks:
    """Ranks of which nothing is known."""
    unknown: dict[str, Any] = {name: floats(*[NAN] * count) for name in Ranks.__slots__}
    unknown.update(host=("",) * count, state=("unknown",) * count, phase=("",) * count, gpu=(None,) * count)
    unknown.update(process=(None,) * count, figures=dict.fromkeys(("cpu_pct", "rss_bytes"), floats(*[NAN] * count)))
    unknown.update(stall=(None,) * count, failure=(None,) * count, out_of_step=np.zeros(count, np.bool_))
    unknown.update({name: ints(*[-1] * count) for name in ("node", "local_rank", "pid", "step")})
    return Ranks(**{**unknown, **changes})


def snapshot(**changes: Any) -> Snapshot:
    """A run of two ranks, of which rank 1 is late."""
    parts: dict[str, Any] = {
        "link": Link("live"),
        "taken_at": 1_700_000_000.25,
        "taken_monotonic": 100.0,
        "run": RunView(
            id="r1",
            name="gpt",
            state="running",
            world_size=2,
            nodes=("node0",),
            backend="gloo",
            step=1204,
            elapsed_s=751.5,
            source="tcp://127.0.0.1:29480",
            step_age_s=2.2,
        ),
        "coverage": Coverage(expected=2, reporting=2, oldest_age_s=0.5),
        "job": JobView(
            step_ms=172.15,
            throughput=92.9,
            throughput_unit="samples/s",
            loss=2.282,
            sync_efficiency=0.76,
            lost_to_waiting_pct=19.5,
            waiting_for=(1,),
            allreduce_ms=40.15,
            exposed_ms=33.65,
            busbw_gb_s=1.25,
        ),
        "ranks": two_ranks(),
        "nodes": (
            NodeView(
                node=0,
                host="node0",
                ranks=(0, 1),
                age_s=0.6,
                figures=HostFigures(75.5, 2, 3.5, memory_used=1 << 30, memory_total=4 << 30),
                gpus=(GPU,),
                notes=("no NVML",),
            ),
        ),
        "findings": (STRAGGLER,),
    }
    return Snapshot(**{**parts, **changes})


def parsed(taken: Snapshot) -> dict[str, Any]:
    """The JSON of this snapshot, read again."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    answer: dict[str, Any] = json.loads(json_line(status_object(taken)), parse_constant=refuse)
    return answer
