"""A GPU with its MIG instances: found, read figure by figure, lost, and looked for again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddpmon.machine import CLOCK_REASONS, GpuFigures
from ddpmon.sensors.gpu_processes import GpuProcesses
from ddpmon.sensors.identities import Identities
from ddpmon.sensors.nvml import INVALID_ARGUMENT, LOST, NOT_SUPPORTED, Nvml, Unread
from ddpmon.sensors.reading import Since

_TEMPERATURE_GPU, _CLOCK_SM, _UNCORRECTED, _VOLATILE = 0, 1, 1, 0
_RETIREMENT_CAUSES = (0, 1)  # single bit errors, double bit errors
_MOST_LINKS = 64
_BUSES = "/sys/bus/pci/devices"
SLOW_READS = 10


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


class Device:
    """Reads the figures of one handle.

    Args:
        each: read every time.
        now_and_then: read when the slow figures have their turn.
        once: then too, until they are known.
        lifetime: count errors since the driver began, instead of since the first reading.
    """

    def __init__(
        self,
        each: Sequence[Reading],
        now_and_then: Sequence[Reading],
        once: Sequence[Reading],
        *,
        lifetime: bool = False,
    ) -> None:
        self.handle: Any = None
        self.known: dict[str, Any] = {}
        self.unread: dict[str, str] = {}
        self._each, self._now_and_then, self._once = each, now_and_then, once
        self._since: dict[str, Since] = {name: Since(lifetime=lifetime) for name in COUNTED}

    def read(self, nvml: Nvml, slow: bool) -> None:
        """Read what is due; `slow` is the slow figures' turn.

        Raises:
            Unread: the GPU is lost.
        """
        for reading in self._each:
            self._take(nvml, reading)
        if slow:
            for reading in self._now_and_then:
                self._take(nvml, reading)
            for reading in self._once:
                if reading.figures[0] not in self.known:
                    self._take(nvml, reading)

    def forget(self, reason: str) -> None:
        """The GPU is gone: only what never changes stays known."""
        for reading in (*self._each, *self._now_and_then):
            self._miss(reading, reason)
        for reading in self._once:
            if reading.figures[0] not in self.known:
                self._miss(reading, reason)

    def _take(self, nvml: Nvml, reading: Reading) -> None:
        try:
            found = reading.read(nvml, self.handle)
        except Unread as error:
            if error.code == LOST:
                raise
            self._miss(reading, str(error))
            return
        for figure, value in found.items():
            self.known[figure] = self._since[figure](*value) if figure in self._since else value
            self.unread.pop(figure, None)

    def _miss(self, reading: Reading, reason: str) -> None:
        for figure in reading.figures:
            self.known.pop(figure, None)
            self.unread[figure] = reason


class Part:
    """What a board and an instance have alike: a UUID, figures and processes."""

    def __init__(self, uuid: str, device: Device) -> None:
        self.uuid = uuid
        self.device = device
        self.processes = GpuProcesses()

    def read(self, nvml: Nvml, slow: bool, identities: Identities) -> None:
        """Read what is due.

        Raises:
            Unread: the GPU is lost.
        """
        self.device.read(nvml, slow)
        self.processes.read(nvml, self.device.handle, slow, identities)

    def forget(self, reason: str) -> None:
        """The GPU is gone."""
        self.device.forget(reason)
        self.processes.forget(reason)


class Board:
    """One GPU of the host, by its index in NVML. Its slow figures have their turn at every tenth read."""

    def __init__(self, index: int, *, lifetime: bool) -> None:
        self.handle: Any = None
        self._index = index
        self._found = False
        self._reads = self._slow_reads = 0
        each, once = (*EACH_READ, *BOARDS_EACH_READ), (*ONCE, *BOARDS_ONCE)
        device = Device(each, BOARDS_NOW_AND_THEN, once, lifetime=lifetime)
        self._whole = Part(f"GPU-unknown-{index}", device)
        self._instances: dict[str, Part] = {}

    @property
    def uuid(self) -> str:
        """Its UUID; a made-up one as long as NVML does not tell it."""
        return self._whole.uuid

    @property
    def _slow(self) -> bool:
        return self._reads == 0 or (self._reads + self._index) % SLOW_READS == 0

    def find(self, nvml: Nvml) -> None:
        """Look for it now and then as long as it is not there."""
        if self.handle is None and self._slow:
            try:
                self._find(nvml)
            except Unread as error:
                self._forget(str(error))

    def _find(self, nvml: Nvml) -> None:
        if self._found:
            self.handle = nvml.ask("nvmlDeviceGetHandleByUUID", self.uuid)
        else:
            handle = nvml.ask("nvmlDeviceGetHandleByIndex", self._index)
            self._whole.uuid = str(nvml.ask("nvmlDeviceGetUUID", handle))[:256]
            self.handle, self._found = handle, True
        self._whole.device.handle = self.handle

    def read(self, nvml: Nvml, identities: Identities) -> None:
        """Read what is due. Never raises: a board that is lost says so in its figures."""
        slow, self._reads = self._slow, self._reads + 1
        self._slow_reads += slow
        if self.handle is None:
            return
        try:
            if slow:
                self._find_instances(nvml)
            for part in (self._whole, *self._instances.values()):
                part.read(nvml, slow, identities)
        except Unread as error:
            self._forget(str(error))

    def _find_instances(self, nvml: Nvml) -> None:
        found: dict[str, Part] = {}
        for handle in _instances(nvml, self.handle):
            uuid = str(nvml.ask("nvmlDeviceGetUUID", handle))[:256]
            found[uuid] = self._instances.get(uuid) or Part(uuid, Device(EACH_READ, (), ONCE))
            found[uuid].device.handle = handle
        self._instances = found

    def _forget(self, reason: str) -> None:
        self.handle = None
        for part in (self._whole, *self._instances.values()):
            part.forget(reason)

    def figures(self, xids: list[int] | None, no_xids: str | None) -> Iterator[GpuFigures]:
        """Its own, then those of its instances, which have a board's temperature, power, clocks and errors from it."""
        shared = {**self._whole.device.known, "xids": xids}
        unread = self._whole.device.unread | ({} if no_xids is None else {"xids": no_xids})
        yield self._frozen(self._whole, shared, unread, None)
        own = {figure for reading in (*EACH_READ, *ONCE) for figure in reading.figures}
        shared = {figure: value for figure, value in shared.items() if figure not in own}
        unread = {figure: reason for figure, reason in unread.items() if figure not in own}
        for part in self._instances.values():
            yield self._frozen(part, shared | part.device.known, unread | part.device.unread, self.uuid)

    def _frozen(self, part: Part, known: dict[str, Any], unread: dict[str, str], board: str | None) -> GpuFigures:
        processes = part.processes
        return GpuFigures(
            index=self._index,
            uuid=part.uuid,
            board=board,
            processes=processes.found,
            process_count=processes.count,
            reads=self._reads,
            slow_reads=self._slow_reads,
            unread=unread | processes.unread,
            **known,
        )


def _instances(nvml: Nvml, board: Any) -> Iterator[Any]:
    """The handles of a board's MIG instances; none where it is not divided or does not say."""
    try:
        if not nvml.ask("nvmlDeviceGetMigMode", board)[0]:
            return
        most = nvml.number("nvmlDeviceGetMaxMigDeviceCount", board)
    except Unread as error:
        if error.code == LOST:
            raise
        return
    for index in range(most):
        try:
            yield nvml.ask("nvmlDeviceGetMigDeviceHandleByIndex", board, index)
        except Unread as error:
            if error.code == LOST:
                raise
