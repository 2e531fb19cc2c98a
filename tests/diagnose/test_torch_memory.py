"""The device memory of torch's tensors: ranks where it grows, and ranks that need more than the others."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ddpmon.diagnose.alert import Alert
from ddpmon.diagnose.judge import Judge
from ddpmon.diagnose.torch_memory import GpuMemoryGrowthMeasures, GpuMemoryUnevenMeasures
from ddpmon.machine import GpuFigures, ProcessFigures
from ddpmon.run.model import Run
from tests.made_frames import columns, node_frame, rank_frame, run_info

MB, GB = 1 << 20, 1 << 30


class Job:
    """A run whose ranks say what their processes use, at times of the test."""

    def __init__(self, ranks: int, total: int | None = None) -> None:
        self._run, self._judge = Run(run_info(ranks)), Judge()
        if total is not None:
            gpus = [GpuFigures(index=rank, uuid=f"GPU-{rank}", memory_total=total) for rank in range(ranks)]
            self._run.add_node(node_frame(0, 1, gpus=gpus), 1.0)

    def says(
        self, *processes: ProcessFigures | None, at: int = 9, step: int = 40, state: str = "running"
    ) -> list[Alert]:
        """The alerts at second `at`, as the ranks are in this step and their processes say this."""
        for rank, process in enumerate(processes):
            steps = columns([step], {"duration": [100.0]})
            frame = rank_frame(rank, at, steps, process=process, gpu_uuid=f"GPU-{rank}", state=state)
            self._run.add_rank(frame, float(at))
        self._run.settle(float(at))
        alerts = self._judge(self._run, self._run.ages(float(at)))
        return [alert for alert in alerts if alert.kind.startswith("gpu_memory")]


def judge(
    *ranks: ProcessFigures | None, step: int = 40, total: int | None = None, state: str = "running"
) -> list[Alert]:
    """The alerts on ranks whose processes say this, each on a GPU of so many bytes."""
    return Job(len(ranks), total).says(*ranks, step=step, state=state)


def grown(growth: int, allocated: int | None = 20 * GB) -> ProcessFigures:
    return ProcessFigures(gpu_growth=growth, gpu_allocated=allocated)


def peak(size: int, retries: int = 0, now: int | None = None) -> ProcessFigures:
    return ProcessFigures(gpu_peak=size, alloc_retries=retries, gpu_allocated=now)


def test_tensors_that_grow_are_named_with_the_time_that_is_left() -> None:
    still = grown(0)
    (alert,) = judge(still, grown(100 * MB), grown(300 * MB), still, total=80 * GB)
    assert (alert.kind, alert.severity, alert.ranks) == ("gpu_memory_growth", "warning", (2, 1))
    left = 60 * GB / MB  # at 1 MiB a second
    assert alert.measures == GpuMemoryGrowthMeasures(2, "node0", 300 * MB, 300.0, 20 * GB, left)
    (alert,) = judge(still, grown(40 * GB), total=80 * GB)
    assert alert.severity == "critical"


def test_the_peak_of_a_rank_that_grows_is_told_and_moves_no_verdict() -> None:
    """The time counts from what is kept from step to step; a step needs more than that, so the GPU is full sooner."""
    (calm,) = judge(grown(100 * MB, 60 * GB), total=80 * GB)
    (high,) = judge(ProcessFigures(gpu_growth=100 * MB, gpu_allocated=60 * GB, gpu_peak=79 * GB), total=80 * GB)
    assert isinstance(calm.measures, GpuMemoryGrowthMeasures)
    assert high.measures == replace(calm.measures, peak_bytes=79 * GB)
    assert high.severity == calm.severity


def test_growth_on_a_gpu_of_unknown_size() -> None:
    (alert,) = judge(grown(100 * MB))
    assert alert.measures == GpuMemoryGrowthMeasures(0, "node0", 100 * MB, 300.0, 20 * GB, None)
    (alert,) = judge(grown(100 * MB, allocated=None), total=80 * GB)
    assert alert.measures == GpuMemoryGrowthMeasures(0, "node0", 100 * MB, 300.0, None, None)


@pytest.mark.parametrize("process", [None, ProcessFigures(), grown(0), grown(63 * MB)])
def test_little_growth_or_none_is_nothing(process: ProcessFigures | None) -> None:
    assert judge(process, process, total=80 * GB) == []


def test_a_rank_that_has_ended_does_not_grow() -> None:
    assert judge(grown(100 * MB), grown(100 * MB), state="finished") == []


def test_a_rank_that_needs_more_than_the_others() -> None:
    (alert,) = judge(peak(20 * GB), peak(27 * GB), peak(21 * GB), peak(24 * GB))
    assert (alert.kind, alert.severity, alert.ranks) == ("gpu_memory_uneven", "info", (1, 3))
    assert alert.measures == GpuMemoryUnevenMeasures(1, "node0", 27 * GB, 21 * GB, 0)


def test_retries_are_a_warning_while_they_are_new() -> None:
    job, usual = Job(3), peak(20 * GB)
    (alert,) = job.says(usual, peak(27 * GB, 5), usual, at=0)
    assert (alert.severity, alert.ranks) == ("info", (1,))  # they may be of yesterday
    (alert,) = job.says(usual, peak(27 * GB, 7), usual, at=10)
    assert isinstance(alert.measures, GpuMemoryUnevenMeasures)
    assert (alert.severity, alert.measures.retries) == ("warning", 2)
    for at in range(20, 1000, 10):
        (alert,) = job.says(usual, peak(27 * GB, 7, now=26 * GB), usual, at=at)
    assert alert.severity == "info"


def test_a_peak_counts_while_it_is_new() -> None:
    """One evaluation at the start, and never again; then what the rank uses while it trains."""
    job, usual = Job(3), peak(20 * GB, now=15 * GB)
    for at in range(0, 290, 10):
        (alert,) = job.says(usual, peak(27 * GB, now=15 * GB), usual, at=at)
    for at in range(290, 700, 10):
        said = job.says(usual, peak(27 * GB, now=15 * GB), usual, at=at)
    assert said == []
    (alert,) = job.says(usual, peak(28 * GB, now=15 * GB), usual, at=700)
    assert alert.measures == GpuMemoryUnevenMeasures(1, "node0", 28 * GB, 20 * GB, 0)
    for at in range(710, 1500, 10):
        (alert,) = job.says(usual, peak(28 * GB, now=24 * GB), usual, at=at)
    assert alert.measures == GpuMemoryUnevenMeasures(1, "node0", 24 * GB, 20 * GB, 0)


def test_ranks_of_several_parts_are_compared_with_their_own() -> None:
    """The stages of a pipeline, and two ranks that keep parameters."""
    first, second, servers = [peak(20 * GB)] * 4, [peak(30 * GB), peak(31 * GB), peak(30 * GB)], [peak(60 * GB)] * 2
    job = Job(9)
    assert job.says(*first, *second, *servers) == []
    (alert,) = job.says(*first, peak(37 * GB), *second[1:], *servers, at=20)
    assert alert.measures == GpuMemoryUnevenMeasures(4, "node0", 37 * GB, 31 * GB, 0)
    (alert,) = job.says(*first[:2], peak(30 * GB), peak(30 * GB), *second, *servers, at=400)
    assert alert.ranks == (2, 3), "they have joined another group later: that is no part of the job"


def test_peaks_that_tell_nothing() -> None:
    assert judge(peak(20 * GB), peak(27 * GB)) == []  # of two nobody can say which one is unusual
    assert judge(peak(20 * GB), peak(21 * GB + 1), peak(20 * GB)) == []  # 5 %
    assert judge(peak(GB), peak(2 * GB - 1), peak(GB)) == []  # less than 1 GiB
    assert judge(peak(20 * GB), peak(12 * GB), peak(20 * GB)) == []  # less than the others
    assert judge(peak(20 * GB), peak(27 * GB), peak(20 * GB), step=5) == []  # still warming up
    assert judge(None, ProcessFigures(), peak(27 * GB), peak(GB)) == []  # the others do not tell
