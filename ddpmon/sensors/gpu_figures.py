"""The figures of a GPU: by which calls they are read, and how often."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddpmon.machine import CLOCK_REASONS
from ddpmon.sensors.nvml import INVALID_ARGUMENT, NOT_SUPPORTED, Nvml, Unread

_TEMPERATURE_GPU, _CLOCK_SM, _UNCORRECTED, _VOLATILE = 0, 1, 1, 0
_RETIREMENT_CAUSES = (0, 1)  # single bit errors, double bit errors
_MOST_LINKS = 64
_BUSES = "/sys/bus/pci/devices"


@dataclass(frozen=True, slots=True)
class Reading:
    """One or a few calls and the figures of `GpuFigures` that come of them; `read` raises Unread."""

    figures: tuple[str, ...]
    read: Callable[[Nvml, Any], Mapping[str, Any]]


def _number(figure: str, functions: str | tuple[str, ...], *arguments: Any, scale: float | None = None) -> Reading:
    def read(nvml: Nvml, handle: Any) -> Mapping[str, Any]:
        value = nvml.number(functions, handle, *arguments)
        return {figure: value if scale is None else value * scale}

    return Reading((figure,), read)


def _memory(nvml: Nvml, handle: Any) -> Mapping[str, Any]:
    memory = nvml.ask("nvmlDeviceGetMemoryInfo", handle)
    return {"memory_used": int(memory.used), "memory_total": int(memory.total)}


def _utilization(nvml: Nvml, handle: Any) -> Mapping[str, Any]:
    return {"utilization_pct": float(nvml.ask("nvmlDeviceGetUtilizationRates", handle).gpu)}


def _clock_reasons(nvml: Nvml, handle: Any) -> Mapping[str, Any]:
    names = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
    bits = int(nvml.ask(names, handle))
    return {"clock_reasons": [name for bit, name in enumerate(CLOCK_REASONS) if bits >> bit & 1]}


def _name(nvml: Nvml, handle: Any) -> Mapping[str, Any]:
    return {"name": str(nvml.ask("nvmlDeviceGetName", handle))[:256]}


def _ecc(nvml: Nvml, handle: Any) -> Mapping[str, Any]:
    return {"ecc_uncorrected": (int(nvml.ask("nvmlDeviceGetTotalEccErrors", handle, _UNCORRECTED, _VOLATILE)),)}


def _remapped_rows(nvml: Nvml, handle: Any) -> Mapping[str, Any]:
    _, uncorrectable, pending, _ = nvml.ask("nvmlDeviceGetRemappedRows", handle)
    return {"remapped_rows": (int(uncorrectable), int(pending))}


def _retired_pages(nvml: Nvml, handle: Any) -> Mapping[str, Any]:
    pages = (nvml.ask("nvmlDeviceGetRetiredPages", handle, cause) for cause in _RETIREMENT_CAUSES)
    return {"retired_pages": (sum(map(len, pages)),)}


def _nvlinks(nvml: Nvml, handle: Any) -> Mapping[str, Any]:
    up: list[bool] = []
    for link in range(_MOST_LINKS):
        try:
            up.append(bool(nvml.ask("nvmlDeviceGetNvLinkState", handle, link)))
        except Unread as error:
            if error.code == INVALID_ARGUMENT and up:
                break
            if error.code != NOT_SUPPORTED or not up:  # a link that this model does not use, among others that it does
                raise
    return {"nvlinks": len(up), "nvlinks_up": sum(up)}


def _numa_node(nvml: Nvml, handle: Any) -> Mapping[str, Any]:
    found = nvml.ask(("nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2"), handle).busId
    domain, _, rest = (found.decode() if isinstance(found, bytes) else str(found)).lower().partition(":")
    try:
        node = int(Path(_BUSES, f"{domain[-4:]}:{rest}", "numa_node").read_text())
    except (OSError, ValueError):
        raise Unread("this machine does not say") from None
    if node < 0:
        raise Unread("this machine does not say")
    return {"numa_node": node}


EACH_READ = (
    Reading(("memory_used", "memory_total"), _memory),
    Reading(("utilization_pct",), _utilization),
)
BOARDS_EACH_READ = (
    _number("temperature_c", ("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV"), _TEMPERATURE_GPU, scale=1.0),
    _number("power_w", "nvmlDeviceGetPowerUsage", scale=1e-3),
    _number("sm_clock_mhz", "nvmlDeviceGetClockInfo", _CLOCK_SM, scale=1.0),
    Reading(("clock_reasons",), _clock_reasons),
)
BOARDS_NOW_AND_THEN = (
    _number("power_limit_w", "nvmlDeviceGetEnforcedPowerLimit", scale=1e-3),
    _number("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth"),
    _number("pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration"),
    Reading(("ecc_uncorrected",), _ecc),
    Reading(("remapped_rows",), _remapped_rows),
    Reading(("retired_pages",), _retired_pages),
    Reading(("nvlinks", "nvlinks_up"), _nvlinks),
)
ONCE = (Reading(("name",), _name),)
BOARDS_ONCE = (
    _number("sm_clock_max_mhz", "nvmlDeviceGetMaxClockInfo", _CLOCK_SM, scale=1.0),
    _number("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth"),
    _number("pcie_generation_max", "nvmlDeviceGetMaxPcieLinkGeneration"),
    Reading(("numa_node",), _numa_node),
)
COUNTED = ("ecc_uncorrected", "remapped_rows", "retired_pages")  # read as tuples of totals since some time before
