"""Who is on the GPUs of the ranks: foreign processes, other ranks, and what an earlier run left there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from msgspec.structs import replace

from ddpmon.diagnose.alert import Measures
from ddpmon.diagnose.contention.host_state import Host, RunContext
from ddpmon.diagnose.contention.symptom import CulpritMeasures, Symptom, culprits, culprits_of
from ddpmon.diagnose.contention_policy import GPU
from ddpmon.machine import GpuFigures, GpuProcess, Process
from ddpmon.run.limits import SM_PCT, foreign_memory, is_at_work, is_crowded, is_hidden

On = tuple[GpuFigures, GpuProcess]


class GpuSharedMeasures(CulpritMeasures, frozen=True):
    """The processes of a foreign job use GPUs of the ranks.

    Attributes:
        memory_bytes: the device memory that they hold together.
        gpus: on how many of the ranks' GPUs they are.
        sm_pct: the percent of the SMs' time that the greatest of them takes, None where that is unknown.
    """

    memory_bytes: int
    gpus: int
    sm_pct: float | None


class GpuLeftoverMeasures(CulpritMeasures, frozen=True):
    """Idle processes, probably of an earlier run, hold memory on GPUs of the ranks.

    Attributes:
        memory_bytes: the device memory that they hold together.
        gpus: on how many of the ranks' GPUs they are.
    """

    memory_bytes: int
    gpus: int


class GpuHiddenMeasures(Measures, frozen=True):
    """Memory on a rank's GPU belongs to processes that are not visible.

    Attributes:
        gpu_index: the GPU's number on its host.
        foreign_bytes: the device memory that is not the run's.
        used_bytes: bytes of the GPU's memory that are used in all.
    """

    gpu_index: int
    foreign_bytes: int
    used_bytes: int


class GpuDoubledMeasures(Measures, frozen=True):
    """Several ranks train on one GPU.

    Attributes:
        ranks_on_it: how many.
    """

    ranks_on_it: int


class GpuContextMeasures(Measures, frozen=True):
    """Ranks hold a context on the GPU of another rank.

    Attributes:
        visitors: the ranks that hold one.
        owners: the ranks that train on it.
        memory_bytes: the device memory that these contexts hold together.
    """

    visitors: tuple[int, ...]
    owners: tuple[int, ...]
    memory_bytes: int


def sharing(host: Host, _context: RunContext) -> list[Symptom]:
    """Foreign processes on the ranks' GPUs, and ranks on each other's."""
    symptoms, pids, owners = list[Symptom](), host.pids, host.owners
    foreign: dict[object, list[On]] = defaultdict(list)
    for gpu in host.gpus:
        processes = gpu.processes
        if processes and len(processes) == 1 and processes[0].process.pid == owners.get(gpu.uuid):
            continue  # the usual case
        ranks = host.on[gpu.uuid]
        if is_hidden(gpu, ranks, pids):
            symptoms += _hidden(host, gpu, ranks)
        elif not {pids.get(each.process.pid) for each in processes or ()}.issubset(ranks):
            symptoms += _visitors(host, gpu)
            for each in processes or ():
                if each.process.pid not in host.pids and is_at_work(each) and not host.is_ours(each.process):
                    foreign[_who_runs(each)].append((gpu, each))
    symptoms += [_foreign_job(host, key, found) for key, found in foreign.items()]
    return symptoms + _doubled(host) if len(host.on) < len(host.states) else symptoms


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
    theirs, gpus, source = culprits(processes), len({gpu.uuid for gpu, _ in found}), ("gpu", found[0][0].uuid)
    if all(_left_behind(host, each) for _, each in found):
        return Symptom(
            kind="gpu_leftover",
            about=key,
            ranks=ranks,
            source=source,
            consecutive=GPU.leftover_readings,
            measures=GpuLeftoverMeasures(theirs, memory, gpus),
        )
    return Symptom(
        kind="gpu_shared",
        about=key,
        ranks=ranks,
        source=source,
        measures=GpuSharedMeasures(theirs, memory, gpus, max(shares, default=None)),
    )


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


def is_unread(host: Host, symptom: Symptom) -> bool:
    """Whether a frame does not tell if a GPU is still shared: the GPU, its processes or what these take is missing."""
    if symptom.kind not in ("gpu_shared", "gpu_leftover") or symptom.source is None:
        return False
    gpu = next((gpu for gpu in host.frame.gpus if gpu.uuid == symptom.source[1]), None)
    if gpu is None or gpu.processes is None:
        return True
    if isinstance(symptom.measures, GpuHiddenMeasures):
        return gpu.memory_used is None
    named = culprits_of(symptom.measures)
    listed = [each for each in gpu.processes if each.process.pid in named]
    return any(each.memory is None and each.sm_pct is None for each in listed)


def with_last_share(now: Measures, before: Measures) -> Measures:
    """The measures `now`; where these miss what the same processes take of a GPU, as it was known `before`."""
    if not (isinstance(now, GpuSharedMeasures) and isinstance(before, GpuSharedMeasures)):
        return now
    same = not culprits_of(now).isdisjoint(culprits_of(before))
    return replace(now, sm_pct=before.sm_pct) if now.sm_pct is None and same else now


def _hidden(host: Host, gpu: GpuFigures, ranks: Sequence[int]) -> list[Symptom]:
    """Memory that is not ours, where the processes cannot be told apart."""
    foreign, used = foreign_memory(gpu, [host.figures(rank) for rank in ranks]), gpu.memory_used
    if foreign is None or used is None or not is_crowded(gpu, foreign):
        return []
    return [
        Symptom(
            kind="gpu_shared",
            about=("memory", gpu.uuid),
            source=("gpu", gpu.uuid),
            ranks=tuple(ranks),
            measures=GpuHiddenMeasures(gpu.index, foreign, used),
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
                    measures=GpuDoubledMeasures(len(ranks)),
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
    return [
        Symptom(
            kind="gpu_doubled",
            about=("context", gpu.uuid),
            source=("gpu", gpu.uuid),
            ranks=(*owners, *visitors),
            measures=GpuContextMeasures(tuple(visitors), tuple(owners), held),
        )
    ]
