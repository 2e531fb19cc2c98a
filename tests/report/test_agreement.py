"""What a screen marks about a host and what the verdicts say of it: one measure for both."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from ddpmon.diagnose.judge import Judge
from ddpmon.machine import Disk, GpuFigures, GpuProcess, HostFigures, HostProcess, Pressure, Process, ProcessFigures
from ddpmon.report.build import build_ranks
from ddpmon.report.host_gpus import gpu_states
from ddpmon.report.host_summary import summarise_host
from ddpmon.report.hosts import build_nodes
from ddpmon.report.sentences import in_words
from ddpmon.run.model import Run
from ddpmon.tui.draw.host_detail import host_page
from ddpmon.tui.view_state import ViewState
from tests.made_frames import MadeJob, healthy_phases, node_frame, open_findings, rank_frame, run_info
from tests.tui.made_runs import Made, snapshot
from tests.tui.test_drawing import LOOKS, text_of

GB = 1 << 30
OURS = GpuProcess(Process(100, [50, 1], "me", "python train.py"), 20 * GB, 90.0)
CHILD = GpuProcess(Process(101, [100, 50, 1], "me", "python train.py"), 20 * GB, 90.0)
STRANGER = Process(8123, [7000, 1], "bob", "python x.py")
LAUNCHER = Process(50, [1], "me", "torchrun train.py")
MONITOR = Process(8124, [7000, 1], "me", "python ddpmon")


def seen(figures: HostFigures, gpus: list[GpuFigures], held: int | None = 20 * GB) -> tuple[list[str], list[str]]:
    """The kinds that are said of a host with one rank, and the words that its screen marks."""
    run, judge, job = Run(run_info(1)), Judge(), MadeJob(healthy_phases(1, 10))
    for tick in range(5):
        process = ProcessFigures(gpu_memory=held)
        frame = rank_frame(0, tick, job.columns(0, 0, 10), gpu_uuid="GPU-0", process=process)
        run.add_rank(frame, float(tick))
        run.add_node(node_frame(0, tick, figures=figures, gpus=gpus), float(tick))
        said = in_words(judge(run, run.ages(float(tick))))
    ranks = build_ranks(run, run.ages(4.0), np.empty(0, np.int64))
    (node,) = build_nodes(run, 4.0)
    return [found.kind for found in open_findings(said)], summarise_host(node, ranks)


def gpu(*processes: GpuProcess, used: int = 21 * GB) -> list[GpuFigures]:
    return [GpuFigures(0, "GPU-0", memory_used=used, memory_total=80 * GB, processes=list(processes))]


def disk(free: int, use: str = "checkpoints", path: str = "/work", total: int = 1000 * GB) -> HostFigures:
    return HostFigures(disks=[Disk(path, [use], total, free)])


@pytest.mark.parametrize(
    ("figures", "kind"),
    [
        (disk(9 * GB), "disk_low"),
        (disk(11 * GB), None),
        (disk(9 * GB, total=100 * GB), None),
        (disk(9 * GB, "training data"), None),
        (disk(9 * GB, "metadata cache"), "disk_low"),
        (disk(GB // 2, "shared memory", "/dev/shm", 16 * GB), "shm_low"),
        (disk(12 * GB, "shared memory", "/dev/shm", 500 * GB), None),
        (HostFigures(memory_used=96 * GB, memory_total=100 * GB), "memory_pressure"),
        (HostFigures(memory_used=94 * GB, memory_total=100 * GB), None),
        (HostFigures(pressure=Pressure(memory=9.0, memory_full=4.0)), None),
        (HostFigures(pressure=Pressure(memory=6.0, memory_full=6.0)), "memory_pressure"),
        (HostFigures(swap_in_bytes_s=5e6), None),
        (HostFigures(swap_in_bytes_s=20e6), "memory_pressure"),
        (HostFigures(processes=[HostProcess(MONITOR, 95.0)]), None),
    ],
)
def test_a_host_is_marked_where_a_verdict_says_so_and_nowhere_else(figures: HostFigures, kind: str | None) -> None:
    kinds, words = seen(figures, gpu(OURS))
    assert kinds == ([kind] if kind else [])
    assert bool(words) == bool(kind), words


@pytest.mark.parametrize(
    ("gpus", "held", "strange"),
    [
        (gpu(OURS, GpuProcess(STRANGER, 8 * GB, 30.0)), 20 * GB, True),
        (gpu(OURS, GpuProcess(STRANGER, 8 * GB, 30.0, "mps")), 20 * GB, True),
        (gpu(CHILD, GpuProcess(STRANGER, 8 * GB, 30.0)), 20 * GB, True),
        (gpu(OURS, GpuProcess(STRANGER, GB, 0.0, "graphics")), 20 * GB, True),
        (gpu(OURS, GpuProcess(STRANGER, 200 << 20, 0.0, "graphics")), 20 * GB, False),
        (gpu(OURS, GpuProcess(STRANGER, 10 << 20, 0.0)), 20 * GB, False),
        (gpu(OURS, GpuProcess(LAUNCHER, GB, 0.0)), 20 * GB, False),
        (gpu(OURS, GpuProcess(MONITOR, GB, 0.0)), 20 * GB, False),
        (gpu(GpuProcess(STRANGER, 8 * GB)), None, False),  # it may be the rank itself, by the host's numbers
        (gpu(used=27 * GB), 20 * GB, True),
        (gpu(used=24 * GB), 20 * GB, False),
        (gpu(used=27 * GB), 0, False),
    ],
)
def test_a_stranger_on_a_gpu_is_one_for_both(gpus: list[GpuFigures], held: int | None, strange: bool) -> None:
    kinds, words = seen(HostFigures(), gpus, held)
    assert kinds == (["gpu_shared"] if strange else [])
    assert bool(words) == strange, words


def test_a_launcher_and_a_monitor_are_called_by_their_names() -> None:
    made: Any = snapshot(Made(ranks=1, per_node=1, gpu=True))
    (node,) = made.nodes
    parent = (node.gpus[0].processes[0].process).parents[0]
    processes = [HostProcess(Process(parent, [1], "me", "torchrun"), 95.0), HostProcess(MONITOR, 95.0)]

    figures = msgspec.structs.replace(node.figures, processes=processes)
    shown = replace(made, nodes=(replace(node, figures=figures),))
    lines = [
        line.split() for line in text_of(host_page(ViewState(shown, LOOKS["ascii"]), 0, 120, named_first=True).lines)
    ]
    assert ["launcher", str(parent)] in [line[:2] for line in lines]
    assert ["monitor", "8124"] in [line[:2] for line in lines]
    assert summarise_host(shown.nodes[0], shown.ranks) == []
    assert gpu_states(shown.ranks, shown.nodes[0])[0].foreign_processes == []
