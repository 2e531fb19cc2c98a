"""Every figure of a GPU through the real pynvml and ctypes, and each call that fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpmon.machine import CLOCK_REASONS, GpuFigures
from tests.fake_nvml.build import build
from tests.fake_nvml.scenario import GIB, SimulatedGpu
from tests.sensors.simulated_host import SLOW, Gpu, Host

FIGURES = {
    "nvmlDeviceGetName": ["name"],
    "nvmlDeviceGetUtilizationRates": ["utilization_pct"],
    "nvmlDeviceGetMemoryInfo": ["memory_used", "memory_total"],
    "nvmlDeviceGetTemperature": ["temperature_c"],
    "nvmlDeviceGetPowerUsage": ["power_w"],
    "nvmlDeviceGetEnforcedPowerLimit": ["power_limit_w"],
    "nvmlDeviceGetClockInfo": ["sm_clock_mhz"],
    "nvmlDeviceGetMaxClockInfo": ["sm_clock_max_mhz"],
    "nvmlDeviceGetCurrentClocksEventReasons": ["clock_reasons"],
    "nvmlDeviceGetCurrPcieLinkWidth": ["pcie_width"],
    "nvmlDeviceGetMaxPcieLinkWidth": ["pcie_width_max"],
    "nvmlDeviceGetCurrPcieLinkGeneration": ["pcie_generation"],
    "nvmlDeviceGetMaxPcieLinkGeneration": ["pcie_generation_max"],
    "nvmlDeviceGetTotalEccErrors": ["ecc_uncorrected"],
    "nvmlDeviceGetRemappedRows": ["remapped_rows"],
    "nvmlDeviceGetRetiredPages": ["retired_pages"],
    "nvmlDeviceGetNvLinkState": ["nvlinks", "nvlinks_up"],
    "nvmlDeviceGetPciInfo_v3": ["numa_node"],
    "nvmlDeviceGetComputeRunningProcesses_v3": ["processes", "process_count"],
    "nvmlDeviceRegisterEvents": ["xids"],
}
ERRORS = {
    3: "not supported by this GPU or driver",
    4: "no permission",
    16: "the GPU needs a reset",
    77: "NVML error 77",
}
OLD = (
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetMPSComputeRunningProcesses_v2",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3",
    "nvmlDeviceGetRemappedRows",
    "nvmlDeviceGetMigMode",
    "nvmlEventSetWait_v2",
)


def numa_bus() -> tuple[str, int] | None:
    """A PCI device of this machine that tells its NUMA node."""
    for file in sorted(Path("/sys/bus/pci/devices").glob("*/numa_node")):
        if (node := int(file.read_text())) >= 0:
            return f"0000{file.parent.name.upper()}", node
    return None


def whole() -> SimulatedGpu:
    """A GPU that says everything."""
    return SimulatedGpu(
        "GPU-aaaa",
        name="NVIDIA Unit Test",
        memory_total=800,
        memory_used=80,
        utilization=91,
        temperature=61,
        power_mw=300_500,
        power_limit_mw=650_000,
        sm_clock=1755,
        sm_clock_max=1980,
        clock_reasons=0b1_0010_0100,
        pcie_width=8,
        pcie_generation=4,
        retired_single=2,
        retired_double=1,
        nvlinks="1 1 0 1",
    )


def without(gpu: Gpu, *names: str) -> Gpu:
    kept = {name: value for name, value in gpu.items() if name not in (*names, "unread")}
    return kept | {"unread": {figure: why for figure, why in gpu.get("unread", {}).items() if figure not in names}}


def test_every_figure_is_what_nvml_says(host: Host) -> None:
    host.scenario.gpus = [whole(), SimulatedGpu("GPU-bbbb")]
    first, second = host.read()
    assert without(first, "numa_node") == {
        "index": 0,
        "uuid": "GPU-aaaa",
        "name": "NVIDIA Unit Test",
        "utilization_pct": 91.0,
        "memory_used": 80,
        "memory_total": 800,
        "temperature_c": 61.0,
        "power_w": 300.5,
        "power_limit_w": 650.0,
        "sm_clock_mhz": 1755.0,
        "sm_clock_max_mhz": 1980.0,
        "clock_reasons": ["software power cap", "software thermal", "display clocks"],
        "pcie_width": 8,
        "pcie_width_max": 16,
        "pcie_generation": 4,
        "pcie_generation_max": 5,
        "ecc_uncorrected": 0,
        "remapped_rows": 0,
        "retired_pages": 0,
        "xids": [],
        "nvlinks_up": 3,
        "nvlinks": 4,
        "board": None,
        "processes": [],
        "process_count": 0,
        "unread": {},
    }
    assert (second["index"], second["uuid"], second["name"]) == (1, "GPU-bbbb", "simulated GPU")
    assert {*first} == {*GpuFigures.__struct_fields__} - {"reads", "slow_reads"}
    assert host.reason is None


def test_the_numa_node_is_the_machines_own(host: Host) -> None:
    host.gpu.bus_id = "0000FFFF:FF:1F.7"
    assert host.read()[0]["unread"]["numa_node"] == "this machine does not say"
    if (found := numa_bus()) is None:
        pytest.skip("no PCI device of this machine tells a NUMA node")
    host.gpu.bus_id, node = found
    assert host.read(SLOW)[0]["numa_node"] == node


def test_figures_follow_the_gpu(host: Host) -> None:
    host.read()
    host.gpu.utilization, host.gpu.clock_reasons = 37, 0
    (seen, _) = host.read()
    assert (seen["utilization_pct"], seen["clock_reasons"]) == (37.0, [])
    host.gpu.pcie_width, host.gpu.power_limit_mw = 4, 300_000
    (seen, _) = host.read(SLOW)
    assert (seen["pcie_width"], seen["power_limit_w"]) == (4, 300.0)


def test_every_clock_reason_has_its_name(host: Host) -> None:
    host.gpu.clock_reasons = 0xFFFF
    assert tuple(host.read()[0]["clock_reasons"]) == CLOCK_REASONS


@pytest.mark.parametrize("function", FIGURES)
def test_a_failing_call_leaves_only_its_own_figures_unknown(host: Host, function: str) -> None:
    host.scenario.gpus[0] = whole()
    healthy = host.read()
    for code, reason in ERRORS.items():
        host.start_again()
        host.scenario.gpus[0] = whole()
        host.gpu.fails = {function: code}
        seen, other = host.read()
        names = FIGURES[function]
        assert [seen[name] for name in names] == [None] * len(names)
        assert {seen["unread"].get(name) for name in names if name != "process_count"} == {reason}
        assert without(seen, *names) == without(healthy[0], *names)
        assert other == healthy[1]


def test_a_figure_comes_back_when_its_call_succeeds_again(host: Host) -> None:
    host.gpu.fails = dict.fromkeys(FIGURES, 999)
    (seen, _) = host.read()
    assert set(seen["unread"].values()) == {"unknown NVML error"}
    host.scenario.gpus[0] = whole()
    (seen, _) = host.read(SLOW)
    assert without(seen, "numa_node")["unread"] == {}
    assert (seen["name"], seen["pcie_width_max"], seen["xids"]) == ("NVIDIA Unit Test", 16, [])


def test_a_name_is_taken_as_it_is_unless_it_is_no_text(host: Host) -> None:
    host.gpu.name, host.scenario.gpus[1].name = "\x1b[31m[bold]tab\there", "\udcff\udcfe"
    named, nameless = host.read()
    assert named["name"] == "\x1b[31m[bold]tab\there"
    assert (nameless["name"], nameless["unread"]["name"]) == (None, "unreadable answer (UnicodeDecodeError)")
    assert nameless["memory_total"] == 80 * GIB


@pytest.mark.usefixtures("library")
def test_functions_that_an_older_driver_does_not_have(tmp_path: Path) -> None:
    with Host(build(tmp_path, missing=OLD), tmp_path / "gpus") as host:
        host.scenario.gpus = [whole()]
        (seen,) = host.read(SLOW)
    assert without(seen, "numa_node")["unread"] == dict.fromkeys(
        ["remapped_rows", "xids", "mps processes"], "this driver is too old"
    )
    assert seen["clock_reasons"] == ["software power cap", "software thermal", "display clocks"]
    assert (seen["processes"], seen["retired_pages"], seen["remapped_rows"], seen["xids"]) == ([], 0, None, None)


def test_readings_are_counted_and_the_slow_figures_apart(host: Host) -> None:
    host.read()
    assert host.counts == [(1, 1)] * 2
    host.read(10)
    assert host.counts == [(11, 2)] * 2
