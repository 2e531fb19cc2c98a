"""NVML, the GPU driver's library: finds it, asks it, words its errors, and waits for its Xid events."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Mapping
from typing import Any

_WORDS = {
    1: "NVML has been shut down",
    2: "this driver does not know the question",
    3: "not supported by this GPU or driver",
    4: "no permission",
    6: "not found",
    9: "the driver is not loaded",
    10: "the driver did not answer in time",
    12: "the NVML library was not found",
    13: "this driver is too old",
    15: "the GPU has fallen off the bus",
    16: "the GPU needs a reset",
    17: "blocked by the operating system",
    18: "NVML and driver are of different versions",
    20: "out of memory",
    21: "no data",
    999: "unknown NVML error",
}
INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND, TIMEOUT, TOO_OLD, LOST = 2, 3, 6, 10, 13, 15
_NOT_AVAILABLE = 0xFFFFFFFF
RETRY_READS = 30
_XID_CRITICAL = 0x8
_KEPT = 16
_MOST_AT_ONCE = 64
_RETRY_READS = 10


class Unread(Exception):  # noqa: N818 (a figure that is missing, not a fault of ours)
    """A figure that NVML did not give; the message says why, and `code` is NVML's number of it, None for no error."""

    def __init__(self, reason: str, code: int | None = None) -> None:
        super().__init__(reason)
        self.code = code


class Nvml:
    """The library, loaded when it is first needed and tried again at every thirtieth `open` while it is not there."""

    def __init__(self) -> None:
        self._module: Any = None
        self._reads = 0
        self.reason: str | None = None

    def open(self) -> bool:
        """Whether it can be asked; if not, `reason` says why. Never raises."""
        if self._module is None and self._reads % RETRY_READS == 0:
            self._load()
        self._reads += 1
        return self._module is not None

    def _load(self) -> None:
        try:
            import pynvml

            pynvml.nvmlInit()
        except Exception as error:
            self.reason = f"no NVML: {_words(error)}"
        else:
            self._module, self.reason = pynvml, None

    def ask(self, functions: str | tuple[str, ...], *arguments: Any) -> Any:
        """The answer of the first of `functions` that the driver has.

        Raises:
            Unread: it gave none.
        """
        for name in (functions,) if isinstance(functions, str) else functions:
            try:
                return getattr(self._module, name)(*arguments)
            except Exception as error:
                if _code(error) != TOO_OLD:
                    raise Unread(_words(error), _code(error)) from None
        raise Unread(_WORDS[TOO_OLD], TOO_OLD)

    def number(self, functions: str | tuple[str, ...], *arguments: Any) -> int:
        """The same for one whole number.

        Raises:
            Unread: it gave none.
        """
        value = int(self.ask(functions, *arguments))
        if value == _NOT_AVAILABLE:
            raise Unread("not available")
        return value


def _code(error: Exception) -> int | None:
    """NVML's number of the error; a function that pynvml or the library does not have counts as one too."""
    if isinstance(error, AttributeError) or type(error).__name__ == "NVMLLibraryMismatchError":
        return TOO_OLD
    value = getattr(error, "value", None)
    return value if isinstance(value, int) else None


def _words(error: Exception) -> str:
    if isinstance(error, ImportError):
        return "pynvml is not installed"
    code = _code(error)
    return f"unreadable answer ({type(error).__name__})" if code is None else _WORDS.get(code, f"NVML error {code}")


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
