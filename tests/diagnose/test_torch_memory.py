"""The device memory of torch's tensors: ranks where it grows, and ranks that need more than the others."""

from __future__ import annotations

import pytest

from ddpmon.diagnose.alert import Alert
from ddpmon.diagnose.judge import Judge
from ddpmon.diagnose.torch_memory import GpuMemoryGrowthMeasures, GpuMemoryUnevenMeasures
from ddpmon.machine import GpuFigures, ProcessFigures
from ddpmon.run.model import Run
from tests.made_frames import columns, node_frame, rank_frame, run_info

MB, GB = 1 << 20, 1 << 30


def judge(
    *ranks: ProcessFigures | None, step: int = 40, total: int | None = None, state: str = "running"
) -> list[Alert]:
    """The alerts on ranks whose processes say this, each on a GPU of so many bytes."""
    run = Run(run_info(len(ranks)))
    for rank, process in enumerate(ranks):
        steps = columns([step], {"duration": [100.0]})
        run.add_rank(rank_frame(rank, 9, steps, process=process, gpu_uuid=f"GPU-{rank}", state=state), 1.0)
    if total is not None:
        gpus = [GpuFigures(index=rank, uuid=f"GPU-{rank}", memory_total=total) for rank in range(len(ranks))]
        run.add_node(node_frame(0, 1, gpus=gpus), 1.0)
    run.settle(1.0)
    return [alert for alert in Judge()(run, run.ages(1.0)) if alert.kind.startswith("gpu_memory")]


def grown(growth: int, allocated: int | None = 20 * GB) -> ProcessFigures:
    return ProcessFigures(gpu_growth=growth, gpu_allocated=allocated)


def peak(size: int, retries: int = 0) -> ProcessFigures:
    return ProcessFigures(gpu_peak=size, alloc_retries=retries)


def test_tensors_that_grow_are_named_with_the_time_that_is_left() -> None:
    still = grown(0)
    (alert,) = judge(still, grown(100 * MB), grown(300 * MB), still, total=80 * GB)
    assert (alert.kind, alert.severity, alert.ranks) == ("gpu_memory_growth", "warning", (2, 1))
    left = 60 * GB / MB  # at 1 MiB a second
    assert alert.measures == GpuMemoryGrowthMeasures(2, "node0", 300 * MB, 300.0, 20 * GB, left)
    (alert,) = judge(still, grown(40 * GB), total=80 * GB)
    assert alert.severity == "critical"


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
    (alert,) = judge(peak(20 * GB), peak(27 * GB, 5), peak(21 * GB))
    assert (alert.severity, alert.ranks) == ("warning", (1,))


def test_peaks_that_tell_nothing() -> None:
    assert judge(peak(20 * GB), peak(27 * GB)) == []  # of two nobody can say which one is unusual
    assert judge(peak(20 * GB), peak(21 * GB + 1), peak(20 * GB)) == []  # 5 %
    assert judge(peak(GB), peak(2 * GB - 1), peak(GB)) == []  # less than 1 GiB
    assert judge(peak(20 * GB), peak(12 * GB), peak(20 * GB)) == []  # less than the others
    assert judge(peak(20 * GB), peak(27 * GB), peak(20 * GB), step=5) == []  # still warming up
    assert judge(None, ProcessFigures(), peak(27 * GB), peak(GB)) == []  # the others do not tell
