"""Advice: each piece only where the figures carry it, with the figures and the gain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ddpmon.diagnose.advice import (
    AccumulateAdvice,
    BucketViewAdvice,
    HalfPrecisionAdvice,
    InputAdvice,
    InterconnectAdvice,
    ManyBucketsAdvice,
    OneBucketAdvice,
)
from ddpmon.diagnose.alert import Alert
from ddpmon.diagnose.judge import Judge
from ddpmon.machine import GpuFigures
from ddpmon.parts import Loader, Settings
from ddpmon.run.model import Run
from ddpmon.schema import NodeFrame
from tests.made_frames import RUN_ID, MadeJob, healthy_phases, rank_frame, run_info

MB = 10**6
PLAIN = Settings(gradient_as_bucket_view=False, gradient_dtype="float32")
ON_GPUS = {"device": "cuda", "backend": "nccl"}


def advised(
    job: MadeJob,
    info: dict[str, Any] | None = None,
    hosts: tuple[str, ...] = ("node0",) * 4,
    gpus: Sequence[GpuFigures] = (),
    **frame: Any,
) -> list[Alert]:
    """The advice after 200 steps of `job` on 4 ranks; `frame` is what each rank says besides."""
    run, judge = Run(run_info(4, **{"settings": PLAIN, **(info or {})})), Judge()
    for tick in range(20):
        node = NodeFrame(run_id=RUN_ID, node=0, seq=tick, sent_at=float(tick), host="node0", gpus=list(gpus))
        run.add_node(node, float(tick))
        for rank in range(4):
            part = job.columns(rank, 10 * tick, 10 * tick + 10)
            run.add_rank(rank_frame(rank, tick + 1, part, host=hosts[rank], **frame), float(tick))
        findings = judge(run, run.ages(float(tick)))
    assert {finding.severity for finding in findings} <= {"info"}
    return [finding for finding in findings if finding.kind == "advice" and finding.cleared_at_step is None]


def job(transfer_ms: float = 2.0, input_ms: float = 5.0) -> MadeJob:
    phases = healthy_phases(4, 200)
    phases["input"] += input_ms - 5.0
    return MadeJob(phases, transfer_ms)


def test_of_two_ranks_a_late_one_is_not_half_of_the_typical_one() -> None:
    phases = healthy_phases(2, 200)
    phases["input"][1] += 120.0
    run, judge = Run(run_info(2)), Judge()
    for tick in range(20):
        for rank in range(2):
            part = MadeJob(phases).columns(rank, 10 * tick, 10 * tick + 10)
            run.add_rank(rank_frame(rank, tick + 1, part), float(tick))
        kinds = {finding.kind for finding in judge(run, run.ages(float(tick)))}
        assert kinds <= {"straggler"}, "what the straggler explains is told once"
    assert kinds == {"straggler"}


def test_a_healthy_job_is_left_alone() -> None:
    frame: dict[str, Any] = {"bucket_count": 1, "gradient_bytes": 100 * MB, "loader": Loader(0, 5, ended=False)}
    assert advised(job(), ON_GPUS, **frame) == []


@pytest.mark.parametrize("workers", [0, 2])
def test_input_on_every_rank(workers: int) -> None:
    (finding,) = advised(job(input_ms=30.0), loader=Loader(workers, 5, ended=False))
    assert isinstance(finding.measures, InputAdvice)
    assert finding.measures.workers == workers
    assert finding.measures.input_ms == pytest.approx(30, abs=1.0)
    assert finding.cost_pct == pytest.approx(100 * 30 / 127, abs=1.5)


def test_one_bucket_hides_nothing() -> None:
    (finding,) = advised(job(20.0), {"settings": Settings()}, bucket_count=1, gradient_bytes=40 * MB)
    assert isinstance(finding.measures, OneBucketAdvice)
    assert finding.measures.cap_mib == 9
    assert finding.cost_pct == pytest.approx(100 * 15 / 120, abs=1.0)
    assert advised(job(20.0), {"settings": Settings()}, bucket_count=4, gradient_bytes=40 * MB) == []


def test_many_small_buckets() -> None:
    (finding,) = advised(job(20.0), {"settings": Settings()}, bucket_count=40, gradient_bytes=20 * MB)
    assert isinstance(finding.measures, ManyBucketsAdvice)
    assert (finding.measures.buckets, finding.measures.bucket_bytes) == (40, MB / 2)


def test_a_transfer_of_a_quarter_of_the_step() -> None:
    (finding,) = advised(job(50.0), {"settings": Settings()}, bucket_count=4, gradient_bytes=40 * MB)
    assert isinstance(finding.measures, AccumulateAdvice)
    assert finding.cost_pct == pytest.approx(100 * 25 / 150, abs=1.0)


def test_float32_gradients_that_take_long() -> None:
    (finding,) = advised(job(20.0), bucket_count=4, gradient_bytes=100 * MB)
    assert isinstance(finding.measures, HalfPrecisionAdvice)
    assert finding.measures.gradient_bytes == 100 * MB
    compressed = Settings(gradient_dtype="float32", comm_hook="fp16_compress_hook")
    assert advised(job(20.0), {"settings": compressed}, bucket_count=4, gradient_bytes=100 * MB) == []


def test_gpus_that_reduce_through_gloo() -> None:
    info = {"device": "cuda", "backend": "gloo", "settings": Settings()}
    (finding,) = advised(job(20.0), info)
    assert isinstance(finding.measures, InterconnectAdvice)
    assert finding.measures.path == "gloo"


def test_a_slow_link_between_hosts() -> None:
    info = {**ON_GPUS, "settings": Settings()}
    apart = ("a", "a", "b", "b")
    (finding,) = advised(job(20.0), info, apart, bucket_count=4, gradient_bytes=8 * MB)
    assert isinstance(finding.measures, InterconnectAdvice)
    assert (finding.measures.path, finding.measures.hosts) == ("network", 2)
    assert finding.measures.busbw_gb_s == pytest.approx(0.6, abs=0.01)
    assert advised(job(20.0), info, apart, bucket_count=4, gradient_bytes=800 * MB) == []
    assert advised(job(20.0), info, bucket_count=4, gradient_bytes=8 * MB) == []


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_on_a_gpu_the_transfer_holds_copies_too_and_is_an_upper_bound(device: str) -> None:
    found = advised(job(40.0), {"device": device, "backend": "nccl"}, bucket_count=1, gradient_bytes=40 * MB)
    assert len(found) == 3
    for finding in found:
        assert isinstance(finding.measures, (OneBucketAdvice, AccumulateAdvice, HalfPrecisionAdvice))
        assert finding.measures.transfer_ms == pytest.approx(40, abs=0.1)
        assert finding.measures.at_most == (device == "cuda")


def test_a_full_gpu_with_gradients_twice() -> None:
    full: dict[str, Any] = {
        "gpus": [GpuFigures(0, "GPU-a", memory_used=75 << 30, memory_total=80 << 30)],
        "gpu_uuid": "GPU-a",
    }
    (finding,) = advised(job(), ON_GPUS, **full, gradient_bytes=4000 * MB)
    assert finding.measures == BucketViewAdvice(93.75, 4000 * MB)
    assert advised(job(), {**ON_GPUS, "settings": Settings(gradient_as_bucket_view=True)}, **full) == []
