"""What is wrong with a rank's GPU itself: clocks held down, errors, a narrow PCIe link."""

from __future__ import annotations

from collections.abc import Sequence

from ddpmon.diagnose.clash.host import Host
from ddpmon.diagnose.clash.sign import LOOKS, Evidence, Sign
from ddpmon.diagnose.clash.view import View, is_loaded
from ddpmon.diagnose.kinds import COMPUTES
from ddpmon.diagnose.wording import clean, on_host, who
from ddpmon.machine import GpuFigures

POWER_CAP = "software power cap"
HELD_DOWN = frozenset({"hardware slowdown", "software thermal", "hardware thermal", "power brake"})
_LOWERED = HELD_DOWN | {POWER_CAP}
_LOW = 0.9
_ENDS_A_PROCESS = frozenset({48, 64, 79, 94, 95, 119, 120})
_REMAP = 63
_AT_WORK_PCT, _BUSY_PCT, _LONG_LOOKS = 20.0, 80.0, 10


def boards(host: Host, view: View) -> list[Sign]:
    """All that is wrong with the GPUs of the host's ranks."""
    signs: list[Sign] = []
    for gpu in host.gpus:
        if gpu.clock_reasons and not _LOWERED.isdisjoint(gpu.clock_reasons):
            signs += _throttled(host, gpu, view)
        if gpu.pcie_width != gpu.pcie_width_max or gpu.pcie_generation != gpu.pcie_generation_max:
            signs += _narrow(host, gpu)
    for gpu in host.frame.gpus:
        if gpu.xids or gpu.ecc_uncorrected or gpu.remapped_rows or gpu.retired_pages:
            signs += _errors(host, gpu)
    return signs


def _throttled(host: Host, gpu: GpuFigures, view: View) -> list[Sign]:
    """Clocks held down, where they are below the peers', or a hardware reason meets a rank that computes late.

    A power cap at full load, with clocks like everybody's, is how a GPU works.
    """
    ranks, clock, reasons = host.on[gpu.uuid], gpu.sm_clock_mhz, gpu.clock_reasons or ()
    near_top = clock is None or clock >= _LOW * (gpu.sm_clock_max_mhz or 1e9)
    peers = None if near_top else view.peers_clock.get(gpu.uuid)
    below = peers is not None and clock is not None and clock < _LOW * peers
    if not below and (HELD_DOWN.isdisjoint(reasons) or not _is_late(ranks, view)):
        return []
    said = ", ".join(reason for reason in reasons if reason in _LOWERED)
    against = f"{clock:,.0f} MHz where its peers run at {peers:,.0f} MHz" if below else "while its rank is late"
    return [
        Sign(
            kind="gpu_throttled",
            source=("gpu", gpu.uuid),
            about=gpu.uuid,
            ranks=tuple(ranks),
            evidence=_state(gpu, said, peers),
            summary=f"the GPU of {who(ranks)} ({host.name}) is throttled: {said}, {against}{_heat(gpu)}",
            because=f"a throttled GPU: {said}, {against}",
            advice="check its cooling, power limit and power supply: "
            + on_host(host.frame.host, f"nvidia-smi -q -i {gpu.index} -d CLOCK,POWER,PERFORMANCE"),
        )
    ]


def _is_late(ranks: Sequence[int], view: View) -> bool:
    return any(view.late.get(rank) in COMPUTES for rank in ranks) or view.slower in {"", *COMPUTES}


def _heat(gpu: GpuFigures) -> str:
    heat = [f"{gpu.temperature_c:.0f} °C"] if gpu.temperature_c is not None else []
    if gpu.power_w is not None:
        heat.append(f"{gpu.power_w:.0f} W" + (f" of {gpu.power_limit_w:.0f}" if gpu.power_limit_w else ""))
    return f" ({', '.join(heat)})" if heat else ""


def _state(gpu: GpuFigures, reasons: str, peers: float | None) -> Evidence:
    figures = {
        "sm_clock_mhz": gpu.sm_clock_mhz,
        "peers_clock_mhz": peers,
        "temperature_c": gpu.temperature_c,
        "power_w": gpu.power_w,
        "power_limit_w": gpu.power_limit_w,
        "utilization_pct": gpu.utilization_pct,
    }
    return {"reasons": reasons, **{name: value for name, value in figures.items() if value is not None}}


def _errors(host: Host, gpu: GpuFigures) -> list[Sign]:
    """Errors since the start, on a rank's GPU or the board that its MIG instance is part of."""
    instances = [other.uuid for other in host.gpus if other.board == gpu.uuid]
    ranks = list(dict.fromkeys(rank for uuid in (gpu.uuid, *instances) for rank in host.on.get(uuid, ())))
    if not ranks:
        return []
    said, evidence = _counts(gpu)
    xids = set(gpu.xids or ())
    ends = bool(xids & _ENDS_A_PROCESS) or (_REMAP in xids and bool(gpu.remapped_rows))
    return [
        Sign(
            kind="gpu_errors",
            about=gpu.uuid,
            ranks=tuple(ranks),
            evidence=evidence,
            looks=1,
            summary=f"the GPU of {who(ranks)} ({host.name}) has reported errors: {', '.join(said)}",
            because=f"GPU errors: {', '.join(said)}",
            threat="critical" if ends else "warning",
            advice=f"take GPU {gpu.index} ({clean(gpu.uuid, 60)}) out of service and have it reset or replaced"
            if ends
            else "if it repeats, have the GPU checked: "
            + on_host(host.frame.host, f"nvidia-smi -q -i {gpu.index} -d ECC,ROW_REMAPPER"),
        )
    ]


def _counts(gpu: GpuFigures) -> tuple[Sequence[str], Evidence]:
    xids = ", ".join(str(xid) for xid in gpu.xids or ())
    counts = {
        "uncorrected ECC errors": gpu.ecc_uncorrected,
        "remapped rows": gpu.remapped_rows,
        "retired pages": gpu.retired_pages,
    }
    said = [f"Xid {xids}"] if xids else []
    said += [f"{count:,} {name}" for name, count in counts.items() if count]
    evidence: Evidence = {name.replace(" ", "_").lower(): count for name, count in counts.items() if count}
    return said, {"xids": xids, **evidence} if xids else evidence


def _narrow(host: Host, gpu: GpuFigures) -> list[Sign]:
    """A link narrower than it could be, or, under load for long, of a lower generation: at idle that saves power."""
    width, widest = gpu.pcie_width, gpu.pcie_width_max
    generation, best = gpu.pcie_generation, gpu.pcie_generation_max
    if width and widest and width < widest and is_loaded(gpu, _AT_WORK_PCT):
        said, looks, about = f"x{width} instead of x{widest}", LOOKS, "width"
    elif generation and best and generation < best and is_loaded(gpu, _BUSY_PCT):
        said, looks, about = f"generation {generation} instead of {best}", _LONG_LOOKS, "generation"
        looks = looks if gpu.slow_reads is None else LOOKS  # these are ten seconds apart
    else:
        return []
    ranks = host.on[gpu.uuid]
    figures = {"width": width, "width_max": widest, "generation": generation, "generation_max": best}
    return [
        Sign(
            kind="pcie_degraded",
            about=(about, gpu.uuid),
            ranks=tuple(ranks),
            looks=looks,
            source=("link", gpu.uuid),
            evidence={name: value for name, value in figures.items() if value is not None},
            summary=f"the GPU of {who(ranks)} ({host.name}) is connected by PCIe {said}",
            because=f"a degraded PCIe link: its GPU is connected by {said}",
            advice="reseat the GPU or its riser, check the slot's settings and the kernel's log for PCIe errors: "
            + on_host(host.frame.host, "dmesg"),
        )
    ]
