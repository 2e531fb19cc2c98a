"""Verdicts on steps that were measured on an H100 with NCCL (docs/measured/gpu.md, row 1).

Every run is one rank on one GPU: 200 layers of tiny kernels, which its host launches more slowly than they run. In a
run called `peer` a communication hook lets the device wait behind the reduction as long as a peer of the late rank
would wait. A job of two ranks is made of a peer and a late one.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from ddpmon.codec import decode
from ddpmon.diagnose.alert import at_or_above
from ddpmon.diagnose.judge import Judge
from ddpmon.report.sentences import in_words
from ddpmon.run.model import Run
from ddpmon.schema import HistoryFrame, RankFrame, RunInfo
from ddpmon.snapshot import Finding

Frames = tuple[HistoryFrame, RankFrame]
NEAR_POINTS = 6.0  # of the gain, as in docs/measured/gpu.md
ITEM = ("", ", .item() every step")
INFO = RunInfo(
    run_id="h100", name="h100", world_size=2, node_keys=[0], backend="nccl", device="cuda", parameters=1 << 20,
    gradient_bytes=4 << 20, bucket_detail=False, started_at=0.0, host="vm", pid=100, versions={},
)  # fmt: skip


@pytest.fixture(scope="module")
def measured() -> dict[str, Frames]:
    """What the probe published of each run."""
    packed = gzip.decompress(Path(__file__).with_name("h100.msgpack.gz").read_bytes())
    runs = msgspec.msgpack.decode(packed, type=dict[str, tuple[bytes, bytes]])
    return {
        name: (decode("history", history, HistoryFrame), decode("rank", frame, RankFrame))
        for name, (history, frame) in runs.items()
    }


def warnings(ranks: list[Frames]) -> list[Finding]:
    """What a watcher warns of that attaches to a job of these ranks."""
    run = Run(INFO)
    run.add_history(replace(history, run_id="h100", rank=rank) for rank, (history, _) in enumerate(ranks))
    for rank, (_, frame) in enumerate(ranks):
        own = replace(frame, run_id="h100", rank=rank, local_rank=rank, pid=100 + rank, gpu_uuid=f"GPU-{rank}")
        run.add_rank(replace(own, seq=1), 0.0)
    run.settle(0.0)
    return [each for each in in_words(Judge()(run, run.ages(0.0))) if at_or_above(each.severity, "warning")]


def step_ms(frames: Frames) -> float:
    durations = sorted(memoryview(frames[0].recent.values["duration"]).cast("f"))
    return float(durations[len(durations) // 2])


@pytest.mark.parametrize("item", ITEM, ids=["never synchronises", "item every step"])
@pytest.mark.parametrize(("late", "phase"), [("host late", "forward"), ("device late", "backward")])
def test_the_late_rank_is_named_with_what_mending_it_saves(
    measured: dict[str, Frames], late: str, phase: str, item: str
) -> None:
    (found,) = warnings([measured[f"peer of {late}{item}"], measured[f"{late}{item}"]])
    assert (found.kind, found.ranks, found.phase) == ("straggler", (1,), phase)
    gain = 100 * (1 - step_ms(measured[f"base{item}"]) / step_ms(measured[f"{late}{item}"]))
    least = found.cost_pct or 0.0
    most = max(least, float(found.evidence.get("cost_most_pct", least)))
    assert least - NEAR_POINTS <= gain <= most + NEAR_POINTS
    assert "may wait up to" in found.summary, "each of these phases has launches enough to fill the queue"


@pytest.mark.parametrize("item", ITEM, ids=["never synchronises", "item every step"])
def test_a_host_that_waits_for_its_full_launch_queue_is_not_said_to_launch_slowly(
    measured: dict[str, Frames], item: str
) -> None:
    """The device spins for 20 ms when backward begins, and the host soon has 1,024 launches queued behind it."""
    (found,) = warnings([measured[f"peer of device late{item}"], measured[f"device late{item}"]])
    assert "launched slowly" not in found.summary
    assert "launch_ms" not in found.evidence
    assert float(found.evidence["launch_most_ms"]) > 0
