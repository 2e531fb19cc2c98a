"""GPUs that are not there, fall off the bus, are divided, or report errors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ddpmon.machine import GpuFigures
from ddpmon.sensors.nvml import RETRY_READS
from tests.fake_nvml.build import environment
from tests.fake_nvml.scenario import GIB, Scenario, SimulatedDevice, SimulatedGpu, SimulatedProcess
from tests.sensors.simulated_host import SLOW, Gpu, Host

OFF_THE_BUS = "the GPU has fallen off the bus"
COUNTS = {"process_count", "reads", "slow_reads"}
ALWAYS = {"index", "uuid", "board", "unread"}
SAY_REASON = "from ddpmon.sensors.gpu import GpuSensor; s = GpuSensor(); print(s.read(), s.reason)"

HANGING = """
import threading
from ddpmon.sensors.gpu import GpuSensor
reading = threading.Thread(target=GpuSensor().read, daemon=True)
reading.start()
reading.join(1.0)
print(reading.is_alive())
"""


def known(gpu: Gpu) -> set[str]:
    return {name for name, value in gpu.items() if value is not None} - ALWAYS


def unexplained(gpu: Gpu) -> set[str]:
    return {*GpuFigures.__struct_fields__} - known(gpu) - {*gpu["unread"]} - ALWAYS - COUNTS


def reason(**variables: str) -> str:
    command = [sys.executable, "-c", SAY_REASON]
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.strip()


def test_without_nvml_there_is_a_reason(tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("not a library")
    assert reason(LD_LIBRARY_PATH=str(tmp_path)) == "[] no NVML: the NVML library was not found"


def test_without_pynvml_there_is_a_reason(tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text("raise ImportError('not installed')")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    assert reason(PYTHONPATH=path) == "[] no NVML: pynvml is not installed"


def test_a_driver_that_is_loaded_later_is_found_after_a_while(library: Path, tmp_path: Path) -> None:
    with Host(library, tmp_path / "gpus") as host:
        host.scenario = Scenario([SimulatedGpu("GPU-aaaa")], fails={"nvmlInitWithFlags": 9})
        assert host.read() == []
        assert host.reason == "no NVML: the driver is not loaded"
        host.scenario.fails = {}
        assert host.read(RETRY_READS - 1) == [], "asked again at once"
        assert [gpu["uuid"] for gpu in host.read()] == ["GPU-aaaa"]
        assert host.reason is None


def test_a_driver_that_hangs_holds_up_nobody_but_its_reader(library: Path, tmp_path: Path) -> None:
    gpu = SimulatedGpu("GPU-aaaa", sleeps_ms={"nvmlDeviceGetPowerUsage": 3_600_000})
    Scenario([gpu]).write(tmp_path / "gpus")
    here = {**os.environ, **environment(library, tmp_path / "gpus")}
    done = subprocess.run([sys.executable, "-c", HANGING], env=here, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_a_host_without_gpus_says_so(host: Host) -> None:
    host.scenario = Scenario()
    assert (host.read(), host.reason) == ([], "NVML knows no GPU")
    host.scenario = Scenario(fails={"nvmlDeviceGetCount_v2": 4})
    assert (host.read(SLOW), host.reason) == ([], "GPUs cannot be counted: no permission")


def test_a_gpu_that_falls_off_the_bus_keeps_its_place_and_comes_back(host: Host) -> None:
    host.gpu.nvlinks, host.gpu.retired_single, host.gpu.retired_double = "1 1", 0, 0
    host.gpu.processes = [SimulatedProcess(os.getpid())]
    before = host.read(2)
    host.gpu.xids = [79]
    host.gpu.lost = 1
    lost, other = host.read()
    assert (lost["index"], lost["uuid"], lost["name"], lost["xids"]) == (0, "GPU-aaaa", "simulated GPU", [79])
    assert known(lost) == {"name", "sm_clock_max_mhz", "pcie_width_max", "pcie_generation_max", "xids"}
    assert {lost["unread"][name] for name in known(before[0]) - known(lost) - {"process_count"}} == {OFF_THE_BUS}
    assert unexplained(lost) == set()
    assert other == before[1]
    assert host.read(2 * SLOW) == [lost, other]
    host.gpu.lost = 0
    back, other = host.read(SLOW)
    assert back == before[0] | {"xids": [79]}
    host.gpu.xids.append(31)
    assert host.read()[0]["xids"] == [79, 31]


def test_a_gpu_that_is_lost_from_the_beginning_has_a_place_too(host: Host) -> None:
    host.gpu.lost = 1
    lost, other = host.read()
    assert (lost["index"], lost["uuid"], known(lost)) == (0, "GPU-unknown-0", set())
    assert (unexplained(lost), lost["unread"]["memory_used"]) == (set(), OFF_THE_BUS)
    assert other["utilization_pct"] == 0
    host.gpu.lost = 0
    back, _ = host.read(SLOW)
    assert (back["uuid"], back["name"], back["xids"]) == ("GPU-aaaa", "simulated GPU", [])


def test_what_is_unknown_always_has_a_reason(host: Host) -> None:
    host.scenario.gpus[0] = SimulatedGpu("GPU-aaaa", name=None, temperature=None, ecc_uncorrected=None)
    host.gpu.fails = {"nvmlDeviceGetComputeRunningProcesses_v3": 4, "nvmlDeviceRegisterEvents": 3}
    for gpu in host.read(3):
        assert unexplained(gpu) == set()


def test_mig_instances_have_their_own_memory_and_their_boards_temperature(host: Host) -> None:
    host.gpu.utilization, host.gpu.temperature, host.gpu.xids = None, 66, []
    host.gpu.instances = [
        SimulatedDevice("MIG-cccc", "simulated GPU MIG 1g.10gb", 10 * GIB, GIB, None),
        SimulatedDevice("MIG-dddd", "simulated GPU MIG 2g.20gb", 20 * GIB, 0, None, [SimulatedProcess(os.getpid())]),
    ]
    host.read()
    host.gpu.xids = [31]
    board, one, two, other = host.read()
    assert [gpu["uuid"] for gpu in (board, one, two, other)] == ["GPU-aaaa", "MIG-cccc", "MIG-dddd", "GPU-bbbb"]
    assert [gpu["board"] for gpu in (board, one, two, other)] == [None, "GPU-aaaa", "GPU-aaaa", None]
    assert [gpu["memory_total"] for gpu in (board, one, two)] == [80 * GIB, 10 * GIB, 20 * GIB]
    assert (one["name"], one["memory_used"], one["processes"]) == ("simulated GPU MIG 1g.10gb", GIB, [])
    assert [process["process"]["pid"] for process in two["processes"]] == [os.getpid()]
    assert (one["index"], one["temperature_c"], one["sm_clock_mhz"], one["xids"]) == (0, 66.0, 1980.0, [31])
    assert one["unread"]["utilization_pct"] == "not supported by this GPU or driver"
    assert unexplained(one) == set()


def test_mig_instances_come_and_go(host: Host) -> None:
    assert len(host.read()) == 2
    host.gpu.instances = [SimulatedDevice("MIG-cccc")]
    assert [gpu["uuid"] for gpu in host.read(SLOW)] == ["GPU-aaaa", "MIG-cccc", "GPU-bbbb"]
    host.gpu.lost = 1
    _, instance, _ = host.read()
    assert (instance["memory_used"], instance["unread"]["memory_used"]) == (None, OFF_THE_BUS)
    host.gpu.lost, host.gpu.instances = 0, []
    assert [gpu["uuid"] for gpu in host.read(SLOW)] == ["GPU-aaaa", "GPU-bbbb"]


def test_errors_are_counted_since_the_first_read(host: Host) -> None:
    host.gpu.ecc_uncorrected, host.gpu.remapped_rows = 5, 2
    host.gpu.retired_single, host.gpu.retired_double = 3, 1
    (seen, _) = host.read()
    assert (seen["ecc_uncorrected"], seen["remapped_rows"], seen["retired_pages"]) == (0, 0, 0)
    host.gpu.ecc_uncorrected, host.gpu.remapped_rows, host.gpu.remap_pending = 8, 3, 1
    host.gpu.retired_single, host.gpu.retired_double = 4, 2
    (seen, _) = host.read(SLOW)
    assert (seen["ecc_uncorrected"], seen["remapped_rows"], seen["retired_pages"]) == (3, 1, 2)
    host.gpu.ecc_uncorrected = 1  # a reset: the volatile count begins again
    (seen, other) = host.read(SLOW)
    assert (seen["ecc_uncorrected"], other["ecc_uncorrected"]) == (4, 0)


def test_a_count_that_is_first_read_late_begins_then(host: Host) -> None:
    host.gpu.ecc_uncorrected = None
    assert host.read()[0]["ecc_uncorrected"] is None
    host.gpu.ecc_uncorrected = 7
    assert host.read(SLOW)[0]["ecc_uncorrected"] == 0
    host.gpu.ecc_uncorrected = 9
    assert host.read(SLOW)[0]["ecc_uncorrected"] == 2


def test_xids_are_those_since_the_first_read(host: Host) -> None:
    host.gpu.xids = [13]
    assert [gpu["xids"] for gpu in host.read()] == [[], []]
    host.gpu.xids = [13, 31, 31]
    host.scenario.gpus[1].xids = [94]
    assert [gpu["xids"] for gpu in host.read()] == [[31, 31], [94]]
    host.gpu.xids += [*range(100, 120)]
    assert [gpu["xids"] for gpu in host.read()] == [[*range(104, 120)], [94]]


@pytest.mark.parametrize("function", ["nvmlEventSetCreate", "nvmlEventSetWait_v2"])
def test_xids_that_cannot_be_watched_are_tried_again(host: Host, function: str) -> None:
    host.scenario.fails = {function: 4}
    for gpu in host.read(2):
        assert (gpu["xids"], gpu["unread"]["xids"]) == (None, "no permission")
    host.scenario.fails = {}
    assert [gpu["xids"] for gpu in host.read(SLOW)] == [[], []]
    host.gpu.xids = [62]
    assert [gpu["xids"] for gpu in host.read()] == [[62], []]


def test_xids_seen_before_the_watching_broke_stay(host: Host) -> None:
    host.read()
    host.gpu.xids = [48]
    host.read()
    host.scenario.fails = {"nvmlEventSetWait_v2": 15}
    seen, other = host.read()
    assert (seen["xids"], seen["unread"]["xids"]) == ([48], OFF_THE_BUS)
    assert (other["xids"], other["unread"]["xids"]) == (None, OFF_THE_BUS)
