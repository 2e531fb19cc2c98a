"""All GPUs of this host through NVML, whatever CUDA_VISIBLE_DEVICES says, within bounds for a frame."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import msgpack
from msgspec.structs import replace

from ddpmon.machine import GpuFigures
from ddpmon.sensors.gpu_board import SLOW_READS, Board
from ddpmon.sensors.identities import Identities
from ddpmon.sensors.nvml import Nvml, Unread, XidWatch

_MOST = 64
_FEW = 128  # so many always fit
_ROOM = 384 << 10  # bytes of a frame, of which a store takes a megabyte


class GpuSensor:
    """Reads the GPUs and MIG instances of this host; made to be asked once a second, by one thread.

    Args:
        identities: who the processes on them are.
        lifetime: count errors since the driver began, instead of since the first reading.

    Attributes:
        reason: why there are none, such as "no NVML: the NVML library was not found".
    """

    def __init__(self, identities: Identities | None = None, *, lifetime: bool = False) -> None:
        self._nvml, self._lifetime = Nvml(), lifetime
        self._identities = identities or Identities()
        self._boards: list[Board] = []
        self._xids = XidWatch()
        self._reads = 0
        self.reason: str | None = None

    def read(self) -> list[GpuFigures]:
        """The figures now, in NVML's order, the instances behind their board. Never raises; a driver may hang."""
        try:
            return self._read()
        except Exception as error:
            self.reason = f"GPUs are not read: {type(error).__name__}: {error}"[:256]
            return []

    def _read(self) -> list[GpuFigures]:
        if not self._nvml.open():
            self.reason = self._nvml.reason
            return []
        if self._reads % SLOW_READS == 0:
            self._count()
        self._reads += 1
        for board in self._boards:
            board.find(self._nvml)
        self._xids.read(self._nvml, {board.uuid: board.handle for board in self._boards if board.handle is not None})
        for board in self._boards:
            board.read(self._nvml, self._identities)
        return [figures for board in self._boards for figures in board.figures(*self._xids.of(board.uuid))][:_MOST]

    def _count(self) -> None:
        try:
            count = self._nvml.number("nvmlDeviceGetCount")
        except Unread as error:
            self.reason = f"GPUs cannot be counted: {error}"
            return
        self.reason = None if count else "NVML knows no GPU"
        self._boards += [Board(index, lifetime=self._lifetime) for index in range(len(self._boards), min(count, _MOST))]


def bounded(gpus: Sequence[GpuFigures]) -> list[GpuFigures]:
    """The GPUs with as many of their processes as fit a frame, of each the largest; what was left out is said."""
    counts = [len(gpu.processes or ()) for gpu in gpus]
    if sum(counts) <= _FEW:
        return list(gpus)
    kept, room = [0] * len(gpus), _ROOM
    for place in range(max(counts)):
        for number, gpu in enumerate(gpus):
            if place < counts[number] and room > 0:
                room -= len(msgpack.encode((gpu.processes or ())[place]))
                kept[number] += room >= 0
    return [_cut(gpu, most) for gpu, most in zip(gpus, kept, strict=True)]


def _cut(gpu: GpuFigures, most: int) -> GpuFigures:
    if gpu.processes is None or len(gpu.processes) <= most:
        return gpu
    reason = f"only the largest {most} of {gpu.process_count or len(gpu.processes)} fit a frame"
    return replace(gpu, processes=gpu.processes[:most], unread=gpu.unread | {"processes": reason})
