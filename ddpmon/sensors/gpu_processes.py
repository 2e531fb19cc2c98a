"""The processes on a GPU: who they are, the memory that they hold, their share of the SMs' time."""

from __future__ import annotations

from typing import Any, Literal

from ddpmon.machine import GpuProcess
from ddpmon.sensors.identities import Identities
from ddpmon.sensors.nvml import LOST, NOT_FOUND, Nvml, Unread

Kind = Literal["compute", "graphics", "mps"]
Held = dict[int, int | None]  # pid -> bytes
_MOST = 32
_LISTS: tuple[tuple[Kind, str], ...] = (
    ("graphics", "nvmlDeviceGetGraphicsRunningProcesses"),
    ("compute", "nvmlDeviceGetComputeRunningProcesses"),
    ("mps", "nvmlDeviceGetMPSComputeRunningProcesses"),
)


class GpuProcesses:
    """Reads the processes of one GPU or MIG instance."""

    def __init__(self) -> None:
        self._held: dict[Kind, Held] = {}
        self._shares = Shares()
        self.found: list[GpuProcess] | None = None
        self.count: int | None = None
        self.unread: dict[str, str] = {}

    def read(self, nvml: Nvml, handle: Any, slow: bool, identities: Identities) -> None:
        """Read them; what is not there usually (graphics, MPS) is looked for only when `slow`.

        Raises:
            Unread: the GPU is lost.
        """
        for kind, function in _LISTS:
            if slow or kind == "compute" or self._held.get(kind):
                self._list(nvml, handle, kind, function)
        if "processes" in self.unread:
            self.found = self.count = None
            return
        merged = self._merged()
        self._shares.read(nvml, handle, {*merged}, self.unread)
        self.found = [
            GpuProcess(process=identities.of(pid), memory=memory, sm_pct=self._shares.of(pid), kind=kind)
            for pid, (memory, kind) in _largest(merged)
        ]
        self.count = len(merged)

    def forget(self, reason: str) -> None:
        """The GPU is gone."""
        self._held.clear()
        self.found = self.count = None
        self.unread = {"processes": reason}

    def _list(self, nvml: Nvml, handle: Any, kind: Kind, function: str) -> None:
        figure = "processes" if kind == "compute" else f"{kind} processes"
        try:
            entries = nvml.ask((function, f"{function}_v2"), handle)
        except Unread as error:
            if error.code == LOST:
                raise
            self._held.pop(kind, None)
            self.unread[figure] = str(error)
            return
        self.unread.pop(figure, None)
        held = self._held[kind] = {}
        for entry in entries:  # on a board that is divided into instances a process may stand several times
            memory, earlier = entry.usedGpuMemory, held.get(entry.pid)
            held[entry.pid] = memory if earlier is None else earlier + (memory or 0)

    def _merged(self) -> dict[int, tuple[int | None, Kind]]:
        merged: dict[int, tuple[int | None, Kind]] = {}
        for kind, _ in _LISTS:
            for pid, memory in self._held.get(kind, {}).items():
                known = [each for each in (memory, merged.get(pid, (None,))[0]) if each is not None]
                merged[pid] = (max(known, default=None), kind)
        self.unread.pop("process memory", None)
        if any(memory is None for memory, _ in merged.values()):
            self.unread["process memory"] = "not available"
        return merged


def _largest(merged: dict[int, tuple[int | None, Kind]]) -> list[tuple[int, tuple[int | None, Kind]]]:
    return sorted(merged.items(), key=lambda item: (-1 if item[1][0] is None else item[1][0], -item[0]))[
        : -_MOST - 1 : -1
    ]


class Shares:
    """Each process's share of the SMs' time, from NVML's samples since the newest one seen."""

    def __init__(self) -> None:
        self._newest = 0
        self._works = False
        self._silent = 0
        self._shares: dict[int, float | None] = {}

    def of(self, pid: int) -> float | None:
        """In percent; one without a sample is idle, but only where samples are known to come."""
        return self._shares.get(pid, 0.0 if self._works else None)

    def read(self, nvml: Nvml, handle: Any, pids: set[int], unread: dict[str, str]) -> None:
        """Take the samples of `pids`, the GPU's processes; where there are none at all nothing is asked.

        Raises:
            Unread: the GPU is lost.
        """
        unread.pop("sm_pct", None)
        if not pids:
            return
        try:
            self._take(nvml.ask("nvmlDeviceGetProcessUtilization", handle, self._newest), pids)
        except Unread as error:
            if error.code == LOST:
                raise
            self._miss(error, unread)
        else:
            if not self._works:
                unread["sm_pct"] = "no samples of these processes"

    def _take(self, samples: Any, pids: set[int]) -> None:
        fresh = [
            sample for sample in samples if sample.timeStamp > self._newest
        ]  # drivers leave old ones in the buffer
        self._newest = max((sample.timeStamp for sample in fresh), default=self._newest)
        self._shares = {s.pid: float(s.smUtil) if s.smUtil <= 100 else None for s in fresh}
        self._works = self._works or not pids.isdisjoint(self._shares)
        self._silent = 0

    def _miss(self, error: Unread, unread: dict[str, str]) -> None:
        self._silent += 1
        if error.code not in (0, NOT_FOUND):
            self._works, self._shares = False, {}
            unread["sm_pct"] = str(error)
        elif not self._works:
            unread["sm_pct"] = "no samples so far"
        elif self._silent > 1:  # two readings may fall between two of the driver's samples
            self._shares = {}
