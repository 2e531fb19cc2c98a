"""Hosts as a check before a run may find them."""

from __future__ import annotations

from typing import Any

from ddpmon.checkup.facts import Check, Facts, Interface
from ddpmon.checkup.report import examine
from ddpmon.machine import Disk, GpuFigures, HostFigures, ProcessFigures

GIB = 1 << 30


def gpu(index: int = 0, **changes: Any) -> GpuFigures:
    """An idle H200."""
    values: dict[str, Any] = {
        "name": "H200",
        "utilization_pct": 0.0,
        "memory_used": GIB // 2,
        "memory_total": 140 * GIB,
        "power_limit_w": 700.0,
        "clock_reasons": ["idle"],
        "pcie_width": 16,
        "pcie_width_max": 16,
        "pcie_generation": 1,
        "pcie_generation_max": 5,
        "ecc_uncorrected": 0,
        "remapped_rows": 0,
        "retired_pages": 0,
        "numa_node": 0,
        "processes": [],
    }
    return GpuFigures(index=index, uuid=f"GPU-{index}", **(values | changes))


def host(**changes: Any) -> HostFigures:
    """A quiet host of 64 CPUs on two NUMA nodes."""
    values: dict[str, Any] = {
        "cpu_count": 64,
        "memory_used": 20 * GIB,
        "memory_total": 512 * GIB,
        "disks": [Disk("/dev/shm", ["shared memory"], 256 * GIB, 250 * GIB), Disk("/", ["x"], 900 * GIB, 400 * GIB)],
        "numa": ["0-31", "32-63"],
    }
    return HostFigures(**(values | changes))


def facts(**changes: Any) -> Facts:
    """A host of 8 idle GPUs on which 8 ranks of 4 threads are planned."""
    values: dict[str, Any] = {
        "host": "node0",
        "ranks": 8,
        "threads": 4,
        "device": "cuda",
        "figures": host(),
        "process": ProcessFigures(cpus="0-63"),
        "gpus": [gpu(index) for index in range(8)],
        "interfaces": [Interface("lo", ["127.0.0.1"]), Interface("ib0", ["10.0.0.5"])],
        "own_address": "10.0.0.5",
        "versions": {"torch": "2.11.0", "NCCL": "2.28.3", "driver": "580.1"},
        "open_files": 1 << 16,
    }
    return Facts(**(values | changes))


def found(*hosts: Facts) -> list[Check]:
    """What is not in order."""
    return [check for check in examine(hosts) if check.level != "ok"]
