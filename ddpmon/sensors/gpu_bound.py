"""A bound on what the processes of many crowded GPUs take in a frame."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import msgpack
from msgspec.structs import replace

from ddpmon.machine import GpuFigures

_FEW = 128  # so many always fit
_ROOM = 384 << 10  # bytes of a frame, of which a store takes a megabyte


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
