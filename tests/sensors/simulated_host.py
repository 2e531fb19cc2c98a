"""A host with simulated GPUs: the scenario, and a process that reads it through pynvml and ctypes whenever asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.fake_nvml.build import environment
from tests.fake_nvml.scenario import Scenario, SimulatedGpu

Gpu = dict[str, Any]
SLOW = 10  # reads after which every figure has been read again
PROGRAM = """
import json, sys
import msgspec
from ddpmon.codec import decode, encode
from ddpmon.schema import NodeFrame
from ddpmon.sensors.gpu import GpuSensor
for line in sys.stdin:
    times = json.loads(line)
    sensor = GpuSensor() if times == 0 else sensor
    for _ in range(times):
        gpus = sensor.read()
    frame = NodeFrame(run_id="r", node=0, seq=0, sent_at=0.0, host="h", gpus=gpus if times else [])
    gpus = decode("key", encode(frame), NodeFrame).gpus
    print(json.dumps({"gpus": msgspec.to_builtins(gpus), "reason": sensor.reason}), flush=True)
"""


class Host:
    """Reads the GPUs of `scenario`; a context manager, since it holds a process."""

    def __init__(self, library: Path, path: Path, **more: str) -> None:
        self._path = path
        self.scenario = Scenario()
        self.reason: str | None = None
        self.counts: list[tuple[int, int]] = []
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, **environment(library, path), **more},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.start_again()

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()
        assert self._process.returncode == 0

    @property
    def pid(self) -> int:
        """The reading process."""
        return self._process.pid

    @property
    def gpu(self) -> SimulatedGpu:
        """The first GPU."""
        return self.scenario.gpus[0]

    def start_again(self) -> None:
        """Two GPUs, and a sensor that has seen nothing yet."""
        self.scenario = Scenario([SimulatedGpu("GPU-aaaa"), SimulatedGpu("GPU-bbbb")])
        self._ask(0)

    def read(self, times: int = 1) -> list[Gpu]:
        """What the last of so many reads gave, after its way through the store's encoding; `counts`: the readings."""
        self.scenario.write(self._path)
        gpus: list[Gpu] = self._ask(times)["gpus"]
        self.counts = [(gpu.pop("reads"), gpu.pop("slow_reads")) for gpu in gpus]
        return gpus

    def _ask(self, times: int) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(times, file=self._process.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        self.reason = answer["reason"]
        return answer
