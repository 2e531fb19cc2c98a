"""GPUs that somebody else uses: foreign processes, other ranks, leftovers of an earlier run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ddpmon.diagnose.clash.host import Host
from ddpmon.diagnose.clash.sign import Sign, culprit, labels
from ddpmon.diagnose.clash.view import View
from ddpmon.diagnose.wording import does, is_host_name, on_host, who
from ddpmon.format import size
from ddpmon.machine import GpuFigures, GpuProcess, Process
from ddpmon.run.limits import SM_PCT, foreign_memory, is_at_work, is_crowded, is_hidden

_ITS_LOOKS = 8
On = tuple[GpuFigures, GpuProcess]


def sharing(host: Host, _view: View) -> list[Sign]:
    """Foreign processes on the ranks' GPUs, and ranks on each other's."""
    signs, pids = list[Sign](), host.pids
    foreign: dict[object, list[On]] = defaultdict(list)
    for gpu in host.gpus:
        ranks, processes = host.on[gpu.uuid], gpu.processes
        if processes and len(processes) == len(ranks) == 1 and pids.get(processes[0].process.pid) == ranks[0]:
            continue
        if is_hidden(gpu, ranks, pids):
            signs += _hidden(host, gpu, ranks)
        elif not {pids.get(each.process.pid) for each in processes or ()}.issubset(ranks):
            signs += _visitors(host, gpu)
            for each in processes or ():
                if each.process.pid not in host.pids and is_at_work(each) and not host.is_ours(each.process):
                    foreign[_who_runs(each)].append((gpu, each))
    signs += [_strangers(host, key, found) for key, found in foreign.items()]
    return signs + _doubled(host) if len(host.on) < len(host.frames) else signs


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


def _strangers(host: Host, key: object, found: Sequence[On]) -> Sign:
    ranks = tuple(sorted({rank for gpu, _ in found for rank in host.on[gpu.uuid]}))
    processes = list({each.process.pid: each.process for _, each in found}.values())
    memory = sum(each.memory or 0 for _, each in found)
    shares = [each.sm_pct for _, each in found if each.sm_pct is not None]
    evidence = {**culprit(processes), "memory_bytes": memory, "gpus": len({gpu.uuid for gpu, _ in found})}
    held, name = size(memory), labels(processes)
    if all(_left_behind(host, each) for _, each in found):
        return Sign(
            kind="gpu_leftover",
            about=key,
            ranks=ranks,
            source=("gpu", found[0][0].uuid),
            looks=_ITS_LOOKS,
            evidence=evidence,
            summary=f"{held} on the GPU of {who(ranks)} ({host.name}) are held by {name}, idle and probably a leftover "
            f"of an earlier run",
            because=f"GPU memory held by {name}",
            advice=f"if it is yours and no longer needed, end it{_kill(host, processes[0].pid)}",
        )
    if shares:
        evidence["sm_pct"] = max(shares)
    s = "" if len(processes) > 1 else "s"
    uses = f"use{s} {max(shares):.0f} % of" if shares and max(shares) >= SM_PCT else f"hold{s} {held} on"
    several = "another training uses the same GPUs: " if len({gpu.uuid for gpu, _ in found}) > 1 else ""
    return Sign(
        kind="gpu_shared",
        about=key,
        ranks=ranks,
        source=("gpu", found[0][0].uuid),
        evidence=evidence,
        summary=f"{several}{name} {uses} the GPU{'s' if several else ''} of {who(ranks)} ({host.name})",
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


def _hidden(host: Host, gpu: GpuFigures, ranks: Sequence[int]) -> list[Sign]:
    """Memory that is not ours, where the processes cannot be told apart."""
    foreign, used = foreign_memory(gpu, [host.figures(rank) for rank in ranks]), gpu.memory_used
    if foreign is None or used is None or not is_crowded(gpu, foreign):
        return []
    said = f"{size(foreign)} on the GPU of {who(ranks)} ({host.name}) do not belong to this run"
    return [
        Sign(
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


def _doubled(host: Host) -> list[Sign]:
    signs = []
    boards = {gpu.board for gpu in host.frame.gpus if gpu.board}  # a rank on a MIG instance may name the whole board
    for uuid, ranks in host.on.items():
        if len(ranks) > 1 and uuid not in boards:
            signs.append(
                Sign(
                    kind="gpu_doubled",
                    about=uuid,
                    ranks=tuple(ranks),
                    evidence={"ranks_on_it": len(ranks)},
                    summary=f"{does(ranks, 'share')} one GPU ({host.name})",
                    because=f"a GPU with several ranks: {does(ranks, 'share')} one GPU",
                    advice="give every rank its own GPU: call torch.cuda.set_device(local_rank) before anything else",
                )
            )
    return signs


def _visitors(host: Host, gpu: GpuFigures) -> list[Sign]:
    """Ranks with a context on another rank's GPU."""
    owners = host.on[gpu.uuid]
    inside = [each for each in gpu.processes or () if host.pids.get(each.process.pid, owners[0]) not in owners]
    if not inside:
        return []
    visitors = sorted({host.pids[each.process.pid] for each in inside})
    held = sum(each.memory or 0 for each in inside)
    said = f"{does(visitors, 'hold')} a context ({size(held)}) on the GPU of {who(owners)}"
    return [
        Sign(
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
