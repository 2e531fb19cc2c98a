"""The processes of many crowded GPUs fit a frame, and what was left out is said."""

from __future__ import annotations

import pytest

from ddpmon.codec import decode, encode
from ddpmon.machine import GpuFigures, GpuProcess, HostFigures, HostProcess, Process
from ddpmon.schema import MAX_FRAME_BYTES, NodeFrame
from ddpmon.sensors.gpu import bounded
from tests.made_frames import node_frame

LONG = "永" * 256
PARENTS = [4_000_000] * 32


def crowded(gpus: int, processes: int, text: str) -> list[GpuFigures]:
    listed = [GpuProcess(Process(4_000_000 + n, PARENTS, text, text, 1.7e9), 1 << 40, 9.5) for n in range(processes)]
    return [GpuFigures(index, f"GPU-{index}", processes=listed, process_count=100) for index in range(gpus)]


@pytest.mark.parametrize("text", ["python train.py", LONG], ids=["short", "long"])
def test_sixty_four_crowded_gpus_fit_a_frame(text: str) -> None:
    busiest = [HostProcess(Process(n, PARENTS, LONG, LONG)) for n in range(32)]
    gpus = bounded(crowded(64, 32, text))
    data = encode(node_frame(0, 0, figures=HostFigures(processes=busiest), gpus=gpus))
    assert len(data) < MAX_FRAME_BYTES
    assert len(decode("n", data, NodeFrame).gpus) == 64
    counts = [len(gpu.processes or ()) for gpu in gpus]
    assert min(counts) >= 1
    assert max(counts) - min(counts) <= 1, "no GPU goes short for another's sake"
    for gpu, count in zip(gpus, counts, strict=True):
        assert gpu.unread == ({} if count == 32 else {"processes": f"only the largest {count} of 100 fit a frame"})


def test_a_few_are_told_of_whole() -> None:
    gpus = crowded(8, 16, LONG)
    assert bounded(gpus) == gpus
    unread = [GpuFigures(0, "GPU-0", unread={"processes": "no permission"}), *crowded(64, 32, LONG)]
    assert bounded(unread)[0] == unread[0]


def test_where_all_fit_nothing_is_left_out() -> None:
    gpus = crowded(16, 32, "python train.py")
    assert bounded(gpus) == gpus
