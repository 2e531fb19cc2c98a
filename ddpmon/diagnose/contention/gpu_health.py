"""GPUs in trouble: low clocks, errors, slow links."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ddpmon.diagnose.alert import Measures
from ddpmon.diagnose.contention.host_state import Host, RunContext, is_loaded
from ddpmon.diagnose.contention.symptom import Symptom
from ddpmon.diagnose.contention_policy import CONTENTION, GPU
from ddpmon.diagnose.kinds import COMPUTES
from ddpmon.machine import GpuFigures
from ddpmon.run.limits import HELD_DOWN, POWER_CAP, is_narrow

_LOWERED = HELD_DOWN | {POWER_CAP}
# Xid numbers (NVIDIA's Xid catalog). 48: uncorrectable ECC error. 64: a remapped row could not be recorded. 79: the GPU
# has fallen off the bus. 94, 95: contained and uncontained ECC error. 119, 120: the GSP does not answer, or has failed.
_ENDS_A_PROCESS = frozenset({48, 64, 79, 94, 95, 119, 120})
_REMAP = 63  # the Xid number of a remapped row that was recorded
Degraded = Literal["width", "generation"]


class GpuThrottledMeasures(Measures, frozen=True):
    """Heat, power or the hardware lowers the clocks of a rank's GPU.

    Attributes:
        gpu_index: the GPU's number on its host.
        reasons: what lowers them, as `ddpmon.machine.CLOCK_REASONS` names it.
        is_below_peers: its clock is lower than that of its peers; if not, its rank computes late.
        sm_clock_mhz: its SM clock in MHz.
        peers_clock_mhz: that of the other GPUs of its model under load, in the middle, in MHz.
        temperature_c: in degrees Celsius.
        power_w, power_limit_w: what it draws and may draw, in watts.
        utilization_pct: the percent of the time that it is at work.
    """

    gpu_index: int
    reasons: tuple[str, ...]
    is_below_peers: bool
    sm_clock_mhz: float | None
    peers_clock_mhz: float | None
    temperature_c: float | None
    power_w: float | None
    power_limit_w: float | None
    utilization_pct: float | None


class GpuErrorMeasures(Measures, frozen=True):
    """A rank's GPU, or the board of its MIG instance, has reported errors since the run began.

    Attributes:
        gpu_index: the GPU's number on its host.
        uuid: its UUID.
        xids: the critical Xid errors.
        ecc_uncorrected, remapped_rows, retired_pages: how many; 0 where they are unknown.
        ends_a_process: these errors end the process on the GPU.
    """

    gpu_index: int
    uuid: str
    xids: tuple[int, ...]
    ecc_uncorrected: int
    remapped_rows: int
    retired_pages: int
    ends_a_process: bool


class PcieMeasures(Measures, frozen=True):
    """The PCIe link of a rank's GPU is slower than it can be.

    Attributes:
        degraded: which of the two is lower than it can be.
        width, width_max: the lanes that it uses, and those that it could use.
        generation, generation_max: the PCIe generation that it uses, and the one that it could use.
    """

    degraded: Degraded
    width: int | None
    width_max: int | None
    generation: int | None
    generation_max: int | None


def boards(host: Host, context: RunContext) -> list[Symptom]:
    """All that is wrong with the GPUs of the host's ranks."""
    symptoms: list[Symptom] = []
    for gpu in host.gpus:
        if gpu.clock_reasons and not _LOWERED.isdisjoint(gpu.clock_reasons):
            symptoms += _throttled(host, gpu, context)
        if gpu.pcie_width != gpu.pcie_width_max or gpu.pcie_generation != gpu.pcie_generation_max:
            symptoms += _narrow(host, gpu)
    for gpu in host.frame.gpus:
        if gpu.xids or gpu.ecc_uncorrected or gpu.remapped_rows or gpu.retired_pages:
            symptoms += _errors(host, gpu)
    return symptoms


def _throttled(host: Host, gpu: GpuFigures, context: RunContext) -> list[Symptom]:
    """Clocks held down, where they are below the peers', or a hardware reason meets a rank that computes late.

    A power cap at full load, with clocks like everybody's, is how a GPU works.
    """
    ranks, clock, reasons = host.on[gpu.uuid], gpu.sm_clock_mhz, gpu.clock_reasons or ()
    near_top = clock is None or clock >= GPU.low_clock_ratio * (gpu.sm_clock_max_mhz or 1e9)
    peers = None if near_top else context.peers_clock.get(gpu.uuid)
    below = peers is not None and clock is not None and clock < GPU.low_clock_ratio * peers
    if not below and (HELD_DOWN.isdisjoint(reasons) or not _is_late(ranks, context)):
        return []
    return [
        Symptom(
            kind="gpu_throttled",
            source=("gpu", gpu.uuid),
            about=gpu.uuid,
            ranks=tuple(ranks),
            measures=_throttling(gpu, peers, below=below),
        )
    ]


def _is_late(ranks: Sequence[int], context: RunContext) -> bool:
    return any(context.late.get(rank) in COMPUTES for rank in ranks) or context.slower in {"", *COMPUTES}


def _throttling(gpu: GpuFigures, peers: float | None, *, below: bool) -> GpuThrottledMeasures:
    return GpuThrottledMeasures(
        gpu_index=gpu.index,
        reasons=tuple(reason for reason in gpu.clock_reasons or () if reason in _LOWERED),
        is_below_peers=below,
        sm_clock_mhz=gpu.sm_clock_mhz,
        peers_clock_mhz=peers,
        temperature_c=gpu.temperature_c,
        power_w=gpu.power_w,
        power_limit_w=gpu.power_limit_w,
        utilization_pct=gpu.utilization_pct,
    )


def _errors(host: Host, gpu: GpuFigures) -> list[Symptom]:
    """Errors since the start, on a rank's GPU or the board that its MIG instance is part of."""
    instances = [other.uuid for other in host.gpus if other.board == gpu.uuid]
    ranks = list(dict.fromkeys(rank for uuid in (gpu.uuid, *instances) for rank in host.on.get(uuid, ())))
    if not ranks:
        return []
    measures = _faults(gpu)
    return [
        Symptom(
            kind="gpu_errors",
            about=gpu.uuid,
            ranks=tuple(ranks),
            measures=measures,
            consecutive=CONTENTION.sufficient_readings,
            threat="critical" if measures.ends_a_process else "warning",
        )
    ]


def _faults(gpu: GpuFigures) -> GpuErrorMeasures:
    xids = set(gpu.xids or ())
    return GpuErrorMeasures(
        gpu_index=gpu.index,
        uuid=gpu.uuid,
        xids=tuple(gpu.xids or ()),
        ecc_uncorrected=gpu.ecc_uncorrected or 0,
        remapped_rows=gpu.remapped_rows or 0,
        retired_pages=gpu.retired_pages or 0,
        ends_a_process=bool(xids & _ENDS_A_PROCESS) or (_REMAP in xids and bool(gpu.remapped_rows)),
    )


def _narrow(host: Host, gpu: GpuFigures) -> list[Symptom]:
    """A link narrower than it could be, or, under load for long, of a lower generation: at idle that saves power."""
    generation, best = gpu.pcie_generation, gpu.pcie_generation_max
    if is_narrow(gpu) and is_loaded(gpu, GPU.width_load_pct):
        return [_link(host, gpu, "width", CONTENTION.confirming_readings)]
    if generation and best and generation < best and is_loaded(gpu, GPU.generation_load_pct):
        consecutive = GPU.generation_frames if gpu.slow_reads is None else CONTENTION.confirming_readings
        return [_link(host, gpu, "generation", consecutive)]
    return []


def _link(host: Host, gpu: GpuFigures, degraded: Degraded, consecutive: int) -> Symptom:
    return Symptom(
        kind="pcie_degraded",
        about=(degraded, gpu.uuid),
        ranks=tuple(host.on[gpu.uuid]),
        consecutive=consecutive,
        source=("link", gpu.uuid),
        measures=PcieMeasures(
            degraded=degraded,
            width=gpu.pcie_width,
            width_max=gpu.pcie_width_max,
            generation=gpu.pcie_generation,
            generation_max=gpu.pcie_generation_max,
        ),
    )
