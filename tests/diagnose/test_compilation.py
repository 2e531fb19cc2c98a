"""Compilation and CUDA graphs: ranks that finish no step and are not stuck, until nothing moves any more."""

from __future__ import annotations

from threading import get_ident
from typing import Any

import pytest
from msgspec.structs import replace

from ddpmon.diagnose.pause import GraphMeasures, OngoingPauseMeasures, is_compiling
from ddpmon.diagnose.rank_position import own_line
from ddpmon.machine import ProcessFigures
from ddpmon.parts import StackFrame
from tests.diagnose.measured import hang, measured, only
from tests.diagnose.test_gpu_hangs import NEVER, NO_STEPS, QUEUED, RANKS, gpu, ranks
from tests.diagnose.test_hang import judge, stall
from tests.made_frames import columns, rank_frame

LIBRARIES = "/usr/lib/python3.11/site-packages"
FIRST: dict[str, Any] = {"steps": NO_STEPS, "step": -1}
COMPILES = [
    StackFrame("/home/me/train.py", 60, "main", "loss = model(batch)"),
    StackFrame(f"{LIBRARIES}/torch/_dynamo/eval_frame.py", 700, "_fn", own=False),
    StackFrame(f"{LIBRARIES}/torch/_inductor/scheduler.py", 2000, "Scheduler.codegen", own=False),
]
RUNS = [
    *COMPILES[:2],
    StackFrame(f"{LIBRARIES}/torch/_inductor/output_code.py", 500, "CompiledFxGraph.__call__", own=False),
    StackFrame(f"{LIBRARIES}/triton/runtime/jit.py", 400, "KernelInterface.__getitem__.<locals>.<lambda>", own=False),
]


def compiles(seconds: float, *, moves: bool = True, on_gpu: bool = True, **changes: Any) -> dict[str, Any]:
    told = {"moves": moves, "seconds": seconds}
    says = gpu(host="forward", device="forward", step=119, frames=COMPILES, told=told, phase_s=seconds) | changes
    return says if on_gpu else says | {"gpu_uuid": None}


def waits(seconds: float, *, on_gpu: bool = True, **changes: Any) -> dict[str, Any]:
    says = gpu(QUEUED, device="exposed", told={"seconds": seconds}, phase_s=seconds) | changes
    return says if on_gpu else says | {"gpu_uuid": None, "phase": "exposed", "step": 119}


@pytest.mark.parametrize("on_gpu", [True, False])
@pytest.mark.parametrize("seconds", [25.0, 300.0, 1500.0])
def test_a_rank_that_compiles_while_the_others_wait_is_information(seconds: float, on_gpu: bool) -> None:
    alert = only(judge(*ranks(compiles(seconds, on_gpu=on_gpu), waits(seconds, on_gpu=on_gpu))))
    assert (alert.kind, alert.severity, alert.ranks, alert.phase) == ("pause", "info", (3,), "forward")
    pause = measured(alert, OngoingPauseMeasures)
    assert (pause.activity, pause.ranks, pause.seconds) == ("compilation", (3,), seconds)
    assert (own_line(pause.shown.stack), len(pause.waiting)) == (COMPILES[0], 7)


@pytest.mark.parametrize("on_gpu", [True, False])
def test_a_compilation_that_nothing_moves_in_or_that_takes_half_an_hour_is_a_hang(on_gpu: bool) -> None:
    for seconds, moves in ((300.0, False), (1900.0, True)):
        stuck = compiles(seconds, on_gpu=on_gpu, moves=moves)
        alert = only(judge(*ranks(stuck, waits(seconds, on_gpu=on_gpu))))
        assert (alert.kind, alert.severity, alert.ranks) == ("hang", "critical", (3,))
        shown = measured(alert, OngoingPauseMeasures).shown if moves else hang(alert).shown
        assert (shown.pid, shown.stack) == (103, tuple(COMPILES))


@pytest.mark.parametrize(
    ("process", "severity"),
    [
        (None, "critical"),
        (ProcessFigures(), "critical"),
        (ProcessFigures(cpu_pct=3.0, workers_cpu_pct=1.0), "critical"),
        (ProcessFigures(cpu_pct=99.0), "info"),
        (ProcessFigures(cpu_pct=3.0, workers_cpu_pct=780.0), "info"),
    ],
)
def test_a_compiler_that_computes_in_one_call_or_in_its_workers_gets_on(
    process: ProcessFigures | None, severity: str
) -> None:
    alert = only(judge(*ranks(compiles(120.0, moves=False, process=process), waits(120.0))))
    assert alert.severity == severity


def test_when_all_compile_nobody_is_named() -> None:
    alert = only(judge(*[compiles(300.0)] * RANKS))
    assert (alert.kind, alert.severity, alert.ranks) == ("pause", "info", ())
    pause = measured(alert, OngoingPauseMeasures)
    assert (pause.activity, pause.ranks, pause.waiting) == ("compilation", (*range(RANKS),), ())


@pytest.mark.parametrize("on_gpu", [True, False])
def test_the_first_step_may_compile_for_longer_than_five_minutes(on_gpu: bool) -> None:
    all_of_them = [compiles(320.0, on_gpu=on_gpu) | FIRST] * RANKS
    one = ranks(compiles(320.0, on_gpu=on_gpu) | FIRST, waits(320.0, on_gpu=on_gpu) | FIRST)
    for says in (all_of_them, one):
        alert = only(judge(*says))
        assert (alert.kind, alert.severity) == ("pause", "info")
    stopped = only(judge(*[compiles(320.0, on_gpu=on_gpu, moves=False) | FIRST] * RANKS))
    assert (stopped.kind, stopped.severity) == ("hang", "critical")


def test_a_rank_that_runs_what_was_compiled_does_not_compile() -> None:
    stuck = compiles(120.0, moves=False, process=ProcessFigures(cpu_pct=100.0))
    stuck |= {"stall": replace(stall(120.0, NEVER, frames=RUNS), device_phase="forward")}
    alert = only(judge(*ranks(stuck, waits(120.0))))
    assert (alert.kind, alert.severity, alert.ranks) == ("hang", "critical", (3,))
    theirs = [StackFrame("/home/me/triton/compiler/loop.py", 3, "spin")]
    assert not is_compiling(rank_frame(0, 1, NO_STEPS, **gpu(frames=theirs, told={"moves": True})))


def test_a_package_with_kernels_in_a_folder_called_triton_is_no_compiler() -> None:
    theirs = StackFrame(f"{LIBRARIES}/mamba_ssm/ops/triton/ssd_combined.py", 900, "mamba_split", own=False)
    compiler = StackFrame(f"{LIBRARIES}/triton/compiler/compiler.py", 300, "compile", own=False)
    for frame, expected in ((theirs, False), (compiler, True)):
        says = gpu(frames=[frame], told={"moves": True})
        assert is_compiling(rank_frame(0, 1, NO_STEPS, **says)) == expected


def test_a_host_that_has_just_come_into_its_phase_is_not_stuck_by_what_its_gpu_was_in() -> None:
    """An evaluation that nobody named: the phase of the GPU was asked for up to five seconds ago."""
    evaluates = gpu(host="input", device="other", step=119, told={"moves": True, "seconds": 25.0}, phase_s=0.4)
    alert = only(judge(*ranks(evaluates, waits(25.0))))
    assert (alert.kind, alert.severity, alert.ranks) == ("pause", "info", (3,))


def test_a_rank_stuck_beside_one_that_compiles_is_named() -> None:
    found = ranks(compiles(120.0), waits(120.0))
    found[5] = gpu(host="input", device="input", step=119, told={"seconds": 120.0}, phase_s=120.0)
    alert = only(judge(*found))
    assert (alert.kind, alert.severity, alert.ranks) == ("hang", "critical", (5,))


@pytest.mark.parametrize("phase", ["forward", "backward", "optimizer"])
def test_a_host_with_a_gpu_that_gets_on_in_any_phase_is_a_pause_for_its_first_minute(phase: str) -> None:
    def gets_on(seconds: float) -> dict[str, Any]:
        return gpu(host=phase, device=phase, step=119, told={"moves": True, "seconds": seconds}, phase_s=seconds)

    alert = only(judge(*ranks(gets_on(25.0), waits(25.0))))
    assert (alert.kind, alert.severity, alert.ranks) == ("pause", "info", (3,))
    assert only(judge(*ranks(gets_on(700.0), waits(700.0)))).severity == "critical"


def test_real_stacks_tell_a_compiler_from_what_it_has_compiled() -> None:
    torch = pytest.importorskip("torch")
    from ddpmon.probe import stacks

    seen: dict[str, bool] = {}

    def look(when: str) -> None:
        told = {"moves": True}
        says = gpu(told=told) | {"stall": replace(stall(20.0), stacks=stacks.capture(get_ident()), **told)}
        seen[when] = is_compiling(rank_frame(0, 1, NO_STEPS, **says))

    def backend(graph: Any, _inputs: Any) -> Any:
        look("compiling")
        return graph.forward

    @torch._dynamo.disable  # type: ignore[untyped-decorator]
    def within(value: Any) -> Any:
        look("running")
        return value

    def step(value: Any) -> Any:
        return within(value * 2) + 1

    torch._dynamo.reset()
    compiled = torch.compile(step, backend=backend)
    for _ in range(2):
        compiled(torch.ones(2))
    assert seen == {"compiling": True, "running": False}


def graphed(replay_s: float | None, state: str = "running", **changes: Any) -> dict[str, Any]:
    told = {"graph_replay_s": replay_s, "seconds": 700.0} | changes.pop("told", {})
    return gpu(state=state, told=told, phase_s=700.0, frames=None) | changes


def test_steps_in_a_cuda_graph_are_not_measured_and_no_hang() -> None:
    alert = only(judge(*[graphed(0.02)] * RANKS))
    assert (alert.kind, alert.severity, alert.ranks) == ("pause", "info", ())
    graph = measured(alert, GraphMeasures)
    assert (graph.ranks, graph.are_all, graph.is_replaying) == ((*range(RANKS),), True, True)
    assert only(judge(*[graphed(3.0, "stalled")] * RANKS)).severity == "info"


def test_graphs_that_nobody_replays_any_more_are_a_warning_and_never_critical() -> None:
    for seconds in (20.0, 7000.0):
        alert = only(judge(*[graphed(seconds, "stalled")] * RANKS))
        assert (alert.kind, alert.severity, alert.ranks) == ("hang", "warning", ())
        graph = measured(alert, GraphMeasures)
        assert (graph.is_replaying, graph.replay_s) == (False, seconds)
    moving = graphed(20.0, "stalled", told={"moves": True})
    assert only(judge(*[moving] * RANKS)).severity == "info"


def test_a_rank_that_waits_for_one_that_replays_graphs_waits() -> None:
    alert = only(judge(*ranks(graphed(0.02, told={"seconds": 25.0}), waits(25.0))))
    assert (alert.kind, alert.severity, alert.ranks) == ("pause", "info", (3,))
    stopped = graphed(25.0, "stalled", told={"seconds": 25.0})
    alert = only(judge(*ranks(stopped, waits(25.0))))
    assert (alert.kind, alert.severity, alert.ranks) == ("hang", "critical", (3,))


def test_a_job_that_steps_again_has_no_graph() -> None:
    on = {"state": "running", "phase": "forward", "phase_s": 0.1, "gpu_uuid": "GPU-1"}
    assert judge(*[on | {"steps": columns(range(100, 122), {"duration": [100.0] * 22})}] * RANKS) == []
    assert not isinstance(only(judge(*[graphed(None, "stalled")] * RANKS)).measures, GraphMeasures)
