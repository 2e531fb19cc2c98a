"""The GPUs that the hosts tell of, and which rank is on which."""

from __future__ import annotations

from ddpmon.machine import GpuFigures
from ddpmon.run.latest_frames import LatestFrames
from ddpmon.run.process_roles import Instances
from ddpmon.schema import NodeFrame

_MOST = 128  # a host, before those that are no longer told of are forgotten


class Gpus:
    """The newest figures of all GPUs, by UUID, and when they came.

    Args:
        lost_s: after which a host that is silent is lost, and its figures with it.
    """

    def __init__(self, lost_s: float) -> None:
        self._lost_s = lost_s
        self._known: dict[str, tuple[GpuFigures, float]] = {}
        self._has_mig = False
        self._instances: Instances | None = None  # None while they have to be gathered again

    def add(self, frame: NodeFrame, now: float, hosts: int) -> None:
        """Take a host's GPUs in, of a run on so many hosts."""
        if len(self._known) > _MOST * max(1, hosts):
            self._known = {uuid: told for uuid, told in self._known.items() if now - told[1] <= self._lost_s}
        self._known |= {gpu.uuid: (gpu, now) for gpu in frame.gpus}
        self._has_mig = self._has_mig or any(gpu.board for gpu in frame.gpus)
        self._instances = None

    def of(self, name: str | None, pid: int, heard_at: float) -> GpuFigures | None:
        """The GPU of a rank; None without one, or if its host fell silent before the rank was heard of last.

        Args:
            name: what the rank calls its GPU.
            pid: the rank's process.
            heard_at: when the rank was heard of.
        """
        uuid = self._uuid(name, pid)
        found = None if uuid is None else self._known.get(uuid)
        return None if found is None or heard_at - found[1] > self._lost_s else found[0]

    def of_all(self, latest: LatestFrames) -> tuple[GpuFigures | None, ...]:
        """[world] the GPUs of all ranks."""
        if not self._known:
            return (None,) * len(latest.pid)
        known, names = self._known.get, latest.gpu_uuid
        if self._has_mig:
            names = [self._uuid(name, pid) for name, pid in zip(names, latest.pid, strict=True)]
        told = [None if uuid is None else known(uuid) for uuid in names]
        heard = latest.heard_at.tolist()
        return tuple(None if t is None or h - t[1] > self._lost_s else t[0] for t, h in zip(told, heard, strict=True))

    def _uuid(self, name: str | None, pid: int) -> str | None:
        if name is None or not self._has_mig:
            return name
        if self._instances is None:
            self._instances = Instances(gpu for gpu, _ in self._known.values())
        return self._instances.of(name, pid)
