"""A whole host's sample, with everything in order and with a driver that hangs."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from ddpmon.machine import HostFigures
from ddpmon.sensors.sampler import Sample, Sampler
from tests.fake_nvml.build import environment
from tests.fake_nvml.scenario import Scenario, SimulatedGpu
from tests.sensors.others import SPIN, program, running, until


@pytest.fixture
def sampler(tmp_path: Path) -> Iterator[Sampler]:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # nobody listens there, and nobody else can
        folders = {"checkpoints": str(tmp_path / "made later"), "data": str(tmp_path)}
        made = Sampler(folders, {held.getsockname()[1]: "a test"})
        made.start()
        yield made
        made.stop()


USES = {"checkpoints", "data", "working directory", "temporary files"}


def complete(sample: Sample | None) -> bool:
    return sample is not None and sample.figures.cpu_pct is not None and uses(sample) >= USES and not sample.notes


def uses(sample: Sample) -> set[str]:
    return {use for disk in sample.figures.disks for use in disk.uses}


def test_all_is_there_within_moments(sampler: Sampler) -> None:
    with running(program(then=SPIN)) as hog:
        sample = until(
            sampler.sample,
            lambda sample: (
                complete(sample)
                and sample is not None
                and any(each.process.pid == hog.pid for each in sample.figures.processes)
            ),
        )
    assert sample is not None
    assert len({disk.path for disk in sample.figures.disks}) == len(sample.figures.disks)
    assert [(port.wanted_for, port.held, port.process) for port in sample.figures.ports] == [("a test", False, None)]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(sample.figures), type=HostFigures) == sample.figures
    until(lambda: [guard.cost_ns for guard in sampler.guards], all)


HANGING = """
import json, time
from ddpmon.sensors import sampler
from ddpmon.sensors.sampler import Sampler
sampler.PATIENCE_S = 1.0
sampler = Sampler({}, {})
sampler.start()
deadline = time.monotonic() + 60
while time.monotonic() < deadline:
    time.sleep(0.1)
    sample = sampler.sample()
    if sample is not None and sample.figures.cpu_pct is not None and len(sample.notes) == 1:
        break
print(json.dumps([sample.notes, sample.figures.unread, len(sample.gpus), sample.figures.cpu_pct]), flush=True)
"""


def test_a_driver_that_hangs_is_noted_and_the_rest_goes_on(library: Path, tmp_path: Path) -> None:
    scenario = tmp_path / "gpus"
    Scenario([SimulatedGpu("GPU-0", sleeps_ms={"nvmlDeviceGetTemperature": 600_000})]).write(scenario)
    variables = {**os.environ, **environment(library, scenario)}
    done = subprocess.run([sys.executable, "-c", HANGING], env=variables, capture_output=True, text=True, check=True)
    notes, unread, gpus, cpu_pct = json.loads(done.stdout)
    assert len(notes) == 1
    assert notes[0].startswith("gpus: no answer for ")
    assert unread["gpus"].startswith("no answer for ")
    assert (gpus, cpu_pct is not None) == (0, True)
