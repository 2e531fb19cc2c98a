"""Synthetic hosts: calm ones, and ones whose GPUs are shared, hot, broken, spinning or unreadable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np

from ddpmon.machine import (
    Disk,
    GpuFigures,
    GpuProcess,
    HostFigures,
    HostProcess,
    Nic,
    Pressure,
    Process,
    ProcessFigures,
    TakenPort,
)
from ddpmon.snapshot import NodeView, Ranks

GB = 1_000_000_000
TRAIN = "python -u train.py --config configs/gpt-large.yaml"
STRANGER = GpuProcess(
    Process(8123, [8100, 1], "bob", "python train.py --lr 3e-4 --data /data/other"), 12_300_000_000, 38.0
)
HOG = HostProcess(Process(9001, [1], "eve", "ffmpeg -i talk.mp4 out.webm"), 780.0, "0-95", 2 * GB, 0)
DISKS = [
    Disk("/data", ["data"], 2000 * GB, 900 * GB, "nvme0n1", 22.0, 0.4, 1.1),
    Disk("/ckpt", ["checkpoints"], 500 * GB, 410 * GB, "nvme1n1", 1.0, 0.2, 0.6),
    Disk("/dev/shm", ["shared memory"], 512 * GB, 500 * GB),
]
NICS = [Nic("eth0", 100_000.0, 1.21e9, 1.19e9, 0, 0)]


def make_gpu(rank: int, per_node: int) -> GpuFigures:
    """A GPU in order, with its rank on it."""
    load = 91.0 + rank * 7 % 8
    return GpuFigures(
        rank % per_node, f"GPU-{rank}", "NVIDIA H200", load, 71 * GB, 150 * GB, 58.0 + rank % 6, 520.0 + rank * 13 % 60,
        700.0, 1755.0, 1980.0, [], 16, 16, 5, 5, 0, 0, 0, [], 18, 18, rank % per_node // 4, None,
        [GpuProcess(Process(4300 + rank, [4200, 1], "ada", TRAIN), 70 * GB, load)], 1,
    )  # fmt: skip


def make_process(local_rank: int, gpu: bool) -> ProcessFigures:
    """A rank's own process."""
    return ProcessFigures(
        98.0, 1_210_000_000, 14, 3.4, 3.9, 12.0, f"{local_rank * 12}-{local_rank * 12 + 11}", 12, 4, 180.0,
        gpu_memory=68 * GB if gpu else None,
    )  # fmt: skip


def make_nodes(
    ranks: Ranks, hosts: Sequence[str], gpu: bool, troubled: tuple[int, ...], hidden: tuple[int, ...]
) -> tuple[NodeView, ...]:
    """One host a name; those in `troubled` and `hidden` in trouble."""
    nodes = []
    for number, host in enumerate(hosts):
        here = tuple(int(rank) for rank in np.flatnonzero(ranks.node == number))
        gpus = tuple(g for rank in here if (g := ranks.gpu[rank]) is not None) if gpu else ()
        node = NodeView(number, host, here, 0.4, make_figures(number, here), gpus, 0.3)
        node = make_trouble(node) if number in troubled else node
        nodes.append(hide(node) if number in hidden else node)
    return tuple(nodes)


def make_figures(number: int, here: Sequence[int]) -> HostFigures:
    """A host in order."""
    ours = [HostProcess(Process(4300 + rank, [4200, 1], "ada", TRAIN), 98.0, None, GB) for rank in here[:3]]
    worker = HostProcess(Process(6001, [4300 + here[0], 4200, 1] if here else [1], "ada", "pt_data_worker"), 61.0)
    return HostFigures(
        41.0 + number % 9, 96, 38.2 + number % 5, 0.0, 312 * GB + number * GB, 2014 * GB, 0, 0.0,
        Pressure(4.0, 0.0, 0.0, 1.0), [*ours, worker], DISKS, NICS, 0.2,
    )  # fmt: skip


def make_trouble(node: NodeView) -> NodeView:
    """Everything at once: strangers, heat, errors, two ranks' worth of waiting, a full disk, pressure, a taken port."""
    changes: dict[int, dict[str, object]] = {
        1: {"utilization_pct": 100.0, "power_w": 180.0},
        2: {"clock_reasons": ["software power cap"], "power_w": 699.0},
        3: {"processes": [*(node.gpus[3].processes or ()), STRANGER] if len(node.gpus) > 3 else [], "process_count": 2,
            "memory_used": 84 * GB},
        5: {"clock_reasons": ["hardware thermal", "hardware slowdown"], "sm_clock_mhz": 1110.0, "temperature_c": 89.0},
        6: {"xids": [79], "ecc_uncorrected": 2},
        7: {"utilization_pct": None, "power_w": None, "sm_clock_mhz": None, "nvlinks_up": 17,
            "unread": {"utilization_pct": "not supported", "power_w": "no permission"}},
    }  # fmt: skip
    gpus = tuple(msgspec.structs.replace(gpu, **changes.get(gpu.index, {})) for gpu in node.gpus)
    figures = msgspec.structs.replace(
        node.figures,
        memory_used=1960 * GB,
        swap_used=3 * GB,
        swap_in_bytes_s=24e6,
        pressure=Pressure(12.0, 12.0, 2.0, 34.0, 20.0),
        processes=[HOG, *node.figures.processes],
        disks=[DISKS[0], msgspec.structs.replace(DISKS[1], free=9 * GB), DISKS[2]],
        nics=[Nic("eth0", 100_000.0, 1.21e9, 1.19e9, 12, 340)],
        ports=[TakenPort(29500, "the run's own store", Process(777, [1], "bob", "python serve.py"))],
        unread={"steal_pct": "no /proc/stat"},
    )
    return replace(node, gpus=gpus, figures=figures, notes=("the GPU sensor took 2 s and is read every 4 s",))


def hide(node: NodeView) -> NodeView:
    """As in a container: no process is seen, and GPU 2 holds memory that nobody explains."""
    gpus = tuple(
        msgspec.structs.replace(gpu, processes=[], process_count=0, memory_used=(96 if gpu.index == 2 else 70) * GB)
        for gpu in node.gpus
    )
    return replace(node, gpus=gpus)
