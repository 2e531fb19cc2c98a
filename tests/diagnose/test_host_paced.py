"""What explains a rank whose CPU launches its kernels slowly, on simulated devices: its host, and not its GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

pytest.importorskip("torch")
from device_job import Fault, Job
from device_play import frames_of, run_info

from ddpmon.diagnose.alert import Alert
from ddpmon.diagnose.judge import Judge
from ddpmon.machine import GpuFigures, HostFigures, HostProcess, Process, ProcessFigures
from ddpmon.report.sentences import in_words
from ddpmon.run.model import Run
from ddpmon.shell_command import advice_text
from ddpmon.snapshot import Finding
from tests.made_frames import node_frame, open_findings
from tests.table.marks import trace_of

ONSET, SLOWER = 60, 1.3
LOW = 900.0  # MHz of a GPU that is held down
HOG = HostProcess(Process(8123, [7000, 1], "bob", "python x.py"), 190.0, "1")
SLOW_HOST = Job(steps=240, item_every=10, fault=Fault((1,), host=SLOWER, onset=ONSET))
SLOW_DEVICE = Job(steps=240, item_every=10, kernel_us=20.0, fault=Fault((1,), device=SLOWER, onset=ONSET))


def straggler(
    process: Callable[[bool], dict[str, Any]],
    host: HostFigures | None = None,
    clock: float | None = 1700.0,
    gc_ms: float = 0.0,
    job: Job = SLOW_HOST,
) -> Finding:
    """What is said of rank 1, which is slower from step 60 on.

    Args:
        process: the figures of a rank's process, by whether it is rank 1 after the onset.
        host: the figures of the host that all share.
        clock: MHz of rank 1's GPU from the onset on; None if no GPU's clock is known at any time.
        gc_ms: time a step that rank 1's garbage collector takes from the onset on.
        job: what is simulated: `SLOW_HOST`, whose GPU waits for its CPU, or `SLOW_DEVICE`.
    """
    run, judge = Run(msgspec.structs.replace(run_info(4), run_id="made-run")), Judge()
    said: tuple[Alert, ...] = ()
    for tick, frames in enumerate(frames_of(trace_of(job), 0)):
        hit = frames[0].step > ONSET
        told = []
        for frame in frames:
            own = {"runqueue_pct": 1.0, "cpus": str(frame.rank), "cpu_mhz": 3000.0, **process(hit and frame.rank == 1)}
            steps = frame.steps
            if hit and frame.rank == 1:
                collected = np.full(len(steps), gc_ms, "<f4").tobytes()
                steps = msgspec.structs.replace(steps, values={**steps.values, "gc": collected})
            told.append(msgspec.structs.replace(frame, run_id="made-run", process=ProcessFigures(**own), steps=steps))
        run.add_ranks(told, float(tick), {})
        gpus = [gpu(rank, clock if hit and rank == 1 else clock and 1700.0) for rank in range(4)]
        figures = host or HostFigures(cpu_count=8)
        run.add_node(node_frame(0, tick, figures=figures, gpus=gpus), float(tick))
        run.settle(float(tick))
        said = judge(run, run.ages(float(tick)))
    (found,) = (finding for finding in open_findings(in_words(said)) if finding.kind == "straggler")
    assert found.ranks == (1,)
    assert ("its kernels are launched slowly" in found.summary) is (job is SLOW_HOST)
    return found


def gpu(rank: int, clock: float | None) -> GpuFigures:
    reasons = ["hardware thermal"] if clock == LOW else []
    return GpuFigures(
        index=rank, uuid=f"GPU-{rank}", utilization_pct=99.0, sm_clock_mhz=clock, sm_clock_max_mhz=1980.0,
        clock_reasons=reasons, temperature_c=95.0 if reasons else 60.0, power_w=300.0, power_limit_w=700.0,
    )  # fmt: skip


def test_a_lower_cpu_clock_is_the_cause_with_a_command() -> None:
    found = straggler(lambda hit: {"cpu_mhz": 3000.0 / SLOWER} if hit else {})
    assert (found.cause or "").startswith("a lower CPU clock: its core runs slower than those of the others")
    assert found.evidence["cause_share"] == pytest.approx(1.0, abs=0.2)
    assert "ssh node0 grep MHz /proc/cpuinfo" in advice_text(found.advice)


def test_a_cpu_clock_that_is_hardly_lower_is_no_cause() -> None:
    assert straggler(lambda hit: {"cpu_mhz": 2900.0} if hit else {}).cause is None


def test_a_clock_that_nobody_tells_is_no_cause() -> None:
    assert straggler(lambda _hit: {"cpu_mhz": None}).cause is None


def test_a_hog_on_the_launching_threads_core_is_the_cause() -> None:
    waits = 100 * (1 - 1 / SLOWER)
    host = HostFigures(cpu_count=8, processes=[HOG])
    found = straggler(lambda hit: {"runqueue_pct": waits} if hit else {}, host)
    assert (found.cause or "").startswith("CPU contention: pid 8123 (bob, python x.py) takes 190 % of a core")


def test_a_gpu_that_has_time_to_spare_is_not_slow_because_of_its_clock() -> None:
    assert straggler(lambda _hit: {}, clock=LOW).cause is None


def test_a_slow_gpu_is_not_explained_by_the_clock_of_its_cpu() -> None:
    slower: Callable[[bool], dict[str, Any]] = lambda hit: {"cpu_mhz": 3000.0 / SLOWER} if hit else {}  # noqa: E731
    assert straggler(slower, clock=None, job=SLOW_DEVICE).cause is None
    assert "clock" in (straggler(slower, clock=1700.0 / SLOWER, job=SLOW_DEVICE).cause or "")


def test_the_garbage_collector_is_the_cause_where_it_takes_the_time() -> None:
    excess = trace_of(SLOW_HOST).step_ms(ONSET)[0] - trace_of(SLOW_HOST.mended()).step_ms(ONSET)[0]
    assert "garbage collection takes" in (straggler(lambda _hit: {}, gc_ms=float(excess)).cause or "")
    assert straggler(lambda _hit: {}, gc_ms=float(excess) / 4).cause is None
