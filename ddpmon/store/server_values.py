"""The values that a store server holds, with a bound on what they take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpmon.store.server_bounds import ENTRY_BYTES
from ddpmon.store.tcp_wire import PREFIX

if TYPE_CHECKING:
    from ddpmon.store.server_connection import Connection

OURS = PREFIX + b"ddpmon/"


class Refused(Exception):  # noqa: N818 (a state of a connection, no mistake of this program)
    """The client breaks the protocol or a bound, or has hung up: its connection is to be closed, silently."""


class Values:
    """The values that a server holds, by key.

    Args:
        most_bytes: of all of them, with their keys and what else they cost.

    Attributes:
        size: bytes of all of them.
        waiting: key -> who waits for it.
        woken: connections that wait for nothing any more.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._values: dict[bytes, bytes] = {}
        self.size = 0
        self.waiting: dict[bytes, set[Connection]] = {}
        self.woken: list[Connection] = []

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: bytes) -> bool:
        return key in self._values

    def get(self, key: bytes) -> bytes:
        """The value of `key`.

        Raises:
            Refused: there is none.
        """
        try:
            return self._values[key]
        except KeyError:
            raise Refused from None

    def set(self, key: bytes, value: bytes) -> None:
        """Set `key` to `value`.

        Raises:
            Refused: `key` is not ddpmon's, or all values together would take too much.
        """
        known = self._values.get(key)
        if known is None:
            if not key.startswith(OURS):
                raise Refused
            size = self.size + len(key) + len(value) + ENTRY_BYTES
        else:
            size = self.size + len(value) - len(known)
        if size > self._most_bytes and size > self.size:
            raise Refused
        self._values[key], self.size = value, size
        if known is None and key in self.waiting:
            for each in self.waiting.pop(key):
                each.missing.discard(key)
                self.woken += [] if each.missing else [each]

    def delete(self, key: bytes) -> bool:
        """Remove `key`; whether it was there."""
        value = self._values.pop(key, None)
        if value is None:
            return False
        self.size -= len(key) + len(value) + ENTRY_BYTES
        return True

    def stop_waiting(self, connection: Connection) -> None:
        """Let `connection` wait for nothing any more."""
        for key in connection.missing:
            others = self.waiting.get(key, set())
            others.discard(connection)
            if not others:
                self.waiting.pop(key, None)
        connection.missing.clear()
