"""What the sampling of one host costs: one read of the sensors, as a rank does it once a second.

    python bench/sensors.py [--reads N] [gpu]

Each line is the median over reads with the quartiles, in ms of CPU time, and what that is of one core at one read a
second. `gpu`: 8 simulated GPUs with 4 processes each, through pynvml and ctypes; a real driver takes time of its own.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from ddpmon.sensors.gpu import GpuSensor
from tests.fake_nvml.build import build, environment
from tests.fake_nvml.scenario import GIB, Scenario, SimulatedGpu, SimulatedProcess

GPUS, PROCESSES, LINKS = 8, 4, 18
WARM_READS = 20


def report(what: str, read: Callable[[], object], reads: int) -> None:
    """Measure and print one line."""
    for _ in range(WARM_READS):
        read()
    spent = []
    for _ in range(reads):
        began = time.thread_time()
        read()
        spent.append(1e3 * (time.thread_time() - began))
    low, middle, high = statistics.quantiles(spent, n=4)
    mean = statistics.fmean(spent)
    print(
        f"{what}: {middle:.2f} ms [{low:.2f} .. {high:.2f}] a read; mean {mean:.2f} ms, {mean / 10:.2f} % of one core"
    )


def on_simulated_gpus(reads: int) -> None:
    """In a process of its own: the library is found through its environment."""
    with tempfile.TemporaryDirectory(prefix="ddpmon-bench-") as folder:
        scenario = Path(folder) / "gpus"
        waiting = [sys.executable, "-c", "import sys; sys.stdin.read()"]
        crowd = [subprocess.Popen(waiting, stdin=subprocess.PIPE) for _ in range(GPUS * PROCESSES)]
        Scenario([_gpu(index, crowd) for index in range(GPUS)]).write(scenario)
        here = environment(build(Path(folder)), scenario)
        command = [sys.executable, __file__, "--reads", str(reads), "gpu-here"]
        subprocess.run(command, env={**os.environ, **here}, check=True)
        for process in crowd:
            process.communicate()


def _gpu(index: int, crowd: list[subprocess.Popen[bytes]]) -> SimulatedGpu:
    mine = crowd[index * PROCESSES : (index + 1) * PROCESSES]
    processes = [SimulatedProcess(process.pid, 4 * GIB, 20) for process in mine]
    return SimulatedGpu(f"GPU-{index}", processes=processes, nvlinks=" ".join("1" * LINKS))


def gpu_here(reads: int) -> None:
    sensor = GpuSensor()
    assert sum(gpu.process_count or 0 for gpu in sensor.read()) == GPUS * PROCESSES
    report(f"{GPUS} simulated GPUs, {PROCESSES} processes each", sensor.read, reads)


PARTS = {"gpu": on_simulated_gpus}


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reads", type=int, default=300)
    parser.add_argument("part", nargs="?", choices=[*PARTS, "gpu-here"], default=None, help="without it: all")
    options = parser.parse_args()
    if options.part == "gpu-here":
        gpu_here(options.reads)
        return
    for name, part in PARTS.items():
        if options.part in (None, name):
            part(options.reads)


if __name__ == "__main__":
    main()
