"""Synthetic snapshots: runs of any size, healthy or not, without a run."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ddpmon.parts import Failure, Flight, Stack, StackFrame, Stall
from ddpmon.run.medians import peers
from ddpmon.run.resources import RESOURCES
from ddpmon.snapshot import (
    Course,
    Coverage,
    Finding,
    Heat,
    JobView,
    Link,
    Metric,
    RankDetail,
    Ranks,
    RunView,
    Series,
    Snapshot,
)
from tests.tui.made_hosts import make_gpu, make_nodes, make_process

SITE = "/opt/venv/lib/python3.11/site-packages/torch"
STALL = Stall(
    seconds=14.2,
    stacks=[
        Stack(
            "MainThread",
            [
                StackFrame("/home/ada/gpt/train.py", 88, "<module>", "main(parse_arguments())"),
                StackFrame("/home/ada/gpt/train.py", 71, "main", "for step, batch in enumerate(loader):"),
                StackFrame(f"{SITE}/utils/data/dataloader.py", 732, "__next__", "data = self._next_data()", False),
                StackFrame(f"{SITE}/utils/data/dataloader.py", 788, "_next_data", "data = self._fetch(index)", False),
                StackFrame(f"{SITE}/utils/data/_utils/fetch.py", 52, "fetch", "[self.dataset[i] for i in x]", False),
                StackFrame("/home/ada/gpt/data.py", 33, "__getitem__", "tokens = self.shards.read(index)"),
                StackFrame("/home/ada/gpt/shards.py", 19, "read", "while not path.exists(): time.sleep(0.1)"),
            ],
        ),
        Stack(
            "pin-memory",
            [
                StackFrame("/usr/lib/python3.11/threading.py", 1002, "_bootstrap", "self._bootstrap_inner()", False),
                StackFrame("/usr/lib/python3.11/queue.py", 171, "get", "self.not_empty.wait()", False),
            ],
        ),
    ],
    flights=[Flight("default_pg", 41, 40, "gloo:all_reduce")],
)  # fmt: skip
FAILURE = Failure(
    "RuntimeError",
    "mat1 and mat2 shapes cannot be multiplied (32x1024 and 512x512)",
    1203,
    [
        "Traceback (most recent call last):",
        '  File "/home/ada/gpt/train.py", line 74, in main',
        "    loss = model(batch)",
        f'  File "{SITE}/nn/modules/module.py", line 1775, in _call_impl',
        "    return forward_call(*args, **kwargs)",
        '  File "/home/ada/gpt/model.py", line 41, in forward',
        "    return self.head(self.body(tokens))",
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (32x1024 and 512x512)",
    ],
)
HANG = Finding(
    "hang", "critical",
    "rank 2 (node0) is stuck in input for 14 s at step 1,204 and the 7 other ranks wait for it in all_reduce.",
    (2,), ("node0",), "input", None, 1204, evidence={"stuck_s": 14.2, "stack": "\n".join(
        f"{frame.file}:{frame.line} in {frame.function}: {frame.source}" for frame in STALL.stacks[0].frames)},
    advice="look at shards.py:19: it waits for something outside of this process",
)  # fmt: skip
FAILED = Finding(
    "rank_failed", "critical",
    "rank 2 (node0) failed at step 1,203: RuntimeError: mat1 and mat2 shapes cannot be multiplied",
    (2,), ("node0",), None, None, 1203, advice="its traceback is on its own screen: press enter on rank 2",
)  # fmt: skip
TYPICAL = {"input": 8.0, "forward": 38.0, "backward": 60.0, "optimizer": 6.0, "other": 5.0}
HEAT_STEPS = 600


@dataclass(frozen=True)
class Made:
    """A run to be made up: its size and what is wrong with it."""

    ranks: int = 8
    per_node: int = 4
    step: int = 1204
    straggler: int | None = None
    phase: str = "input"
    extra_ms: float = 41.0
    onset: int = 812
    lost: tuple[int, ...] = ()
    gpu: bool = False
    name: str = "gpt-stdlib"
    focus: int | None = None
    findings: tuple[Finding, ...] = ()
    hosts: tuple[str, ...] = field(default=())
    stuck: int | None = None
    failed: int | None = None
    troubled: tuple[int, ...] = ()  # nodes whose machines are shared, hot or broken
    hidden: tuple[int, ...] = ()  # nodes whose processes cannot be seen


def snapshot(made: Made) -> Snapshot:
    """One frozen picture of that run."""
    rng = np.random.default_rng(made.step)
    ranks = make_ranks(made, rng)
    work = float(np.nanmedian(ranks.work_ms))
    step_ms = float(np.nanmax(ranks.step_ms)) if made.ranks else 0.0
    waiting = float(np.nanmean(ranks.wait_ms)) / step_ms * 100
    return Snapshot(
        link=Link("live"),
        taken_at=time.time(),
        taken_monotonic=time.monotonic(),
        run=make_run(made),
        coverage=Coverage(made.ranks, made.ranks - len(made.lost), 14.2 if made.lost else 0.4),
        job=JobView(
            step_ms=step_ms,
            throughput=made.ranks * 32 / step_ms * 1000,
            throughput_unit="samples/s",
            loss=2.314,
            sync_efficiency=work / step_ms,
            lost_to_waiting_pct=waiting,
            waiting_for=() if made.straggler is None else (made.straggler,),
            monitor_us=12.3,
        ),
        ranks=ranks,
        heat=make_heat(made, rng),
        series=make_series(made, rng),
        nodes=make_nodes(ranks, make_run(made).nodes, made.gpu, made.troubled, made.hidden),
        findings=findings_of(made, step_ms),
        detail=None if made.focus is None else make_detail(made, made.focus, rng),
    )


def make_run(made: Made) -> RunView:
    """Who runs where."""
    return RunView(
        id="r1",
        name=made.name,
        state="running",
        world_size=made.ranks,
        nodes=made.hosts or tuple(f"node{i}" for i in range(-(-made.ranks // made.per_node))),
        backend="nccl" if made.gpu else "gloo",
        step=made.step,
        elapsed_s=751.0,
        source="tcp://127.0.0.1:29480",
    )


def _late_now(made: Made) -> bool:
    return made.straggler is not None and made.step >= made.onset


def make_ranks(made: Made, rng: np.random.Generator) -> Ranks:
    """Per-rank columns; everybody's step is as long as the slowest rank's work."""
    n = made.ranks
    phases = {name: typical * rng.normal(1.0, 0.008, n) for name, typical in TYPICAL.items()}
    if made.straggler is not None and _late_now(made):
        phases[made.phase][made.straggler] += made.extra_ms
    work = np.sum(list(phases.values()), axis=0)
    step_ms = float(work.max()) + 14.0
    wait = step_ms - work
    state = tuple(_state(made, rank) for rank in range(n))
    hosts = make_run(made).nodes
    gone = np.array([rank in made.lost for rank in range(n)])
    return Ranks(
        host=tuple(hosts[rank // made.per_node % len(hosts)] for rank in range(n)),
        state=state,
        phase=("backward",) * n,
        gpu=tuple(make_gpu(rank, made.per_node) if made.gpu else None for rank in range(n)),
        process=tuple(make_process(rank % made.per_node, made.gpu) for rank in range(n)),
        stall=tuple(STALL if rank == made.stuck else None for rank in range(n)),
        failure=tuple(FAILURE if rank == made.failed else None for rank in range(n)),
        node=np.arange(n) // made.per_node,
        local_rank=np.arange(n) % made.per_node,
        pid=4300 + np.arange(n),
        step=np.where(gone, made.step - 60, made.step),
        out_of_step=np.zeros(n, np.bool_),
        age_s=np.where(gone, 14.2, 0.4 + 0.05 * rng.random(n)),
        loss=2.31 + rng.normal(0, 0.01, n),
        step_ms=np.full(n, step_ms),
        work_ms=work,
        exposed_ms=wait,
        barrier_ms=np.zeros(n),
        wait_ms=wait,
        allreduce_ms=np.full(n, 31.0),
        lateness_ms=peers(work[:, None]).lateness(work[:, None])[:, 0],
        **{f"{name}_ms": values for name, values in phases.items()},
        figures={
            "cpu_pct": 98 + rng.normal(0, 2, n),
            "rss_bytes": 1.21e9 + rng.normal(0, 1e7, n),
            "runqueue_pct": np.full(n, 3.4),
        },
    )


def _state(made: Made, rank: int) -> str:
    if rank in made.lost:
        return "lost"
    return "failed" if rank == made.failed else "running" if made.stuck is None else "stalled"


def make_heat(made: Made, rng: np.random.Generator) -> Heat:
    """Lateness over the last steps, the straggler's from its onset on."""
    steps = np.arange(max(made.step - HEAT_STEPS + 1, 0), made.step + 1)
    work = (117.0 * rng.normal(1.0, 0.012, (made.ranks, len(steps)))).astype(np.float32)
    if made.straggler is not None:
        work[made.straggler, steps >= made.onset] += made.extra_ms
    for rank in made.lost:
        work[rank, steps > made.step - 60] = np.nan
    return Heat(steps, peers(work).lateness(work), np.full(len(steps), 131.0, np.float32))


def make_series(made: Made, rng: np.random.Generator) -> Series:
    """Loss that falls, throughput that drops at the onset; old points are decimated."""
    step = np.unique(np.r_[np.arange(0, max(made.step - 256, 0), 4), np.arange(max(made.step - 256, 0), made.step + 1)])
    loss = 2.2 + 1.9 * np.exp(-step / 260) + rng.normal(0, 0.015, len(step))
    spread = 0.05 + 0.03 * rng.random(len(step))
    late = (step >= made.onset) if made.straggler is not None else np.zeros(len(step), dtype=bool)
    step_ms = 131.0 + np.where(late, made.extra_ms, 0.0) + rng.normal(0, 2, len(step))
    return Series(step.astype(np.float64), loss, loss - spread, loss + spread, made.ranks * 32e3 / step_ms, step_ms)


def findings_of(made: Made, step_ms: float) -> tuple[Finding, ...]:
    """What a diagnosis would say of it."""
    found = list(made.findings)
    if made.straggler is not None and _late_now(made):
        host = make_run(made).nodes[made.straggler // made.per_node]
        cost = made.extra_ms / step_ms * 100
        found.insert(
            0,
            Finding(
                "straggler", "critical" if cost >= 20 else "warning",
                f"rank {made.straggler} ({host}) is late by {made.extra_ms:.0f} ms a step in {made.phase} "
                f"(since step {made.onset:,}). Costs {cost:.0f} % of the run's time.",
                (made.straggler,), (host,), made.phase, None, made.onset, False, cost,
                {"excess_ms": made.extra_ms, "work ratio": 1.35, "steps in window": 20, "high in": "20 of 20"},
                "Look at the data loader of this rank: its workers, its disk, its share of the data.",
            ),
        )  # fmt: skip
    for rank in made.lost:
        said = f"rank {rank} has been silent for 14 s; its last step was {made.step - 60:,}."
        found.insert(0, Finding("rank_lost", "critical", said, (rank,), since_step=made.step - 60))
    return tuple(found)


NOTES = (
    Finding("uneven_inputs", "info", "rank 2 gets 9 % more samples than the others.", (2,), cost_pct=1.2),
    Finding("pause", "info", "a checkpoint pauses all ranks for 1.4 s every 500 steps.", since_step=500, cost_pct=2.1),
    Finding("gc_pauses", "warning", "garbage collection on rank 1 stopped it for 80 ms.", (1,), cleared_at_step=640),
)


def make_detail(made: Made, rank: int, rng: np.random.Generator) -> RankDetail:
    """One rank's last steps and its machine."""
    steps = np.arange(max(made.step - 499, 0), made.step + 1)
    n = len(steps)
    late = (steps >= made.onset) & (rank == made.straggler)
    phases: dict[str, NDArray[np.float64]] = {}
    for name, typical in TYPICAL.items():
        values = typical * rng.normal(1.0, 0.04, n) + np.where(late & (name == made.phase), made.extra_ms, 0.0)
        phases[name] = values
    work = np.sum(list(phases.values()), axis=0)
    total = 131.0 + (made.extra_ms * (steps >= made.onset) if made.straggler is not None else 0.0)
    own = {**phases, "work": work, "wait": np.maximum(total - work, 1.0), "loss": 2.3 + rng.normal(0, 0.02, n)}
    usual = {**TYPICAL, "work": 117.0, "wait": 14.0, "loss": 2.3}
    courses = {name: Course(steps, values, around(usual[name], n, made)) for name, values in own.items()}
    courses["lateness"] = Course(steps, work - 117.0, around(117.0, n, made) - 117.0)
    at = steps[::6]
    clock = np.where((at >= made.onset) & (rank == made.straggler), 1110.0, 1755.0)
    gpu = (92 + rng.normal(0, 2, len(at)), 540 + rng.normal(0, 9, len(at)), clock)
    held = np.full(len(at), 44 * 2.0**30 if made.gpu else np.nan)
    read = (98 + rng.normal(0, 3, len(at)), 3 + rng.random(len(at)), 1.2e9 + np.linspace(0, 2e7, len(at)), held)
    figures = (*read, *(gpu if made.gpu else (np.full(len(at), np.nan),) * 3))
    for name, values, middle in zip(RESOURCES[1:], figures, (98, 3, 1.2e9, 44 * 2.0**30, 92, 540, 1755), strict=True):
        courses[name] = Course(at, values, around(middle, len(at), made))
    stall, failure = STALL if rank == made.stuck else None, FAILURE if rank == made.failed else None
    return RankDetail(rank, courses, (), stall, failure)


def around(middle: float, n: int, made: Made) -> NDArray[np.float64]:
    """[3, n] the band of the other ranks; no rows where there are none."""
    return np.outer([0.95, 1.0, 1.05] if made.ranks > 1 else [], np.full(n, middle)).reshape(-1, n)


class Playing:
    """A source that plays a made-up run, `pace` steps a reading."""

    def __init__(self, made: Made, pace: int = 6) -> None:
        self.made = made
        self.pace = pace
        self.focus: int | None = None
        self.metric: Metric = "lateness"
        self.closed = False

    def tick(self) -> Snapshot:
        self.made = replace(self.made, step=self.made.step + self.pace)
        return self.rebuild()

    def rebuild(self) -> Snapshot:
        return snapshot(replace(self.made, focus=self.focus))

    def close(self) -> None:
        self.closed = True
