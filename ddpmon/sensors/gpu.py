"""GPUs through NVML. A rank's GPU is found by its UUID, so that CUDA_VISIBLE_DEVICES cannot mislead."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from ddpmon.machine import GpuFigures


class GpuSensor:
    """Reads one GPU (or MIG instance).

    Args:
        uuid: "GPU-...", "MIG-...", or the bare UUID as torch gives it; None where the rank has no GPU.
    """

    def __init__(self, uuid: str | None) -> None:
        self._uuid = uuid
        self._handle: Any = None

    def read(self) -> GpuFigures | None:
        """The figures now; None without NVML or such a GPU. Never raises."""
        nvml = _nvml() if self._uuid else None
        if nvml is None or self._uuid is None:
            return None
        if self._handle is None:
            self._handle = _find(nvml, self._uuid)
        return None if self._handle is None else _figures(nvml, self._handle, self._uuid)


def read_all() -> list[GpuFigures]:
    """All GPUs of this host in NVML's order; empty without NVML. Never raises."""
    nvml = _nvml()
    count = _attempt(nvml.nvmlDeviceGetCount) if nvml else None
    handles = [_attempt(nvml.nvmlDeviceGetHandleByIndex, index) for index in range(count or 0)]
    return [_figures(nvml, handle, "", index) for index, handle in enumerate(handles) if handle is not None]


@cache
def _nvml() -> Any:
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:
        return None
    return pynvml


def _find(nvml: Any, uuid: str) -> Any:
    names = [uuid] if uuid.startswith(("GPU-", "MIG-")) else [f"GPU-{uuid}", f"MIG-{uuid}"]
    handles = (_attempt(nvml.nvmlDeviceGetHandleByUUID, name) for name in names)
    return next((handle for handle in handles if handle is not None), None)


def _figures(nvml: Any, handle: Any, uuid: str, index: int = -1) -> GpuFigures:
    # A MIG instance has memory of its own; its board is what has a temperature, a clock and a place.
    board = _attempt(nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle, handle) or handle
    memory = _attempt(nvml.nvmlDeviceGetMemoryInfo, handle)
    utilization = _attempt(nvml.nvmlDeviceGetUtilizationRates, handle)
    found_index = _attempt(nvml.nvmlDeviceGetIndex, board)
    return GpuFigures(
        index=index if found_index is None else found_index,
        uuid=_text(_attempt(nvml.nvmlDeviceGetUUID, handle)) or uuid,
        name=_text(_attempt(nvml.nvmlDeviceGetName, handle)),
        utilization_pct=None if utilization is None else float(utilization.gpu),
        memory_used=None if memory is None else int(memory.used),
        memory_total=None if memory is None else int(memory.total),
        temperature_c=_number(nvml.nvmlDeviceGetTemperature, board, nvml.NVML_TEMPERATURE_GPU),
        power_w=_number(nvml.nvmlDeviceGetPowerUsage, board, scale=1e-3),
        power_limit_w=_number(nvml.nvmlDeviceGetEnforcedPowerLimit, board, scale=1e-3),
        sm_clock_mhz=_number(nvml.nvmlDeviceGetClockInfo, board, nvml.NVML_CLOCK_SM),
    )


def _number(read: Callable[..., Any], *arguments: Any, scale: float = 1.0) -> float | None:
    value = _attempt(read, *arguments)
    return None if value is None else float(value) * scale


def _text(value: str | None) -> str | None:
    return value[:256] if value else None


def _attempt(read: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return read(*arguments)
    except Exception:
        return None
