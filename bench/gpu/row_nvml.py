"""Row 9: NVML on the real board: what each call costs, what it says, and whether it disturbs training.

The GPUs of the host are read 30 times beside a busy device, each call of NVML timed; then 500 small kernels are
launched again and again in turns: blocks in which nobody reads, with a reading a second, and with one after the other.
What a block takes more than the one without readings before it is given as a median with quartiles. In a rehearsal a
simulated NVML is read, where there is a C compiler. On a GPU 45 s.

    python bench/gpu/row_nvml.py [--rehearse]
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from course_figures import Figures, run_row

from ddpmon.machine import GpuFigures, ProcessFigures
from ddpmon.run.limits import foreign_memory, is_crowded, is_hidden
from ddpmon.sensors.gpu import GpuSensor
from ddpmon.sensors.nvml import Nvml

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.fake_nvml.build import SimulationError, build, environment
from tests.fake_nvml.scenario import Scenario, SimulatedGpu, SimulatedProcess

_READS, _REHEARSED_READS = 30, 12
_PACE_S, _TURNS = 1.2, 7  # a block: long enough for a reading; how often all three kinds take their turn
_KERNELS = 500
_MOST_MS = 50.0  # a reading: 5 % of a second, of a thread that is not the training's
_SLOWER = 5.0  # percent, of 500 kernels beside a reading a second: what three of four turns exceed is no noise
GIB = 1 << 30


class TimedNvml:
    """Times every call of NVML that a sensor makes."""

    def __init__(self) -> None:
        self.spent: dict[str, list[float]] = defaultdict(list)
        ask = Nvml.ask

        def timed(nvml: Nvml, functions: str | tuple[str, ...], *arguments: Any) -> Any:
            began = time.perf_counter()
            try:
                return ask(nvml, functions, *arguments)
            finally:
                name = functions if isinstance(functions, str) else functions[0]
                self.spent[name].append(1e3 * (time.perf_counter() - began))

        Nvml.ask = timed  # type: ignore[assignment, method-assign]

    def dearest(self, count: int) -> str:
        """The calls that took longest in all, with their mean and longest ms."""
        order = sorted(self.spent, key=lambda name: -sum(self.spent[name]))[:count]
        return "; ".join(
            f"{name} {statistics.fmean(self.spent[name]):.2f} (longest {max(self.spent[name]):.1f})" for name in order
        )


def read_often(sensor: GpuSensor, reads: int, busy: Any) -> tuple[list[float], GpuFigures | None]:
    """Milliseconds of each reading, and the first GPU's figures."""
    walls, found = [], []
    for _ in range(reads):
        busy()
        began = time.perf_counter()
        found = sensor.read()
        walls.append(1e3 * (time.perf_counter() - began))
        time.sleep(0.1)
    return walls, found[0] if found else None


def pace_ms(sensor: GpuSensor, pause_s: float | None) -> float:
    """Median time of many small kernels in one block, beside readings with a pause between them."""
    import torch

    over, y = threading.Event(), torch.zeros(64, device="cuda")

    def read() -> None:
        while pause_s is not None and not over.wait(pause_s):
            sensor.read()

    reader, times = threading.Thread(target=read), []
    reader.start()
    until = time.monotonic() + _PACE_S
    while time.monotonic() < until:
        began = time.perf_counter()
        for _ in range(_KERNELS):
            y.add_(1)
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - began))
    over.set()
    reader.join()
    return statistics.median(times)


def disturbance(sensor: GpuSensor, figures: Figures) -> list[str]:
    """How much slower small kernels are beside readings, in turns; returns what is wrong."""
    turns = [(pace_ms(sensor, None), pace_ms(sensor, 1.0), pace_ms(sensor, 0.0)) for _ in range(_TURNS)]
    figures.put({f"{_KERNELS} kernels, nobody reads, ms": statistics.median(alone for alone, _, _ in turns)})
    least = 0.0
    for at, how in ((2, "after the other"), (1, "a second")):
        least, middle, most = statistics.quantiles((100 * (turn[at] / turn[0] - 1) for turn in turns), n=4)
        figures.say(f"kernels beside one reading {how}: {middle:+.1f} % [{least:+.1f} .. {most:+.1f}]")
    return [] if least <= _SLOWER else [f"a reading a second slows small kernels by {least:.0f} % or more"]


def on_gpu(figures: Figures) -> list[str]:
    """Read the board; returns what is wrong."""
    import torch
    from course_device import Device

    from ddpmon.probe.identity import gpu_uuid

    device, timed, sensor = Device(False), TimedNvml(), GpuSensor()
    device.join()
    torch.distributed.all_reduce(torch.ones(1 << 20, device=device.at))
    x = torch.randn(8192, 8192, dtype=torch.bfloat16, device=device.at)
    walls, gpu = read_often(sensor, _READS, lambda: [x @ x for _ in range(20)])
    if gpu is None:
        return [f"NVML is not read: {sensor.reason}"]
    wrong = tell(figures, gpu, walls, timed)
    uuid = gpu_uuid(device.at)
    figures.put({"uuid by torch": uuid, "uuid by NVML": gpu.uuid})
    held = torch.cuda.memory_reserved()
    memory = [ProcessFigures(gpu_memory=held)]
    foreign = foreign_memory(gpu, memory)
    outside = None if gpu.memory_used is None else (gpu.memory_used - held) / GIB
    figures.put({"bytes outside torch, GiB": outside, "crowded": is_crowded(gpu, foreign)})
    figures.put({"our process is hidden": is_hidden(gpu, [0], {os.getpid(): 0}), "processes": gpu.process_count})
    figures.say(f"outside torch {outside or 0:.1f} GiB")
    wrong += disturbance(sensor, figures)
    wrong += [] if uuid == gpu.uuid else [f"torch calls the GPU {uuid}, NVML {gpu.uuid}"]
    return wrong + (["another's memory is suspected"] if is_crowded(gpu, foreign) else [])


def tell(figures: Figures, gpu: GpuFigures, walls: list[float], timed: TimedNvml) -> list[str]:
    """What a reading took and gave; returns what is wrong."""
    median = statistics.median(walls)
    figures.put({"a reading, median ms": median, "longest ms": max(walls), "xids": str(gpu.xids)})
    figures.put({"dearest calls, mean ms": timed.dearest(6)})
    figures.put({"unread": "; ".join(f"{name}: {why}" for name, why in gpu.unread.items()) or "nothing"})
    figures.say(f"a reading {median:.1f} ms, longest {max(walls):.1f}; Xid events {gpu.xids}; unread: {[*gpu.unread]}")
    wrong = [] if median <= _MOST_MS else [f"a reading takes {median:.0f} ms"]
    return wrong + ([] if gpu.xids is not None else [f"Xid events: {gpu.unread.get('xids')}"])


def on_simulated(figures: Figures) -> list[str]:
    """The same readings of a simulated board, in this process, which finds it through its environment."""
    timed, sensor = TimedNvml(), GpuSensor()
    walls, gpu = read_often(sensor, _REHEARSED_READS, lambda: None)
    if gpu is None:
        return [f"NVML is not read: {sensor.reason}"]
    figures.put({"our process is hidden": is_hidden(gpu, [0], {os.getppid(): 0}), "processes": gpu.process_count})
    return tell(figures, gpu, walls, timed)


def with_simulation() -> None:
    """Run this script again where NVML is simulated; its exit code becomes this one's."""
    with tempfile.TemporaryDirectory(prefix="ddpmon-course-") as folder:
        scenario = Path(folder) / "gpus"
        Scenario([SimulatedGpu("GPU-0", processes=[SimulatedProcess(os.getpid(), GIB, 20)])]).write(scenario)
        try:
            here = environment(build(Path(folder)), scenario)
        except SimulationError as error:
            raise SystemExit(str(error)) from None
        command = [sys.executable, __file__, "simulated", *sys.argv[1:]]
        raise SystemExit(subprocess.run(command, env={**os.environ, **here}, check=False).returncode)


def measure(figures: Figures, rehearse: bool) -> None:
    """Read, and give the verdict."""
    wrong = on_simulated(figures) if rehearse else on_gpu(figures)
    figures.conclude(not wrong, "; ".join(wrong) or "readings are cheap, complete and about this GPU")


if __name__ == "__main__":
    if sys.argv[1:2] == ["simulated"]:
        del sys.argv[1]
    elif "--rehearse" in sys.argv:
        with_simulation()
    run_row(measure, __doc__)
