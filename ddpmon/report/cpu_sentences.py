"""Sentences on contention for CPUs."""

from __future__ import annotations

from collections.abc import Mapping

from ddpmon.diagnose.alert import Alert, Measures
from ddpmon.diagnose.contention.cpu import (
    CpuOversubscribedMeasures,
    CpuPinnedMeasures,
    CpuThrottledMeasures,
    NumaMeasures,
)
from ddpmon.diagnose.contention.foreign_processes import CpuContentionMeasures
from ddpmon.format import plural
from ddpmon.report.tense import tense
from ddpmon.report.wording import (
    Sentence,
    Words,
    clean,
    cores,
    culprit_evidence,
    does,
    format_ranks,
    host_name,
    host_of,
    named,
    on_host,
)
from ddpmon.shell_command import ShellCommand

_NEARLY_ALL = 0.8  # of what all of them take: the first process alone is named then


def _contention(m: CpuContentionMeasures, alert: Alert) -> Words:
    takes = _takes(m, alert)
    waits = f"{does(alert.ranks, 'wait', alert)} for a CPU {m.runqueue_pct:.0f} % of the time"
    return Words(
        f"{takes} on {host_name(alert)}, where {waits}",
        because=f"CPU contention: {takes}",
        advice=("stop or move ", _process(m, alert), ", or give the ranks their own cores (taskset, numactl, cpuset)"),
        evidence={
            **culprit_evidence(m.culprits),
            "taken_pct": m.taken_pct,
            "runqueue_pct": m.runqueue_pct,
        },
    )


def _process(m: CpuContentionMeasures, alert: Alert) -> ShellCommand:
    """The command that shows the process that takes most."""
    show = f"ps -fp {m.culprits[0].pid}"
    past = "the foreign process" if len(m.culprits) == 1 else "the foreign processes"
    return on_host(host_of(alert), show, "foreign", lead="the process that ", instead=past, tail=" shows")


def _takes(m: CpuContentionMeasures, alert: Alert) -> str:
    if m.first_pct >= _NEARLY_ALL * m.taken_pct:
        return f"{named(m.culprits[0])} {tense(alert, 'takes')} {cores(m.first_pct, m.cpus)}"
    them = f"{named(m.culprits[0])} and {len(m.culprits) - 1} more"
    return f"{them} {tense(alert, 'take')} {cores(m.taken_pct, m.cpus)}"


def _pinned(m: CpuPinnedMeasures, alert: Alert) -> Words:
    cpus = f"CPU {clean(m.affinity, 40)}" if m.cpus == 1 else f"{m.cpus} CPUs"
    although = f"although {host_name(alert)} {tense(alert, 'has')} {m.host_cpus}"
    said = f"{does(alert.ranks, 'share', alert)} {cpus}, {although}"
    return Words(
        said,
        because=f"shared CPU cores: {said}",
        advice="give every rank its own cores with the launcher (torchrun --numa-binding, srun --cpu-bind), "
        "numactl, taskset or the container's cpuset",
        evidence={"cpus": m.cpus, "host_cpus": m.host_cpus},
    )


def _throttled(m: CpuThrottledMeasures, alert: Alert) -> Words:
    limit = "the limit of its cgroup" if m.quota_cpus is None else f"a limit of {m.quota_cpus:.3g} CPUs"
    them = "it" if len(alert.ranks) == 1 else "them"
    said = f"{limit} {tense(alert, 'throttles')} {them} for {min(m.throttled_pct, 100):.0f} % of the time"
    return Words(
        f"{format_ranks(alert.ranks)} ({host_name(alert)}): {said}",
        because=f"a CPU quota: {said}",
        advice="raise the CPU limit of the container or cgroup, or use fewer threads and DataLoader workers",
        evidence={
            "throttled_pct": m.throttled_pct,
            **({} if m.quota_cpus is None else {"quota_cpus": m.quota_cpus}),
        },
    )


def _oversubscribed(m: CpuOversubscribedMeasures, alert: Alert) -> Words:
    below = f" and {m.workers:,} {_children(m)[m.workers != 1]}" if m.workers else ""
    cpus = f"{m.usable_cpus:.3g} usable CPU{'' if m.usable_cpus == 1 else 's'}"
    said = f"{plural(m.threads, 'compute thread')}{below} on {cpus}"
    run = tense(alert, "runs") if len(alert.ranks) == 1 else f"together {tense(alert, 'run')}"
    return Words(
        f"{format_ranks(alert.ranks)} ({host_name(alert)}) {run} {said}",
        because=f"CPU oversubscription: {said}",
        advice=_fewer(m, alert),
        evidence={"threads": m.threads, "workers": m.workers, "usable_cpus": m.usable_cpus},
    )


def _children(m: CpuOversubscribedMeasures) -> tuple[str, str]:
    """What one of a rank's child processes is called, and several of them."""
    return ("DataLoader worker", "DataLoader workers") if m.are_loaders else ("child process", "child processes")


def _fewer(m: CpuOversubscribedMeasures, alert: Alert) -> str:
    """What there can be fewer of: no rank computes with less than one thread."""
    threads = "threads a rank (OMP_NUM_THREADS, torch.set_num_threads)" if m.threads > len(alert.ranks) else ""
    parts = [part for part in (threads, _children(m)[1] if m.workers else "") if part]
    if not parts:
        return "run fewer ranks on this host, or give them more CPUs"
    return f"use {' or '.join(f'fewer {part}' for part in parts)}"


def _far_from_gpu(m: NumaMeasures, alert: Alert) -> Words:
    cpus, are, alone = clean(m.affinity, 40), tense(alert, "are"), len(alert.ranks) == 1
    theirs = f"its GPU {tense(alert, 'is')}" if alone else f"their GPUs {are}"
    return Words(
        f"{format_ranks(alert.ranks)} ({host_name(alert)}) {tense(alert, 'may')} only run on CPUs {cpus}, but {theirs} "
        f"on NUMA node {m.numa_node}",
        because=f"NUMA misplacement: its CPUs {are} on another NUMA node than its GPU",
        advice="bind every rank to the NUMA node of its GPU: torchrun --numa-binding, or numactl --cpunodebind",
        evidence={"numa_node": m.numa_node, "cpus": cpus},
    )


SENTENCES: Mapping[type[Measures], Sentence] = {
    CpuContentionMeasures: _contention,
    CpuPinnedMeasures: _pinned,
    CpuThrottledMeasures: _throttled,
    CpuOversubscribedMeasures: _oversubscribed,
    NumaMeasures: _far_from_gpu,
}
