"""From where on a host's figures are trouble, for the verdicts and the screens alike."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ddpmon.machine import Disk, GpuFigures, GpuProcess, Pressure, ProcessFigures
from ddpmon.run.process_roles import owner_of

SHM = "/dev/shm"
FULL = 0.95  # of a limit of memory
SWAP_IN_S = 10 << 20  # bytes
RETRANSMITS = 10.0  # of a thousand segments
TAKES_PCT = 20.0  # of a core: who uses less hinders nobody
CPU_STALL_PCT = 30.0  # of the time that some task waits for a CPU
_MEMORY_PCT, _MEMORY_FULL_PCT, _IO_PCT = 10.0, 5.0, 20.0
_LOW_SHARE, _LOW = 0.05, 10 << 30
_SHM_SHARE, _SHM_LITTLE = 0.10, 1 << 30
_ONLY_READ = re.compile(r"(?:training |train |validation |input )?data(?:[ -]?sets?)?", re.IGNORECASE)
POWER_CAP = "software power cap"
HELD_DOWN = frozenset({"hardware slowdown", "software thermal", "hardware thermal", "power brake"})  # clocks of a GPU
SM_PCT = 1.0  # a process that uses less of a GPU is idle
_HELD, _DRAWN = 64 << 20, 512 << 20  # a desktop draws a little on every GPU
_CONTEXT, _UNKNOWN_USE, _UNKNOWN_SHARE = 1 << 30, 2 << 30, 0.05
_NCCL = 3 << 29  # NCCL's buffers of one process group, at most, where it connects a rank to many by many channels


def memory_stall(pressure: Pressure | None) -> float | None:
    """The percent of the time that tasks wait for memory, where that is trouble."""
    if pressure is None:
        return None
    some, full = pressure.memory or 0.0, pressure.memory_full or 0.0
    return max(some, full) if some >= _MEMORY_PCT or full >= _MEMORY_FULL_PCT else None


def io_stall(pressure: Pressure | None) -> float | None:
    """The percent of the time that tasks wait for disks, where that is trouble."""
    share = 0.0 if pressure is None else max(pressure.io or 0.0, pressure.io_full or 0.0)
    return share if share >= _IO_PCT else None


def is_low(disk: Disk) -> bool:
    """Whether a file system is nearly full; shared memory must hold whole batches, so it is earlier."""
    if not disk.total or disk.free is None:
        return False
    if disk.path == SHM:
        return disk.free < _SHM_SHARE * disk.total and disk.free < _SHM_LITTLE
    return disk.free < _LOW_SHARE * disk.total and disk.free < _LOW


def is_only_read(disk: Disk) -> bool:
    """Whether the run has nothing there but its data, which may well fill a disk."""
    return bool(disk.uses) and all(_ONLY_READ.fullmatch(use.strip()) for use in disk.uses)


def gpu_faults(ecc_uncorrected: int | None, remapped_rows: int | None, retired_pages: int | None) -> dict[str, int]:
    """The counts by which a GPU says that its memory is broken, by name, those above 0."""
    counts = {
        "uncorrected ECC errors": ecc_uncorrected,
        "remapped rows": remapped_rows,
        "retired pages": retired_pages,
    }
    return {name: count for name, count in counts.items() if count}


def is_narrow(gpu: GpuFigures) -> bool:
    """Whether a GPU uses fewer PCIe lanes than it could."""
    return bool(gpu.pcie_width and gpu.pcie_width_max and gpu.pcie_width < gpu.pcie_width_max)


def is_at_work(on: GpuProcess) -> bool:
    """Whether a process holds or does something worth a word on a GPU, as far as is known."""
    least = _DRAWN if on.kind == "graphics" else _HELD
    return (on.memory or 0) >= least or (on.sm_pct or 0.0) >= SM_PCT


def is_hidden(gpu: GpuFigures, ranks: Sequence[int], pids: Mapping[int, int]) -> bool:
    """Whether none of its ranks is among a GPU's processes: in a container the numbers may be the host's, or hidden.

    Args:
        gpu: where they are.
        ranks: those on it.
        pids: process number -> rank, of the ranks on its host.
    """
    return {owner_of(on.process, pids) for on in gpu.processes or ()}.isdisjoint(ranks)


def foreign_memory(gpu: GpuFigures, ranks: Sequence[ProcessFigures]) -> int | None:
    """Device bytes that neither torch and NCCL hold for the ranks on a GPU nor their contexts explain.

    Args:
        gpu: where they are.
        ranks: their processes. One whose torch holds nothing yet may well have its context by now.

    Returns:
        The bytes, None where unknown.
    """
    held = [rank.gpu_memory for rank in ranks]
    if gpu.memory_used is None or not held or not all(held):
        return None
    around = sum(_CONTEXT + _NCCL * (1 if rank.nccl_groups is None else rank.nccl_groups) for rank in ranks)
    return max(0, gpu.memory_used - sum(each or 0 for each in held) - around)


def is_crowded(gpu: GpuFigures, foreign: int | None) -> bool:
    """Whether so much memory that is not ours means that somebody else is there."""
    return foreign is not None and foreign >= max(_UNKNOWN_USE, _UNKNOWN_SHARE * (gpu.memory_total or 0))
