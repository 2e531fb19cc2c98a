"""What of a host stands out enough to be said in a line: tight memory and disks, pressure, errors, strangers."""

from __future__ import annotations

from collections.abc import Iterator

from ddpmon.machine import Disk, HostFigures, HostProcess, Process
from ddpmon.snapshot import NodeView, Ranks
from ddpmon.tui.hosts import gpu_remarks, gpu_states, pids_of, whose
from ddpmon.tui.text import amount

MEMORY_PCT, STEAL_PCT, DISK_FREE, SHM_FREE = 95.0, 5.0, 0.05, 0.10
SWAP_IN_BYTES_S, RETRANSMITS = 1e6, 10.0
PRESSURE_PCT = {"cpu": 30.0, "memory": 5.0, "io": 20.0}
HOG_PCT = 20.0  # of a core: a stranger that uses less is not worth a warning


def notable(node: NodeView, ranks: Ranks | None) -> list[str]:
    """Short clauses, not cleaned: the GPUs first, then the host. Empty when nothing stands out."""
    return [*_on_gpus(node, ranks), *host_words(node.figures), *_hogs(node, ranks)]


def host_words(figures: HostFigures) -> list[str]:
    """The same of the host alone, without its processes."""
    return [*_memory(figures), *(f"pressure {name} {share:.0f} %" for name, share in pressed(figures)), *_rest(figures)]


def _on_gpus(node: NodeView, ranks: Ranks | None) -> Iterator[str]:
    for state in gpu_states(ranks, node):
        words = [word for level, word in gpu_remarks(state) if level != "note" and "stranger" not in word]
        named = [f"stranger {person(on.process)}" for on in state.strangers[:3]]
        named += [f"{len(state.strangers) - 3} more strangers"] if len(state.strangers) > 3 else []
        if words or named:
            yield f"GPU {state.gpu.index}: {', '.join([*words, *named])}"


def person(process: Process) -> str:
    """`pid 8123 (bob: python train.py)`, as far as it is visible; not cleaned."""
    who = ": ".join(part for part in (process.user, process.command) if part)
    return f"pid {process.pid} ({who})" if who else f"pid {process.pid}"


def _hogs(node: NodeView, ranks: Ranks | None) -> Iterator[str]:
    pids = pids_of(ranks, node)
    for used in [process for process in node.figures.processes if is_hog(process, pids)][:3]:
        yield f"{person(used.process)} uses {used.cpu_pct:.0f} % of a core"


def is_hog(used: HostProcess, pids: dict[int, int]) -> bool:
    """Whether it is somebody else's and uses much CPU."""
    return not whose(used.process, pids) and used.cpu_pct is not None and used.cpu_pct >= HOG_PCT


def _memory(figures: HostFigures) -> Iterator[str]:
    used = memory_pct(figures)
    if used is not None and used >= MEMORY_PCT:
        yield f"memory {used:.0f} % used"
    if figures.swap_in_bytes_s is not None and figures.swap_in_bytes_s >= SWAP_IN_BYTES_S:
        yield f"swapping in {amount(figures.swap_in_bytes_s)}/s"


def memory_pct(figures: HostFigures) -> float | None:
    """Used memory in percent."""
    if figures.memory_used is None or not figures.memory_total:
        return None
    return figures.memory_used / figures.memory_total * 100


def pressed(figures: HostFigures) -> list[tuple[str, float]]:
    """The resources that tasks wait for notably long, and in what percent of the time some do."""
    shares = {name: getattr(figures.pressure, name, None) for name in PRESSURE_PCT}
    return [(name, share) for name, share in shares.items() if share is not None and share >= PRESSURE_PCT[name]]


def free_share(disk: Disk) -> float | None:
    """What is free of a disk, 0..1."""
    return disk.free / disk.total if disk.free is not None and disk.total else None


def is_tight(disk: Disk) -> bool:
    """Whether a disk is nearly full; shared memory must hold whole batches, so it is tight earlier."""
    free = free_share(disk)
    return free is not None and free < (SHM_FREE if disk.path == "/dev/shm" else DISK_FREE)


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
        yield f"steal {figures.steal_pct:.0f} %"
    for disk in figures.disks:
        if is_tight(disk):
            yield f"{disk.path} {100 * (free_share(disk) or 0.0):.0f} % free"
    for nic in figures.nics:
        if nic.errors:
            yield f"{nic.name} {nic.errors:,} errors"
    if figures.retransmits_per_1000 is not None and figures.retransmits_per_1000 >= RETRANSMITS:
        yield f"{figures.retransmits_per_1000:.0f} of 1,000 TCP segments sent again"
    for port in figures.ports:
        yield f"port {port.port} taken"
