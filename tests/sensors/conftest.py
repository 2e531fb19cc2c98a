"""Hosts with simulated GPUs, read by a process that has the real pynvml."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fake_nvml.build import SimulationError, build
from tests.sensors.simulated_host import Host


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return build(tmp_path_factory.mktemp("nvml"))
    except SimulationError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def reader(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with Host(library, tmp_path_factory.mktemp("scenario") / "gpus") as host:
        yield host


@pytest.fixture
def host(reader: Host) -> Host:
    """Two GPUs, seen for the first time; the reading process is the same for all tests."""
    reader.start_again()
    return reader
