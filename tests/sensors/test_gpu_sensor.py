"""The GPU sensor through the real pynvml and ctypes, on a small NVML built here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import json, sys
import msgspec
from ddpmon.sensors.gpu import GpuSensor, read_all
one = GpuSensor(json.loads(sys.argv[1]))
one.read()
print(json.dumps(msgspec.to_builtins({"one": one.read(), "all": read_all()})))
"""
FIELDS = {
    "nvmlDeviceGetName": ["name"],
    "nvmlDeviceGetUtilizationRates": ["utilization_pct"],
    "nvmlDeviceGetMemoryInfo": ["memory_used", "memory_total"],
    "nvmlDeviceGetTemperature": ["temperature_c"],
    "nvmlDeviceGetPowerUsage": ["power_w"],
    "nvmlDeviceGetEnforcedPowerLimit": ["power_limit_w"],
    "nvmlDeviceGetClockInfo": ["sm_clock_mhz"],
}
Read = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler to build an NVML to read")
    folder = tmp_path_factory.mktemp("nvml")
    source = Path(__file__).with_name("fake_nvml.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / "libnvidia-ml.so.1", source], check=True)
    return folder


@pytest.fixture
def read(library: Path) -> Read:
    def run(uuid: str | None, **environment: str) -> dict[str, Any]:
        return sense(uuid, LD_LIBRARY_PATH=str(library), **environment)

    return run


def sense(uuid: str | None, **environment: str) -> dict[str, Any]:
    command = [sys.executable, "-c", PROGRAM, json.dumps(uuid)]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize("uuid", ["GPU-bbbb", "bbbb"], ids=["prefixed", "as torch gives it"])
def test_a_gpu_is_matched_by_uuid_whatever_cuda_visible_devices_says(read: Read, uuid: str) -> None:
    assert read(uuid, CUDA_VISIBLE_DEVICES="1,0")["one"] == {
        "index": 1,
        "uuid": "GPU-bbbb",
        "name": "Fake B",
        "utilization_pct": 91.0,
        "memory_used": 9,
        "memory_total": 80,
        "temperature_c": 61.0,
        "power_w": 300.5,
        "power_limit_w": 700.0,
        "sm_clock_mhz": 1980.0,
    }


def test_all_gpus_of_the_host_in_nvml_order(read: Read) -> None:
    everything = read(None, CUDA_VISIBLE_DEVICES="1")
    assert [(gpu["index"], gpu["uuid"], gpu["utilization_pct"]) for gpu in everything["all"]] == [
        (0, "GPU-aaaa", 90.0),
        (1, "GPU-bbbb", 91.0),
    ]
    assert everything["one"] is None


@pytest.mark.parametrize("function", FIELDS)
def test_a_failing_call_leaves_only_its_own_field_unknown(read: Read, function: str) -> None:
    healthy, seen = read("GPU-aaaa"), read("GPU-aaaa", FAKE_NVML_FAIL=function)
    assert None not in healthy["one"].values()
    for field in FIELDS[function]:
        healthy["one"][field] = None
    assert seen["one"] == healthy["one"]


def test_identity_falls_back_to_what_is_known(read: Read) -> None:
    assert read("GPU-bbbb", FAKE_NVML_FAIL="nvmlDeviceGetUUID")["one"]["uuid"] == "GPU-bbbb"
    assert read("GPU-bbbb", FAKE_NVML_FAIL="nvmlDeviceGetIndex")["one"]["index"] == -1
    assert [gpu["index"] for gpu in read(None, FAKE_NVML_FAIL="nvmlDeviceGetIndex")["all"]] == [0, 1]


@pytest.mark.parametrize("uuid", ["MIG-cccc", "cccc"])
def test_a_mig_instance_has_its_own_memory_and_its_boards_temperature(read: Read, uuid: str) -> None:
    gpu = read(uuid)["one"]
    assert (gpu["uuid"], gpu["memory_total"], gpu["utilization_pct"]) == ("MIG-cccc", 10, None)
    assert (gpu["index"], gpu["temperature_c"], gpu["sm_clock_mhz"]) == (1, 61.0, 1980.0)


def test_no_such_gpu_is_none(read: Read) -> None:
    assert read("GPU-dddd")["one"] is None


def test_a_driver_that_is_not_loaded_is_none(read: Read) -> None:
    assert read("GPU-aaaa", FAKE_NVML_FAIL="init") == {"one": None, "all": []}


def test_without_nvml_there_is_nothing_to_read(tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("not a library")
    assert sense("GPU-aaaa", LD_LIBRARY_PATH=str(tmp_path)) == {"one": None, "all": []}


def test_without_pynvml_there_is_nothing_to_read(tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text("raise ImportError('not installed')")
    assert sense("GPU-aaaa", PYTHONPATH=str(tmp_path)) == {"one": None, "all": []}
