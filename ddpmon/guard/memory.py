"""What a guard remembers of its runs, and the small file in which it survives a restart."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from ddpmon.diagnose.alert import Severity
from ddpmon.store.base import TargetError

VERSION = 1
MAX_BYTES = 32 << 20
Channel = Literal["command", "webhook"]


class OpenAlert(Struct):
    """An alert that has begun and whose end has not been told.

    Attributes:
        alert: its name in all messages about it.
        kind: as in findings, or "no_word".
        severity: the worst that it has had.
        ranks, nodes: whom it names.
        life: the number of its life in the book of the watcher that sees it; 0 for none, or none yet.
        has_life: whether its rule keeps lives.
        began_at: when it was first seen, in Unix time.
        is_told: whether its beginning was told; then its end is, too.
        finding: how it was last described, as an object for JSON.
    """

    alert: str
    kind: str
    severity: Severity
    began_at: float
    ranks: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()
    life: int = 0
    has_life: bool = False
    is_told: bool = False
    finding: dict[str, Any] = field(default_factory=dict)


class RunMemory(Struct):
    """One run as the guard knows it.

    Attributes:
        address: where it is read, without a password.
        elsewhere: the command that shows it from another host, where the address leads nowhere from there; else "".
        seen_at: when it was seen last, in Unix time.
        is_live: whether it had not ended then.
    """

    id: str
    name: str
    address: str
    world_size: int = 0
    state: str = "running"
    step: int | None = None
    seen_at: float = 0.0
    is_live: bool = True
    alerts: list[OpenAlert] = field(default_factory=list)
    elsewhere: str = ""


class Outgoing(Struct):
    """A message that a channel has not taken yet; `created_at` is Unix time."""

    channel: Channel
    created_at: float
    message: dict[str, Any]

    @property
    def key(self) -> tuple[str, str]:
        """What tells it from all others."""
        return self.channel, str(self.message.get("id"))


class Memory(Struct):
    """All that a guard remembers."""

    version: int = VERSION
    runs: dict[str, RunMemory] = field(default_factory=dict)
    outbox: list[Outgoing] = field(default_factory=list)


class StateFile:
    """The file of one guard, locked as long as that lives; written whole, beside the old one, and put in its place.

    Args:
        path: where it is; its folder is made.

    Raises:
        TargetError: it cannot be used, or another guard uses it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TargetError(f"another guard uses {path}: give each one a file of its own with --state FILE") from None
        except OSError as error:
            raise TargetError(f"the state file {path} cannot be used: {error.strerror or error}") from None

    def close(self) -> None:
        """Let another guard have it."""
        os.close(self._lock)

    def load(self) -> tuple[Memory, str]:
        """What was remembered, and a sentence if that cannot be read; the file that cannot is kept under `.bad`."""
        try:
            with self.path.open("rb") as file:
                data = file.read(MAX_BYTES + 1)
            memory = msgspec.json.decode(data, type=Memory)
            if memory.version != VERSION:
                raise ValueError(f"it has version {memory.version}")
        except FileNotFoundError:
            return Memory(), ""
        except (OSError, ValueError, RecursionError) as error:
            return Memory(), f"the state file {self.path} cannot be read and is set aside: {self._set_aside(error)}"
        return memory, ""

    def _set_aside(self, why: Exception) -> str:
        try:
            self.path.replace(self.path.with_name(f"{self.path.name}.bad"))
        except OSError as error:
            return f"{why}; {error.strerror}"
        return str(why)

    def save(self, memory: Memory) -> str:
        """Write all of it, mode 0600; returns a sentence if that fails, else ""."""
        beside = self.path.with_name(f"{self.path.name}.new")
        try:
            handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(msgspec.json.encode(memory))
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self.path)
        except OSError as error:
            return f"the state file {self.path} cannot be written, so a restart may repeat messages: {error.strerror}"
        return ""
