"""The demo's simulated GPUs: plausible figures that move a little, and a foreign process on the first."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ddpmon.simulated.build import build, environment
from ddpmon.simulated.scenario import GIB, Scenario, SimulatedGpu, SimulatedProcess

FOREIGN = "simulated foreign process"
_STAND_IN = "import sys; sys.stdin.read()"  # ends with us, however we end


class Simulation:
    """Writes what the simulated GPUs say, once a second.

    Attributes:
        environment: the variables with which the training finds them.
        foreign: the script of the foreign process, whose name says what it is.
    """

    def __init__(self, gpus: int, folder: Path) -> None:
        self._path = folder / "gpus.txt"
        self.foreign = folder / "simulated_foreign_process.py"
        self.foreign.write_text(_STAND_IN)
        self._gpus = [SimulatedGpu(f"GPU-simulated-{index}") for index in range(gpus)]
        self._scenario = Scenario(self._gpus)
        self._scenario.write(self._path)
        self._random = random.Random(gpus)
        without_real_ones = {"DDPMON_SIMULATED_GPUS": "1", "CUDA_VISIBLE_DEVICES": ""}
        self.environment = environment(build(folder), self._path) | without_real_ones

    def move(self, ranks: Sequence[int], foreign: int) -> None:
        """The next second: each of the processes `ranks` is busy on its own GPU, and `foreign` on the first."""
        for index, gpu in enumerate(self._gpus):
            busy = index < len(ranks)
            gpu.utilization = self._near(90, 6) if busy else 0
            gpu.power_mw = 1000 * (self._near(480, 25) if busy else self._near(72, 2))
            gpu.temperature = self._near(61, 2) if busy else self._near(33, 1)
            gpu.sm_clock = 1980 - 15 * self._random.randrange(4) if busy else 345
            gpu.clock_reasons = 0 if busy else 1
            gpu.processes = [SimulatedProcess(ranks[index], 22 * GIB, self._near(85, 4))] if busy else []
        self._gpus[0].processes.append(SimulatedProcess(foreign, 9 * GIB, self._near(38, 5)))
        for gpu in self._gpus:
            gpu.memory_used = sum(process.memory or 0 for process in gpu.processes) + GIB // 2
        self._scenario.write(self._path)

    def _near(self, middle: int, width: int) -> int:
        return self._random.randint(middle - width, middle + width)


@contextlib.contextmanager
def moving(simulation: Simulation, ranks: Callable[[], Sequence[int]]) -> Iterator[None]:
    """Move the figures as long as the block runs; the foreign process is a real one that only waits."""
    over = threading.Event()
    foreign = subprocess.Popen([sys.executable, str(simulation.foreign)], stdin=subprocess.PIPE)

    def move() -> None:
        while not over.wait(1.0):
            with contextlib.suppress(OSError):
                simulation.move(ranks(), foreign.pid)

    mover = threading.Thread(target=move, daemon=True)
    mover.start()
    try:
        yield
    finally:
        over.set()
        mover.join()
        foreign.communicate()
