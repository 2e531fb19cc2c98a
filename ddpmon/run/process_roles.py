"""Which processes of a host belong to the run, for the verdicts and the screens alike."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from ddpmon.machine import GpuFigures, HostFigures, Process

Role = Literal["rank", "worker", "launcher", "init", "monitor"]
INIT = 1  # the number of the process that every other one descends from
_INITS = re.compile(r"(?:\S*/)?(?:init|systemd|launchd|tini|dumb-init|docker-init|catatonit|runit|s6-svscan)(?:\s|$)")
_MONITOR = re.compile(r"(?:^|[\s/])ddpmon(?:\.cli|\.doctor|_store\.py)?(?:\s|$)")


def owner_of(process: Process, pids: Mapping[int, int]) -> int | None:
    """The rank that this process is, or descends from as its DataLoader workers do; None for anybody else's.

    Args:
        process: one of the host's.
        pids: process number -> rank, of the ranks on that host.
    """
    return next((pids[pid] for pid in (process.pid, *process.parents) if pid in pids), None)


class ProcessRoles:
    """Tells processes of the run from foreign processes.

    Args:
        pids: process number -> rank, of the ranks on the host.
        figures, gpus: what the host tells of; their processes know the ranks' ancestors.
    """

    def __init__(self, pids: Mapping[int, int], figures: HostFigures, gpus: Sequence[GpuFigures]) -> None:
        self.pids = pids
        self._figures, self._gpus = figures, gpus
        self._above: set[int] | None = None

    def role(self, process: Process) -> Role | None:
        """Its role: a rank, a descendant of one, what launched the ranks, a monitor; None for a foreign process.

        Process 1 launched them only if it is no init, as where a container runs torchrun as its first process.
        """
        if process.pid in self.pids:
            return "rank"
        if not self.pids.keys().isdisjoint(process.parents):
            return "worker"
        if self._above is None:
            self._above = self._launchers()
        if process.pid in self._above:
            return "init" if process.pid == INIT and _is_init(process) else "launcher"
        return "monitor" if process.command and _MONITOR.search(process.command) else None

    def _launchers(self) -> set[int]:
        """The ancestors of the ranks, as far as the host names them."""
        told: list[Process] = [each.process for each in self._figures.processes]
        told += [each.process for gpu in self._gpus for each in gpu.processes or ()]
        return {parent for process in told if process.pid in self.pids for parent in process.parents}


def _is_init(process: Process) -> bool:
    """Whether process 1 is an init by its command, or has a command that cannot be read."""
    return not process.command or _INITS.match(process.command) is not None


class Instances:
    """The MIG instances among some GPUs."""

    def __init__(self, gpus: Iterable[GpuFigures]) -> None:
        parts = [gpu for gpu in gpus if gpu.board is not None]
        self._spelt = {f"GPU-{gpu.uuid.removeprefix('MIG-')}": gpu.uuid for gpu in parts}
        self._used = {(gpu.board, on.process.pid): gpu.uuid for gpu in parts for on in gpu.processes or ()}

    def of(self, uuid: str, pid: int) -> str:
        """The UUID, as NVML has it, of what a rank calls `uuid`; of a board, that of the instance that `pid` is on."""
        return self._spelt.get(uuid) or self._used.get((uuid, pid)) or uuid
