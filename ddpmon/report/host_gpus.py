"""Reading a host: whose processes are on its GPUs, and what deserves a word. Nothing here draws."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from ddpmon.format import size
from ddpmon.machine import GpuFigures, GpuProcess, Process, ProcessFigures
from ddpmon.run.limits import POWER_CAP, foreign_memory, is_at_work, is_crowded, is_hidden, is_narrow
from ddpmon.run.model import SILENT_S
from ddpmon.run.process_roles import ProcessRoles, owner_of
from ddpmon.run.silence import has_left
from ddpmon.snapshot import NodeView, Ranks

Level = Literal["note", "warning", "broken"]
LEVELS: tuple[Level, ...] = ("note", "warning", "broken")
Remark = tuple[Level, str]

FOREIGN = "foreign process"
SPINNING_PCT, SPINNING_POWER = 95.0, 0.4  # so busy at so little of its power limit: waiting in a collective
SLOWED = {
    "hardware slowdown": "slowdown",
    "software thermal": "thermal",
    "hardware thermal": "thermal",
    "power brake": "power brake",
}


@dataclass(frozen=True)
class GpuState:
    """One GPU and who is on it.

    Attributes:
        ranks: ours that compute on it.
        strange: per process of `gpu.processes`, whether it is somebody else's and at work on a GPU of our ranks.
        apart: whether none of our ranks on it is among its processes.
        everybody: all ranks of the run.
    """

    gpu: GpuFigures
    ranks: tuple[int, ...]
    strange: tuple[bool, ...]
    apart: bool
    everybody: Ranks | None = field(repr=False, compare=False)

    @cached_property
    def processes(self) -> list[ProcessFigures]:
        """Those of our ranks on it; one of which nothing is known where a rank has not told."""
        return [
            (None if self.everybody is None else self.everybody.process[rank]) or ProcessFigures()
            for rank in self.ranks
        ]

    @property
    def hidden(self) -> bool:
        """Our ranks hold memory on it, but its process list does not have them: it cannot tell which are foreign.

        The process of a silent rank may be gone, and it is gone where the GPU holds less memory than the rank did.
        """
        if self.gpu.processes is None or not self.apart or self.everybody is None:
            return False
        is_heard = any(self.everybody.age_s[rank] <= SILENT_S for rank in self.ranks)
        held = sum(process.gpu_memory or 0 for process in self.processes)
        return is_heard and not has_left(self.gpu, held) and any(process.gpu_memory != 0 for process in self.processes)

    @property
    def untold(self) -> int | None:
        """Bytes in use there that torch does not hold in our ranks; None when unknown."""
        held = [process.gpu_memory for process in self.processes]
        known = [size for size in held if size is not None]
        if self.gpu.memory_used is None or len(known) < len(held):
            return None
        return max(self.gpu.memory_used - sum(known), 0)

    @property
    def foreign(self) -> int | None:
        """Bytes in use there that neither torch nor a context of our ranks holds; None where that cannot be told."""
        return foreign_memory(self.gpu, self.processes)

    @cached_property
    def foreign_processes(self) -> list[GpuProcess]:
        """Processes that are known not to be ours and that are at work."""
        return [on for on, strange in self.listed() if strange]

    def listed(self) -> list[tuple[GpuProcess, bool]]:
        """Each process, and whether it is a foreign process."""
        return list(zip(self.gpu.processes or (), self.strange, strict=True))

    @property
    def crowded(self) -> bool:
        """Whether more memory is in use than our ranks explain, where processes cannot be told apart."""
        return (self.hidden or self.gpu.processes is None) and is_crowded(self.gpu, self.foreign)

    @cached_property
    def remarks(self) -> list[Remark]:
        """What deserves a word, the worst first."""
        remarks = [*_errors(self.gpu), *_company(self), *_clocks(self.gpu), *_links(self.gpu)]
        return sorted(remarks, key=lambda remark: -LEVELS.index(remark[0]))


def pids_of(ranks: Ranks | None, node: NodeView) -> dict[int, int]:
    """Process number -> rank, of the ranks on this host."""
    known = [rank for rank in node.ranks if ranks is not None and rank < len(ranks)]
    return {} if ranks is None else {int(ranks.pid[rank]): rank for rank in known if ranks.pid[rank] > 0}


def ours_of(ranks: Ranks | None, node: NodeView) -> ProcessRoles:
    """What tells our processes on this host from foreign ones."""
    return ProcessRoles(pids_of(ranks, node), node.figures, node.gpus)


def gpu_states(ranks: Ranks | None, node: NodeView) -> list[GpuState]:
    """Every GPU of the host, in its order."""
    ours = ours_of(ranks, node)
    pids = ours.pids
    here: dict[str, list[int]] = {}
    for rank in pids.values() if ranks is not None else ():
        gpu = ranks.gpu[rank] if ranks is not None else None
        if gpu is not None:
            here.setdefault(gpu.uuid, []).append(rank)
    return [_state(gpu, tuple(sorted(here.get(gpu.uuid, ()))), ours, ranks) for gpu in node.gpus]


def _state(gpu: GpuFigures, here: tuple[int, ...], ours: ProcessRoles, ranks: Ranks | None) -> GpuState:
    apart = bool(here) and is_hidden(gpu, here, ours.pids)
    can_tell = bool(here) and not apart
    strange = tuple([can_tell and is_at_work(on) and ours.role(on.process) is None for on in gpu.processes or ()])
    return GpuState(gpu, here, strange, apart, ranks)


def whose(process: Process, ours: ProcessRoles) -> str:
    """`rank 3`, `rank 3 worker`, `launcher`, `init`, `monitor`, or nothing for somebody else's."""
    role = ours.role(process)
    if role not in ("rank", "worker"):
        return role or ""
    return f"rank {owner_of(process, ours.pids)}" + (" worker" if role == "worker" else "")


def rank_span(ranks: Sequence[int]) -> str:
    """`rank 3`, `ranks 0-7`, `ranks 0-2, 5`; nothing for none."""
    return f"rank{'s' if len(ranks) > 1 else ''} {number_span(ranks)}" if ranks else ""


def number_span(numbers: Sequence[int]) -> str:
    """`3`, `0-7`, `0-2, 5`."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def is_spinning(gpu: GpuFigures) -> bool:
    """Busy by its own account but drawing little power: as a rule a kernel that waits for the other ranks."""
    if gpu.utilization_pct is None or gpu.power_w is None or not gpu.power_limit_w:
        return False
    return gpu.utilization_pct >= SPINNING_PCT and gpu.power_w < SPINNING_POWER * gpu.power_limit_w


def _errors(gpu: GpuFigures) -> Iterator[Remark]:
    for xid in dict.fromkeys(gpu.xids or ()):
        yield "broken", f"Xid {xid}"
    if gpu.ecc_uncorrected:
        yield "broken", f"{gpu.ecc_uncorrected:,} ECC"
    if gpu.remapped_rows or gpu.retired_pages:
        yield "warning", "rows remapped" if gpu.remapped_rows else "pages retired"


def _company(state: GpuState) -> Iterator[Remark]:
    """Who else is there."""
    foreign_processes = sum(state.strange)
    if foreign_processes:
        yield "warning", FOREIGN if foreign_processes == 1 else f"{foreign_processes} {FOREIGN}es"
    if len(state.ranks) > 1:
        yield "warning", f"{len(state.ranks)} ranks"
    if state.crowded and state.foreign is not None:
        yield "warning", f"{size(state.foreign)} not ours"
    elif state.hidden:
        yield "note", "hidden"


def _clocks(gpu: GpuFigures) -> Iterator[Remark]:
    reasons = gpu.clock_reasons or ()
    slowed = list(dict.fromkeys(SLOWED[reason] for reason in reasons if reason in SLOWED))
    for word in slowed:
        if word != "slowdown" or len(slowed) == 1:  # the other words say why it was slowed down
            yield "warning", word
    if is_spinning(gpu):
        yield "note", "spinning?"
    for reason in reasons:
        if reason not in SLOWED and reason != "idle":
            yield "note", "power cap" if reason == POWER_CAP else reason


def _links(gpu: GpuFigures) -> Iterator[Remark]:
    if is_narrow(gpu):
        yield "note", f"PCIe x{gpu.pcie_width} of {gpu.pcie_width_max}"
    if gpu.nvlinks_up is not None and gpu.nvlinks is not None and gpu.nvlinks_up < gpu.nvlinks:
        yield "note", f"NVLink {gpu.nvlinks_up} of {gpu.nvlinks}"
