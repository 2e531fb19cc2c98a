"""What stands out on a host, in a line: little memory or disk space, pressure, foreign processes.

What one frame cannot show, such as a growing number of interface errors, is left to the findings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ddpmon.format import size
from ddpmon.machine import Disk, HostFigures, HostProcess
from ddpmon.report.host_gpus import FOREIGN, GpuState, gpu_states, ours_of
from ddpmon.report.wording import cores, named
from ddpmon.run.limits import CPU_STALL_PCT, FULL, SWAP_IN_S, TAKES_PCT, io_stall, is_low, is_only_read, memory_stall
from ddpmon.run.process_roles import ProcessRoles
from ddpmon.snapshot import NodeView, Ranks

STEAL_PCT = 5.0


def summarise_host(node: NodeView, ranks: Ranks | None, states: Sequence[GpuState] | None = None) -> list[str]:
    """Short clauses, not cleaned: the GPUs first, the worst of them before the others, then the host.

    Empty when nothing stands out. `states` are those of the host's GPUs, where the caller has worked them out.
    """
    on_gpus = _on_gpus(gpu_states(ranks, node) if states is None else states)
    return [*on_gpus, *host_words(node.figures), *_hogs(node, ranks)]


def host_words(figures: HostFigures) -> list[str]:
    """The same of the host alone, without its processes."""
    return [*_memory(figures), *(_pressure(*each) for each in pressed(figures)), *_rest(figures)]


def _pressure(name: str, share: float) -> str:
    said = {"cpu": "CPU pressure {} % (tasks waiting for a core)", "memory": "memory pressure {} %"}
    return said.get(name, "disk pressure {} %").format(f"{share:.0f}")


def _on_gpus(states: Sequence[GpuState]) -> Iterator[str]:
    remarked = [state for state in states if state.remarks]
    worst_first = sorted(remarked, key=lambda state: not any(level == "broken" for level, _ in state.remarks))
    for state in worst_first:
        words = [word for level, word in state.remarks if level != "note" and FOREIGN not in word]
        those = [f"{FOREIGN} {named(on.process)}" for on in state.foreign_processes[:3]]
        those += [f"{len(state.foreign_processes) - 3} more {FOREIGN}es"] if len(state.foreign_processes) > 3 else []
        if words or those:
            yield f"GPU {state.gpu.index}: {', '.join([*words, *those])}"


def _hogs(node: NodeView, ranks: Ranks | None) -> Iterator[str]:
    busy = [process for process in node.figures.processes if (process.cpu_pct or 0.0) >= TAKES_PCT]
    if not busy:
        return
    ours = ours_of(ranks, node)
    for used in [process for process in busy if is_hog(process, ours)][:3]:
        yield f"{named(used.process)} takes {cores(used.cpu_pct or 0.0, node.figures.cpu_count)}"


def latest(node: NodeView, ranks: Ranks | None) -> float | None:
    """Lateness in ms of the host's latest rank; None where that is not known."""
    here = [rank for rank in node.ranks if ranks is not None and rank < len(ranks)]
    late = np.empty(0) if ranks is None else ranks.lateness_ms[here]
    finite = late[np.isfinite(late)]
    return float(finite.max()) if finite.size else None


def is_hog(used: HostProcess, ours: ProcessRoles) -> bool:
    """Whether it is somebody else's and uses much CPU."""
    return used.cpu_pct is not None and used.cpu_pct >= TAKES_PCT and ours.role(used.process) is None


def _memory(figures: HostFigures) -> Iterator[str]:
    used = memory_pct(figures)
    if used is not None and used >= 100 * FULL:
        yield f"memory {used:.0f} % used"
    if figures.swap_in_bytes_s is not None and figures.swap_in_bytes_s >= SWAP_IN_S:
        yield f"swapping in {size(figures.swap_in_bytes_s)}/s"


def memory_pct(figures: HostFigures) -> float | None:
    """Used memory in percent."""
    if figures.memory_used is None or not figures.memory_total:
        return None
    return figures.memory_used / figures.memory_total * 100


def pressed(figures: HostFigures) -> list[tuple[str, float]]:
    """The resources that tasks wait for notably long, and in what percent of the time."""
    cpu = figures.pressure.cpu if figures.pressure is not None else None
    shares = {
        "cpu": cpu if cpu is not None and cpu >= CPU_STALL_PCT else None,
        "memory": memory_stall(figures.pressure),
        "io": io_stall(figures.pressure),
    }
    return [(name, share) for name, share in shares.items() if share is not None]


def free_share(disk: Disk) -> float | None:
    """What is free of a disk, 0..1."""
    return disk.free / disk.total if disk.free is not None and disk.total else None


def is_tight(disk: Disk) -> bool:
    """Whether a disk that the run writes to is nearly full."""
    return is_low(disk) and not is_only_read(disk)


def received(figures: HostFigures) -> float | None:
    """Bytes a second that came in on all interfaces."""
    return known_sum([nic.received_bytes_s for nic in figures.nics])


def sent(figures: HostFigures) -> float | None:
    """Bytes a second that went out on all interfaces."""
    return known_sum([nic.sent_bytes_s for nic in figures.nics])


def known_sum(rates: list[float | None]) -> float | None:
    """The sum of what is known, None when nothing is."""
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None


def _rest(figures: HostFigures) -> Iterator[str]:
    if figures.steal_pct is not None and figures.steal_pct >= STEAL_PCT:
        yield f"CPU steal {figures.steal_pct:.0f} % (time taken by other virtual machines)"
    for disk in figures.disks:
        if is_tight(disk):
            yield f"{disk.path} {100 * (free_share(disk) or 0.0):.0f} % free"
