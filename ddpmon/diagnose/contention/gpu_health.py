"""GPUs in trouble: foreign processes, other ranks, leftovers, low clocks, errors, slow links."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ddpmon.diagnose.contention.host_state import Host, View, is_loaded
from ddpmon.diagnose.contention.symptom import LOOKS, Evidence, Symptom, culprit, labels
from ddpmon.diagnose.kinds import COMPUTES
from ddpmon.diagnose.wording import clean, does, format_ranks, is_host_name, on_host
from ddpmon.format import size
from ddpmon.machine import GpuFigures, GpuProcess, Process
from ddpmon.run.limits import (
    HELD_DOWN,
    POWER_CAP,
    SM_PCT,
    foreign_memory,
    gpu_faults,
    is_at_work,
    is_crowded,
    is_hidden,
    is_narrow,
)

_ITS_LOOKS = 8
On = tuple[GpuFigures, GpuProcess]
_LOWERED = HELD_DOWN | {POWER_CAP}
_LOW = 0.9
_ENDS_A_PROCESS = frozenset({48, 64, 79, 94, 95, 119, 120})
_REMAP = 63
_AT_WORK_PCT, _BUSY_PCT, _LONG_LOOKS = 20.0, 80.0, 10


def sharing(host: Host, _view: View) -> list[Symptom]:
    """Foreign processes on the ranks' GPUs, and ranks on each other's."""
    symptoms, pids = list[Symptom](), host.pids
    foreign: dict[object, list[On]] = defaultdict(list)
    for gpu in host.gpus:
        ranks, processes = host.on[gpu.uuid], gpu.processes
        if processes and len(processes) == len(ranks) == 1 and pids.get(processes[0].process.pid) == ranks[0]:
            continue
        if is_hidden(gpu, ranks, pids):
            symptoms += _hidden(host, gpu, ranks)
        elif not {pids.get(each.process.pid) for each in processes or ()}.issubset(ranks):
            symptoms += _visitors(host, gpu)
            for each in processes or ():
                if each.process.pid not in host.pids and is_at_work(each) and not host.is_ours(each.process):
                    foreign[_who_runs(each)].append((gpu, each))
    symptoms += [_foreign_job(host, key, found) for key, found in foreign.items()]
    return symptoms + _doubled(host) if len(host.on) < len(host.frames) else symptoms


def _who_runs(each: GpuProcess) -> object:
    """What the processes of one job have in common; the number of one whose job is unknown."""
    return _job(each.process) or each.process.pid


def _job(process: Process) -> tuple[str | None, str] | None:
    """The user, and the command if it names a script or module; None if not: any two `python -c` look alike."""
    match (process.command or "").split():
        case [_, "-m", _, *_]:
            named = True
        case [_, script, *_]:
            named = not script.startswith("-")
        case _:
            named = False
    return (process.user, process.command) if named and process.command else None


def _foreign_job(host: Host, key: object, found: Sequence[On]) -> Symptom:
    ranks = tuple(sorted({rank for gpu, _ in found for rank in host.on[gpu.uuid]}))
    processes = list({each.process.pid: each.process for _, each in found}.values())
    memory = sum(each.memory or 0 for _, each in found)
    shares = [each.sm_pct for _, each in found if each.sm_pct is not None]
    evidence = {**culprit(processes), "memory_bytes": memory, "gpus": len({gpu.uuid for gpu, _ in found})}
    held, name = size(memory), labels(processes)
    if all(_left_behind(host, each) for _, each in found):
        return Symptom(
            kind="gpu_leftover",
            about=key,
            ranks=ranks,
            source=("gpu", found[0][0].uuid),
            looks=_ITS_LOOKS,
            evidence=evidence,
            summary=f"{held} on the GPU of {format_ranks(ranks)} ({host.name}) are held by {name}, idle and probably a "
            f"leftover of an earlier run",
            because=f"GPU memory held by {name}",
            advice=f"if it is yours and no longer needed, end it{_kill(host, processes[0].pid)}",
        )
    if shares:
        evidence["sm_pct"] = max(shares)
    s = "" if len(processes) > 1 else "s"
    uses = f"use{s} {max(shares):.0f} % of" if shares and max(shares) >= SM_PCT else f"hold{s} {held} on"
    several = "another training uses the same GPUs: " if len({gpu.uuid for gpu, _ in found}) > 1 else ""
    return Symptom(
        kind="gpu_shared",
        about=key,
        ranks=ranks,
        source=("gpu", found[0][0].uuid),
        evidence=evidence,
        summary=f"{several}{name} {uses} the GPU{'s' if several else ''} of {format_ranks(ranks)} ({host.name})",
        because=f"a shared GPU: {name} {uses} its GPU",
        advice="ask its owner to move to another GPU, or request exclusive GPUs from the scheduler",
    )


def _kill(host: Host, pid: int) -> str:
    """The command for that, with a colon; none on an unknown host, nor for a number that means more than a process."""
    return f": {on_host(host.frame.host, f'kill {pid}')}" if pid > 1 and is_host_name(host.frame.host) else ""


def _left_behind(host: Host, each: GpuProcess) -> bool:
    """Idle, and an orphan, or an older process of our ranks' own script or module."""
    if each.sm_pct is None or each.sm_pct >= SM_PCT:
        return False
    process = each.process
    if process.parents and process.parents[0] == 1:
        return True
    ours = [
        other.process
        for gpu in host.gpus
        for other in gpu.processes or ()
        if other.process.pid in host.pids and _job(process) is not None and _job(other.process) == _job(process)
    ]
    starts = [other.started_at for other in ours if other.started_at is not None]
    return process.started_at is not None and bool(starts) and process.started_at < min(starts)


def _hidden(host: Host, gpu: GpuFigures, ranks: Sequence[int]) -> list[Symptom]:
    """Memory that is not ours, where the processes cannot be told apart."""
    foreign, used = foreign_memory(gpu, [host.figures(rank) for rank in ranks]), gpu.memory_used
    if foreign is None or used is None or not is_crowded(gpu, foreign):
        return []
    said = f"{size(foreign)} on the GPU of {format_ranks(ranks)} ({host.name}) do not belong to this run"
    return [
        Symptom(
            kind="gpu_shared",
            about=("memory", gpu.uuid),
            source=("gpu", gpu.uuid),
            ranks=tuple(ranks),
            evidence={"memory_bytes": foreign, "memory_used": used, "ours_bytes": used - foreign},
            summary=f"{said}: the processes are not visible from here (a container?), only their memory is",
            because=f"a shared GPU: {size(foreign)} on its GPU belong to processes that are not visible from here",
            advice="see whose processes these are, outside the container: "
            f"{on_host(host.frame.host, f'nvidia-smi -i {gpu.index}')}",
        )
    ]


def _doubled(host: Host) -> list[Symptom]:
    symptoms = []
    boards = {gpu.board for gpu in host.frame.gpus if gpu.board}  # a rank on a MIG instance may name the whole board
    for uuid, ranks in host.on.items():
        if len(ranks) > 1 and uuid not in boards:
            symptoms.append(
                Symptom(
                    kind="gpu_doubled",
                    about=uuid,
                    ranks=tuple(ranks),
                    evidence={"ranks_on_it": len(ranks)},
                    summary=f"{does(ranks, 'share')} one GPU ({host.name})",
                    because=f"a GPU with several ranks: {does(ranks, 'share')} one GPU",
                    advice="give every rank its own GPU: call torch.cuda.set_device(local_rank) before anything else",
                )
            )
    return symptoms


def _visitors(host: Host, gpu: GpuFigures) -> list[Symptom]:
    """Ranks with a context on another rank's GPU."""
    owners = host.on[gpu.uuid]
    inside = [each for each in gpu.processes or () if host.pids.get(each.process.pid, owners[0]) not in owners]
    if not inside:
        return []
    visitors = sorted({host.pids[each.process.pid] for each in inside})
    held = sum(each.memory or 0 for each in inside)
    said = f"{does(visitors, 'hold')} a context ({size(held)}) on the GPU of {format_ranks(owners)}"
    return [
        Symptom(
            kind="gpu_doubled",
            about=("context", gpu.uuid),
            source=("gpu", gpu.uuid),
            ranks=(*owners, *visitors),
            evidence={"contexts": len(visitors), "memory_bytes": held},
            summary=f"{said} ({host.name})",
            because=f"a GPU with several ranks: {said}",
            advice="call torch.cuda.set_device(local_rank) before the first use of CUDA, and pass map_location to "
            "torch.load",
        )
    ]


def boards(host: Host, view: View) -> list[Symptom]:
    """All that is wrong with the GPUs of the host's ranks."""
    symptoms: list[Symptom] = []
    for gpu in host.gpus:
        if gpu.clock_reasons and not _LOWERED.isdisjoint(gpu.clock_reasons):
            symptoms += _throttled(host, gpu, view)
        if gpu.pcie_width != gpu.pcie_width_max or gpu.pcie_generation != gpu.pcie_generation_max:
            symptoms += _narrow(host, gpu)
    for gpu in host.frame.gpus:
        if gpu.xids or gpu.ecc_uncorrected or gpu.remapped_rows or gpu.retired_pages:
            symptoms += _errors(host, gpu)
    return symptoms


def _throttled(host: Host, gpu: GpuFigures, view: View) -> list[Symptom]:
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
        Symptom(
            kind="gpu_throttled",
            source=("gpu", gpu.uuid),
            about=gpu.uuid,
            ranks=tuple(ranks),
            evidence=_state(gpu, said, peers),
            summary=f"the GPU of {format_ranks(ranks)} ({host.name}) is throttled: {said}, {against}{_heat(gpu)}",
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


def _errors(host: Host, gpu: GpuFigures) -> list[Symptom]:
    """Errors since the start, on a rank's GPU or the board that its MIG instance is part of."""
    instances = [other.uuid for other in host.gpus if other.board == gpu.uuid]
    ranks = list(dict.fromkeys(rank for uuid in (gpu.uuid, *instances) for rank in host.on.get(uuid, ())))
    if not ranks:
        return []
    said, evidence = _counts(gpu)
    xids = set(gpu.xids or ())
    ends = bool(xids & _ENDS_A_PROCESS) or (_REMAP in xids and bool(gpu.remapped_rows))
    return [
        Symptom(
            kind="gpu_errors",
            about=gpu.uuid,
            ranks=tuple(ranks),
            evidence=evidence,
            looks=1,
            summary=f"the GPU of {format_ranks(ranks)} ({host.name}) has reported errors: {', '.join(said)}",
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
    said = [f"Xid {xids}"] if xids else []
    said += [f"{count:,} {name}" for name, count in gpu_faults(gpu).items()]
    evidence: Evidence = {name.replace(" ", "_").lower(): count for name, count in gpu_faults(gpu).items()}
    return said, {"xids": xids, **evidence} if xids else evidence


def _narrow(host: Host, gpu: GpuFigures) -> list[Symptom]:
    """A link narrower than it could be, or, under load for long, of a lower generation: at idle that saves power."""
    width, widest = gpu.pcie_width, gpu.pcie_width_max
    generation, best = gpu.pcie_generation, gpu.pcie_generation_max
    if is_narrow(gpu) and is_loaded(gpu, _AT_WORK_PCT):
        said, looks, about = f"x{width} instead of x{widest}", LOOKS, "width"
    elif generation and best and generation < best and is_loaded(gpu, _BUSY_PCT):
        said, looks, about = f"generation {generation} instead of {best}", _LONG_LOOKS, "generation"
        looks = looks if gpu.slow_reads is None else LOOKS  # these are ten seconds apart
    else:
        return []
    ranks = host.on[gpu.uuid]
    figures = {"width": width, "width_max": widest, "generation": generation, "generation_max": best}
    return [
        Symptom(
            kind="pcie_degraded",
            about=(about, gpu.uuid),
            ranks=tuple(ranks),
            looks=looks,
            source=("link", gpu.uuid),
            evidence={name: value for name, value in figures.items() if value is not None},
            summary=f"the GPU of {format_ranks(ranks)} ({host.name}) is connected by PCIe {said}",
            because=f"a degraded PCIe link: its GPU is connected by {said}",
            advice="reseat the GPU or its riser, check the slot's settings and the kernel's log for PCIe errors: "
            + on_host(host.frame.host, "dmesg"),
        )
    ]
