"""Sentences on the memory, the disks, the network and the ports of a host."""

from __future__ import annotations

from collections.abc import Mapping

from ddpmon.diagnose.alert import Alert, Measures
from ddpmon.diagnose.contention.memory import (
    CgroupMemoryMeasures,
    HostMemoryMeasures,
    MemoryGrowthMeasures,
    SharedMemoryMeasures,
)
from ddpmon.diagnose.contention.network import NicErrorMeasures, RetransmitMeasures, TakenPortMeasures
from ddpmon.diagnose.contention.storage import DiskLowMeasures, DiskSlowMeasures
from ddpmon.format import age, size
from ddpmon.report.tense import during, tense
from ddpmon.report.wording import (
    Evidence,
    Sentence,
    Words,
    clean,
    culprit_evidence,
    format_ranks,
    host_name,
    host_of,
    is_device_name,
    named,
    on_host,
)
from ddpmon.run.limits import SHM

_USE_LESS_MEMORY = "use fewer DataLoader workers, smaller caches or a larger limit; then find out what grows"
_CHECK_NETWORK = "check the cable, the switch port, duplex, speed and firmware"


def _host_memory(m: HostMemoryMeasures, alert: Alert) -> Words:
    holds = f"; {named(m.culprits[0])} {tense(alert, 'holds')} {size(m.held_bytes)}" if m.culprits else ""
    said = f"{' and '.join(_shortage(m, alert))}{holds}"
    return Words(
        f"{host_name(alert)} {tense(alert, 'is')} short of memory: {said}",
        because=f"memory pressure: {said}",
        advice=_USE_LESS_MEMORY,
        evidence={**_shortage_evidence(m), **culprit_evidence(m.culprits)},
    )


def _shortage(m: HostMemoryMeasures, alert: Alert) -> list[str]:
    said = []
    if m.used_bytes is not None and m.total_bytes:
        said.append(f"{100 * m.used_bytes / m.total_bytes:.0f} % of its memory {tense(alert, 'is')} in use")
    if m.pressure_pct is not None:
        said.append(f"tasks {tense(alert, 'wait')} for memory {m.pressure_pct:.0f} % of the time")
    if m.swap_in_bytes_s is not None:
        said.append(f"{size(m.swap_in_bytes_s)}/s {tense(alert, 'are')} read back from swap")
    return said


def _shortage_evidence(m: HostMemoryMeasures) -> Evidence:
    numbers = {
        "memory_used": m.used_bytes,
        "memory_total": m.total_bytes,
        "pressure_pct": m.pressure_pct,
        "swap_in_bytes_s": m.swap_in_bytes_s,
    }
    return {name: number for name, number in numbers.items() if number is not None}


def _cgroup(m: CgroupMemoryMeasures, alert: Alert) -> Words:
    used = f"{size(m.used_bytes)} of the {size(m.limit_bytes)} that the cgroup allows {tense(alert, 'are')} in use"
    killed = f"{m.oom_kills:,} process{'es were' if m.oom_kills > 1 else ' was'} killed for lack of memory"
    said = " and ".join([*([used] if m.is_nearly_full else []), *([killed] if m.oom_kills else [])])
    return Words(
        f"{format_ranks(alert.ranks)} ({host_name(alert)}): {said}",
        because=f"memory pressure: {said}",
        advice=_USE_LESS_MEMORY,
        evidence={"memory_used": m.used_bytes, "memory_limit": m.limit_bytes, "oom_kills": m.oom_kills},
    )


def _growth(m: MemoryGrowthMeasures, alert: Alert) -> Words:
    is_over = alert.cleared_at_step is not None
    grows = f"{tense(alert, 'grows')} by {size(m.growth_bytes_s)}/s"
    full = f"so the memory {'would have been' if is_over else 'is'} full in {age(m.left_s)}"
    when = f" ({during(alert)})" if is_over else ""
    return Words(
        f"{format_ranks(alert.ranks)} ({host_name(alert)}) {grows}{when}, {full}",
        because=f"memory pressure: it {grows}, {full}",
        advice="find out what this rank keeps: losses with their graphs, caches, copies in DataLoader workers",
        evidence={
            "growth_bytes_s": m.growth_bytes_s,
            "left_s": m.left_s,
            "rss_bytes": m.rss_bytes,
            **culprit_evidence(m.culprits),
        },
        tells_end=True,
    )


def _shared_memory(m: SharedMemoryMeasures, alert: Alert) -> Words:
    said = f"{size(m.free_bytes)} of {size(m.total_bytes)} {tense(alert, 'are')} free in {SHM}"
    who = "DataLoader workers" if m.are_loaders else "child processes of its ranks"
    may = tense(alert, "pass" if m.are_loaders else "may pass")
    with_workers = f", and {m.workers} {who} {may} batches through it" if m.workers else ""
    return Words(
        f"{said} on {host_name(alert)}{with_workers}",
        because=f"low shared memory: {said}",
        advice="enlarge it (docker run --shm-size, a Kubernetes emptyDir in memory), use fewer workers, or remove the "
        "files of dead processes: the run ends with a bus error when it is full",
        evidence={"free": m.free_bytes, "total": m.total_bytes, "workers": m.workers},
    )


def _disk_low(m: DiskLowMeasures, alert: Alert) -> Words:
    path, uses = clean(m.path, 60), ", ".join(clean(use, 30) for use in m.uses)
    said = f"{size(m.free_bytes)} of {size(m.total_bytes)} {tense(alert, 'are')} free on {path}"
    return Words(
        f"{said} on {host_name(alert)}{f' ({uses})' if uses else ''}",
        because=f"a nearly full disk: {said}",
        advice="free some space or keep fewer checkpoints: a checkpoint that does not fit ends the run",
        evidence={"path": path, "free": m.free_bytes, "total": m.total_bytes},
    )


def _disk_slow(m: DiskSlowMeasures, alert: Alert) -> Words:
    path, wait = clean(m.path, 60), tense(alert, "wait")
    said = f"tasks {wait} for disks {m.io_pressure_pct:.0f} % of the time"
    if m.is_busy:
        busy = f"{tense(alert, 'is')} {min(m.busy_pct, 100):.0f} % busy"
        said = f"requests to {path} {wait} {m.wait_ms:.0f} ms, and its disk {busy}"
    return Words(
        f"{host_name(alert)}: {said}",
        because=f"a slow disk: {said}",
        advice=(
            "see what else uses it: ",
            on_host(host_of(alert), "iotop"),
            "; copy the data to a local disk, cache it, or prefetch more",
        ),
        evidence={
            "path": path,
            "wait_ms": m.wait_ms,
            "busy_pct": m.busy_pct,
            "io_pressure_pct": m.io_pressure_pct,
        },
    )


def _nic_errors(m: NicErrorMeasures, alert: Alert) -> Words:
    counts = f"{max(m.errors, 0):,} errors and {max(m.drops, 0):,} drops"
    said = f"{clean(m.name, 30)} of {host_name(alert)} had {counts} within its last {m.frames} frames"
    known = is_device_name(m.name)
    counters = (": ", on_host(host_of(alert), f"ethtool -S {m.name}")) if known else ()
    return Words(
        said,
        because=f"network errors: {said}",
        advice=(_CHECK_NETWORK, *counters),
        evidence={"errors": m.errors, "drops": m.drops},
    )


def _retransmits(m: RetransmitMeasures, alert: Alert) -> Words:
    own, others = m.retransmits_per_1000 / 10, m.others_per_1000 / 10
    segments = f"{own:.1f} % of its TCP segments, the other hosts {others:.1f} %"
    said = f"{host_name(alert)} {tense(alert, 'retransmits')} {segments}"
    return Words(
        said,
        because=f"network errors: {said}",
        advice=_CHECK_NETWORK,
        evidence={"retransmits_per_1000": m.retransmits_per_1000, "others_per_1000": m.others_per_1000},
    )


def _taken_port(m: TakenPortMeasures, alert: Alert) -> Words:
    by = named(m.culprits[0]) if m.culprits else "a process that is not visible from here"
    is_held = f"{tense(alert, 'is')} held by {by}" if m.is_held else "was held by a process that has released it since"
    wanted = clean(m.wanted_for, 60)
    return Words(
        f"port {m.port} on {host_name(alert)}, wanted for {wanted}, {is_held}",
        because=f"a taken port: {m.port} {is_held}",
        advice="change nothing unless a firewall only allows this port: the run uses the next free one",
        evidence={"port": m.port, "wanted_for": wanted, **culprit_evidence(m.culprits)},
    )


SENTENCES: Mapping[type[Measures], Sentence] = {
    HostMemoryMeasures: _host_memory,
    CgroupMemoryMeasures: _cgroup,
    MemoryGrowthMeasures: _growth,
    SharedMemoryMeasures: _shared_memory,
    DiskLowMeasures: _disk_low,
    DiskSlowMeasures: _disk_slow,
    NicErrorMeasures: _nic_errors,
    RetransmitMeasures: _retransmits,
    TakenPortMeasures: _taken_port,
}
