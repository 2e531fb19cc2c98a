"""What a rank reads of the machine: its own process always, and the whole host if it is this rank's turn."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

import torch
import torch.distributed as dist
from msgspec.structs import replace

from ddpmon.machine import ProcessFigures
from ddpmon.probe.identity import Identity
from ddpmon.probe.torch_memory import DeviceMemory, TorchMemory
from ddpmon.sensors.process import ProcessSensor
from ddpmon.sensors.sampler import Guarded, Sample, Sampler
from ddpmon.store.host_lease import HostLease

HEIRS_WAIT_S = 3.0  # local rank 0 samples if it can; another one takes over if it dies
_COST_SAMPLES = 30


class HostSampler:
    """Reads the sensors, in threads of their own: neither the training thread nor a frame waits for one.

    To be made on the training thread.

    Args:
        run: tells the run's id, "" until it is known: a host has a sampler for each run.
        folders: use -> folder, whose file systems matter to the run.
        wanted_ports: port -> what the run wanted it for and did not get; it may change.
    """

    def __init__(
        self,
        identity: Identity,
        run: Callable[[], str],
        folders: Mapping[str, str],
        wanted_ports: Mapping[int, str],
    ) -> None:
        self._me, self._run = identity, run
        self._folders, self._wanted_ports = folders, wanted_ports
        self._sensor = ProcessSensor(thread=threading.get_native_id(), compute_threads=torch.get_num_threads())
        self._process = Guarded("process", self._read, at_end=self._give_turn)
        self._own: list[Guarded[Any]] = [self._process]
        self._torch_memory = TorchMemory(identity.device) if identity.device.type == "cuda" else None
        self._gpu_memory: Guarded[DeviceMemory] | None = None
        if self._torch_memory is not None:
            self._gpu_memory = Guarded("gpu memory", self._torch_memory.read)
            self._own.append(self._gpu_memory)
        self._turn: HostLease | None = None
        self._turn_from = 0.0
        self._sampler: Sampler | None = None
        self._costs: deque[tuple[float, int]] = deque(maxlen=_COST_SAMPLES)
        self._stopped = False

    def start(self) -> None:
        """Begin to read."""
        for guard in self._own:
            guard.start()

    def stop(self) -> None:
        """Ask for the end, and let another rank take over; does not wait."""
        self._stopped = True
        for guard in self._guards():
            guard.stop()

    def at_sync(self) -> None:
        """Read what is to be read at a sync point, on the training thread; never raises."""
        if self._torch_memory is not None:
            self._torch_memory.at_sync()

    @property
    def process(self) -> ProcessFigures | None:
        """This rank's process, as read last."""
        return self._process.value

    @property
    def notes(self) -> list[str]:
        """What is wrong with the reading of this rank's own process."""
        return [f"{guard.name}: {trouble}" for guard in self._own if (trouble := guard.trouble)]

    @property
    def has_turn(self) -> bool:
        """Whether this rank has the lease of its host for the run."""
        return self._turn is not None and self._turn.held

    def sample(self) -> Sample | None:
        """This host, if this rank is the one to read it and has done so."""
        return None if self._sampler is None else self._sampler.sample()

    def cost_pct(self) -> float | None:
        """CPU time of all the threads that read here, in percent of a core; a mean over the last frames."""
        self._costs.append((monotonic(), sum(guard.cost_ns for guard in self._guards())))
        (since, before), (now, spent) = self._costs[0], self._costs[-1]
        return 1e-7 * (spent - before) / (now - since) if now > since else None

    def _guards(self) -> list[Guarded[Any]]:
        return [*self._own, *(self._sampler.guards if self._sampler is not None else ())]

    def _read(self) -> ProcessFigures:
        if self._sampler is None and self._may_sample():
            self._sampler = Sampler(self._folders, self._wanted_ports)
            self._sampler.start()
            if self._stopped:
                self._sampler.stop()
        figures = self._sensor.read()
        if self._gpu_memory is None:
            return figures
        held = self._gpu_memory.value or DeviceMemory()
        return replace(figures, **held._asdict(), nccl_groups=_nccl_groups())

    def _may_sample(self) -> bool:
        """Whether this rank has got the turn to sample its host for the run."""
        if self._turn is None:
            if not (run := self._run()):
                return False
            self._turn = HostLease(self._me.host_of(run))
            self._turn_from = monotonic() + (HEIRS_WAIT_S if self._me.local_rank else 0.0)
        if monotonic() < self._turn_from:
            return False
        try:
            return self._turn.take()
        except OSError:  # there is no folder to agree in
            return self._me.local_rank == 0

    def _give_turn(self) -> None:
        if self._turn is not None:
            self._turn.give()


def _nccl_groups() -> int | None:
    """The process groups of this rank that reduce with NCCL, each with buffers of its own on the GPU.

    None where torch does not tell: it has no public list of them.
    """
    try:
        return sum("nccl" in str(backend) for backend, _ in dist.distributed_c10d._world.pg_map.copy().values())
    except Exception:
        return None
