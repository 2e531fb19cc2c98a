"""Which MIG instance a rank is on: CUDA may name it by the whole GPU, or spell its UUID like a GPU's."""

from __future__ import annotations

from collections.abc import Iterable

from ddpmon.machine import GpuFigures


class Instances:
    """The MIG instances among some GPUs."""

    def __init__(self, gpus: Iterable[GpuFigures]) -> None:
        parts = [gpu for gpu in gpus if gpu.board is not None]
        self._spelt = {f"GPU-{gpu.uuid.removeprefix('MIG-')}": gpu.uuid for gpu in parts}
        self._used = {(gpu.board, on.process.pid): gpu.uuid for gpu in parts for on in gpu.processes or ()}

    def of(self, uuid: str, pid: int) -> str:
        """The UUID, as NVML has it, of what a rank calls `uuid`; of a board, that of the instance that `pid` is on."""
        return self._spelt.get(uuid) or self._used.get((uuid, pid)) or uuid
