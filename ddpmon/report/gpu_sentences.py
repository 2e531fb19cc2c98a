"""Sentences on the GPUs of the ranks: who is on them, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping

from ddpmon.diagnose.alert import Alert, Measures
from ddpmon.diagnose.contention.gpu_health import GpuErrorMeasures, GpuThrottledMeasures, PcieMeasures
from ddpmon.diagnose.contention.gpu_sharing import (
    GpuContextMeasures,
    GpuDoubledMeasures,
    GpuHiddenMeasures,
    GpuLeftoverMeasures,
    GpuSharedMeasures,
)
from ddpmon.diagnose.torch_memory import GpuMemoryGrowthMeasures, GpuMemoryUnevenMeasures
from ddpmon.format import age, plural, size
from ddpmon.report.tense import during, tense
from ddpmon.report.wording import (
    Evidence,
    Sentence,
    Words,
    clean,
    culprit_evidence,
    culprit_names,
    does,
    format_ranks,
    host_name,
    host_of,
    is_host_name,
    on_host,
)
from ddpmon.run.limits import SM_PCT, gpu_faults
from ddpmon.shell_command import ShellCommand


def _shared(m: GpuSharedMeasures, alert: Alert) -> Words:
    name, several, s = culprit_names(m.culprits), m.gpus > 1, "" if len(m.culprits) > 1 else "s"
    is_busy = m.sm_pct is not None and m.sm_pct >= SM_PCT
    share = f"{m.sm_pct:.0f} % of" if is_busy else f"{size(m.memory_bytes)} on"
    uses = f"{tense(alert, f'use{s}' if is_busy else f'hold{s}')} {share}"
    training = f"another training {tense(alert, 'uses')} the same GPUs: " if several else ""
    return Words(
        f"{training}{name} {uses} the GPU{'s' if several else ''} of {format_ranks(alert.ranks)} ({host_name(alert)})",
        because=f"a shared GPU: {name} {uses} its GPU",
        advice="ask its owner to move to another GPU, or request exclusive GPUs from the scheduler",
        evidence={
            **culprit_evidence(m.culprits),
            "memory_bytes": m.memory_bytes,
            "gpus": m.gpus,
            **({} if m.sm_pct is None else {"sm_pct": m.sm_pct}),
        },
    )


def _leftover(m: GpuLeftoverMeasures, alert: Alert) -> Words:
    name, whose = culprit_names(m.culprits), f"{format_ranks(alert.ranks)} ({host_name(alert)})"
    return Words(
        f"{size(m.memory_bytes)} on the GPU of {whose} {tense(alert, 'are')} held by {name}, "
        "idle and probably a leftover of an earlier run",
        because=f"GPU memory held by {name}",
        advice=("if it is yours and no longer needed, end it", *_kill(host_of(alert), m.culprits[0].pid)),
        evidence={**culprit_evidence(m.culprits), "memory_bytes": m.memory_bytes, "gpus": m.gpus},
    )


def _kill(host: str, pid: int) -> tuple[ShellCommand, ...]:
    """The command for that, with a colon; none on an unknown host, nor for a number that means more than a process."""
    return (on_host(host, f"kill {pid}", "foreign", lead=": "),) if pid > 1 and is_host_name(host) else ()


def _hidden(m: GpuHiddenMeasures, alert: Alert) -> Words:
    foreign, whose = size(m.foreign_bytes), f"{format_ranks(alert.ranks)} ({host_name(alert)})"
    are = tense(alert, "are")
    return Words(
        f"{foreign} on the GPU of {whose} {tense(alert, 'do')} not belong to this run: the processes {are} not visible "
        f"from here (a container?), only their memory {tense(alert, 'is')}",
        because=f"a shared GPU: {foreign} on its GPU {tense(alert, 'belong')} to processes that {are} not visible from "
        "here",
        advice=(
            "see whose processes these are, outside the container: ",
            on_host(host_of(alert), f"nvidia-smi -i {m.gpu_index}"),
        ),
        evidence={
            "memory_bytes": m.foreign_bytes,
            "memory_used": m.used_bytes,
            "ours_bytes": m.used_bytes - m.foreign_bytes,
        },
    )


def _doubled(m: GpuDoubledMeasures, alert: Alert) -> Words:
    said = f"{does(alert.ranks, 'share', alert)} one GPU"
    return Words(
        f"{said} ({host_name(alert)})",
        because=f"a GPU with several ranks: {said}",
        advice="give every rank its own GPU: call torch.cuda.set_device(local_rank) before anything else",
        evidence={"ranks_on_it": m.ranks_on_it},
    )


def _context(m: GpuContextMeasures, alert: Alert) -> Words:
    held = size(m.memory_bytes)
    said = f"{does(m.visitors, 'hold', alert)} a context ({held}) on the GPU of {format_ranks(m.owners)}"
    return Words(
        f"{said} ({host_name(alert)})",
        because=f"a GPU with several ranks: {said}",
        advice="call torch.cuda.set_device(local_rank) before the first use of CUDA, and pass map_location to "
        "torch.load",
        evidence={"contexts": len(m.visitors), "memory_bytes": m.memory_bytes},
    )


def _throttled(m: GpuThrottledMeasures, alert: Alert) -> Words:
    reasons = ", ".join(m.reasons)
    said = f"{reasons}, {_against(m, alert)}"
    command = f"nvidia-smi -q -i {m.gpu_index} -d CLOCK,POWER,PERFORMANCE"
    return Words(
        f"the GPU of {format_ranks(alert.ranks)} ({host_name(alert)}) {tense(alert, 'is')} throttled: {said}{_heat(m)}",
        because=f"a throttled GPU: {said}",
        advice=("check its cooling, power limit and power supply: ", on_host(host_of(alert), command)),
        evidence={
            "reasons": reasons,
            **_known(
                sm_clock_mhz=m.sm_clock_mhz,
                peers_clock_mhz=m.peers_clock_mhz,
                temperature_c=m.temperature_c,
                power_w=m.power_w,
                power_limit_w=m.power_limit_w,
                utilization_pct=m.utilization_pct,
            ),
        },
    )


def _against(m: GpuThrottledMeasures, alert: Alert) -> str:
    if not m.is_below_peers:
        return f"while its rank {tense(alert, 'is')} late"
    return f"{m.sm_clock_mhz:,.0f} MHz where its peers {tense(alert, 'run')} at {m.peers_clock_mhz:,.0f} MHz"


def _heat(m: GpuThrottledMeasures) -> str:
    heat = [] if m.temperature_c is None else [f"{m.temperature_c:.0f} °C"]
    if m.power_w is not None:
        heat.append(f"{m.power_w:.0f} W" + (f" of {m.power_limit_w:.0f}" if m.power_limit_w else ""))
    return f" ({', '.join(heat)})" if heat else ""


def _known(**numbers: float | None) -> Evidence:
    return {name: number for name, number in numbers.items() if number is not None}


def _errors(m: GpuErrorMeasures, alert: Alert) -> Words:
    xids, faults = ", ".join(map(str, m.xids)), gpu_faults(m.ecc_uncorrected, m.remapped_rows, m.retired_pages)
    said = ", ".join([*([f"Xid {xids}"] if xids else []), *(f"{count:,} {name}" for name, count in faults.items())])
    command = f"nvidia-smi -q -i {m.gpu_index} -d ECC,ROW_REMAPPER"
    return Words(
        f"the GPU of {format_ranks(alert.ranks)} ({host_name(alert)}) {tense(alert, 'has reported')} errors: {said}",
        because=f"GPU errors: {said}",
        advice=f"take GPU {m.gpu_index} ({clean(m.uuid, 60)}) out of service and have it reset or replaced"
        if m.ends_a_process
        else ("if it repeats, have the GPU checked: ", on_host(host_of(alert), command)),
        evidence={
            **({"xids": xids} if xids else {}),
            **{name.replace(" ", "_").lower(): count for name, count in faults.items()},
        },
    )


def _link(m: PcieMeasures, alert: Alert) -> Words:
    by_width, by_generation = f"x{m.width} instead of x{m.width_max}", f"{m.generation} instead of {m.generation_max}"
    said = by_width if m.degraded == "width" else f"generation {by_generation}"
    return Words(
        f"the GPU of {format_ranks(alert.ranks)} ({host_name(alert)}) {tense(alert, 'is')} connected by PCIe {said}",
        because=f"a degraded PCIe link: its GPU {tense(alert, 'is')} connected by {said}",
        advice=(
            "reseat the GPU or its riser, check the slot's settings and the kernel's log for PCIe errors: ",
            on_host(host_of(alert), "dmesg"),
        ),
        evidence=_known(width=m.width, width_max=m.width_max, generation=m.generation, generation_max=m.generation_max),
    )


def _growth(m: GpuMemoryGrowthMeasures, alert: Alert) -> Words:
    whose = f"rank {m.rank} ({clean(m.host, 60)})"
    when = f" ({during(alert)})" if alert.cleared_at_step is not None else ""
    others = f"; so {tense(alert, 'do')} those of {format_ranks(alert.ranks[1:])}" if alert.ranks[1:] else ""
    full = "" if m.left_s is None else f", so its GPU {_filled(m, m.left_s, alert)}"
    return Words(
        f"the tensors of {whose} {tense(alert, 'have grown')} by {size(m.growth_bytes)} in {m.window_s / 60:.0f} min"
        f"{when}{full}{others}",
        advice="find out what the script keeps from step to step: losses without .item() or .detach(), lists of "
        "outputs, caches; torch.cuda.memory._record_memory_history shows who allocated it",
        evidence=_known(
            growth_bytes=m.growth_bytes,
            over_s=m.window_s,
            allocated_bytes=m.allocated_bytes,
            left_s=m.left_s,
            peak_bytes=m.peak_bytes,
        ),
        tells_end=True,
    )


def _filled(m: GpuMemoryGrowthMeasures, left_s: float, alert: Alert) -> str:
    """When the GPU is full, or of what is over: would have been."""
    if alert.cleared_at_step is not None:
        return f"would have been full within {age(left_s)}"
    return f"is full within {age(left_s)}{_at_peak(m, left_s)}"


def _at_peak(m: GpuMemoryGrowthMeasures, left_s: float) -> str:
    """`, or within 3 h if its peak of 58.0 GiB comes again`; empty where that is no sooner, or nothing is known of it.

    What a step needs beyond what is kept fills the GPU sooner. The peak may also be of one step alone, such as a load.
    """
    if m.peak_bytes is None or m.allocated_bytes is None:
        return ""
    sooner = max(left_s - (m.peak_bytes - m.allocated_bytes) * m.window_s / m.growth_bytes, 0.0)
    said = age(sooner)
    return f", or within {said} if its peak of {size(m.peak_bytes)} comes again" if said != age(left_s) else ""


def _uneven(m: GpuMemoryUnevenMeasures, alert: Alert) -> Words:
    others = f"; {does(alert.ranks[1:], 'need', alert)} more than the others, too" if alert.ranks[1:] else ""
    retried = f", and {plural(m.retries, 'allocation')} had to be tried again" if m.retries else ""
    return Words(
        f"the tensors of rank {m.rank} ({clean(m.host, 60)}) took {size(m.peak_bytes)} at most, those of the others "
        f"{size(m.others_bytes)}{retried}{others}",
        advice="the fullest rank limits the batch: see whether it alone gets longer inputs, evaluates or gathers "
        "results, or loads a checkpoint onto its GPU (torch.load without map_location)",
        evidence={"peak_bytes": m.peak_bytes, "others_bytes": m.others_bytes, "retries": m.retries},
    )


SENTENCES: Mapping[type[Measures], Sentence] = {
    GpuSharedMeasures: _shared,
    GpuLeftoverMeasures: _leftover,
    GpuHiddenMeasures: _hidden,
    GpuDoubledMeasures: _doubled,
    GpuContextMeasures: _context,
    GpuThrottledMeasures: _throttled,
    GpuErrorMeasures: _errors,
    PcieMeasures: _link,
    GpuMemoryGrowthMeasures: _growth,
    GpuMemoryUnevenMeasures: _uneven,
}
