"""Xid events: the driver's own reports of critical errors, collected without waiting."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Mapping
from typing import Any

from ddpmon.sensors.nvml import TIMEOUT, Nvml, Unread

_XID_CRITICAL = 0x8
_KEPT = 16
_MOST_AT_ONCE = 64
_RETRY_READS = 10


class XidWatch:
    """Collects the Xids of all boards since it first could."""

    def __init__(self) -> None:
        self._set: Any = None
        self._registered: set[str] = set()
        self._uuids: dict[int, str] = {}  # by the address that a handle is
        self._unread: dict[str, str] = {}
        self._seen: dict[str, deque[int]] = {}
        self._reads = 0

    def read(self, nvml: Nvml, boards: Mapping[str, Any]) -> None:
        """Collect what has happened on `boards`, handles by UUID. Never waits."""
        self._registered &= boards.keys()  # one that is lost is registered again when it comes back
        if self._reads % _RETRY_READS == 0 or not boards.keys() <= self._registered | self._unread.keys():
            self._register(nvml, boards)
        self._reads += 1
        if self._set is None:
            return
        try:
            for _ in range(_MOST_AT_ONCE):
                event = nvml.ask("nvmlEventSetWait_v2", self._set, 0)
                if uuid := self._uuids.get(_address(event.device)):
                    self._seen[uuid].append(int(event.eventData))
        except Unread as error:
            if error.code != TIMEOUT:
                self._give_up(nvml, str(error))

    def of(self, uuid: str) -> tuple[list[int] | None, str | None]:
        """The newest Xids of a board, oldest first, and why they are not known or no longer complete."""
        seen = self._seen.get(uuid)
        reason = self._unread.get(uuid) or (None if seen is not None else "not watched so far")
        return (None if seen is None or (reason and not seen) else [*seen]), reason

    def _register(self, nvml: Nvml, boards: Mapping[str, Any]) -> None:
        for uuid, handle in boards.items():
            if uuid in self._registered:
                continue
            try:
                if self._set is None:
                    self._set = nvml.ask("nvmlEventSetCreate")
                nvml.ask("nvmlDeviceRegisterEvents", handle, _XID_CRITICAL, self._set)
            except Unread as error:
                self._unread[uuid] = str(error)
                continue
            self._registered.add(uuid)
            self._uuids[_address(handle)] = uuid
            self._seen.setdefault(uuid, deque(maxlen=_KEPT))
            self._unread.pop(uuid, None)

    def _give_up(self, nvml: Nvml, reason: str) -> None:
        self._free(nvml)
        self._unread |= dict.fromkeys(self._registered, reason)
        self._registered.clear()

    def _free(self, nvml: Nvml) -> None:
        try:
            if self._set is not None:
                nvml.ask("nvmlEventSetFree", self._set)
        except Unread:
            pass
        self._set = None


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
