"""What one client of a store server says, and what it is answered: the queries of `tcp_wire`, with bounds."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable

from ddpmon.store.server_bounds import (
    ENTRY_BYTES,
    KEY_BYTES,
    LIST_KEYS,
    PART_BYTES,
    QUERIES_A_TURN,
    READ_BYTES,
    VALUE_BYTES,
    WAITED_KEYS,
)
from ddpmon.store.server_values import Refused, Values
from ddpmon.store.tcp_wire import (
    ADD,
    CANCEL_WAIT,
    CHECK,
    COUNT,
    DELETE_KEY,
    END_KEY,
    GET,
    GETNUMKEYS,
    INT64,
    MAGIC,
    MULTI_GET,
    NOT_READY,
    PING,
    READY,
    SET,
    STOP_WAITING,
    VALIDATE,
    WAIT,
    WAIT_CANCELED,
)

_MAGIC = struct.Struct("<I")
_NONCE_BYTES = 4


class _Short(Exception):  # noqa: N818 (the rest is on its way)
    """A query is not complete; `end` is where it ends at the earliest."""

    def __init__(self, end: int) -> None:
        super().__init__(end)
        self.end = end


class Connection:
    """One client.

    Args:
        door: its socket, which does not block.
        values: what it sets and reads.
        end: asked with the value of `tcp_wire.END_KEY`, it raises Refused.

    Attributes:
        active: when it was served last; owes_since: since when it has completed no query and taken no answer, while it
            should. Both are kept by the server.
        counted: bytes that the server has counted for it.
        progress: whether it has completed a query or taken a part of an answer in this turn.
        wanted: what the server polls its socket for.
        missing: the keys that it waits for.
    """

    def __init__(self, door: socket.socket, values: Values, end: Callable[[bytes], None]) -> None:
        self.door = door
        self.active = self.owes_since = 0.0
        self.counted = self.wanted = 0
        self.progress = False
        self.missing: set[bytes] = set()
        self._values, self._end = values, end
        self._greeted = False
        self._inbox, self._needed = bytearray(), 0
        self._data, self._at = b"", 0
        self._answer, self._taken, self._owed = b"", 0, list[bytes]()
        self._list, self._left, self._ready = -1, 0, True
        self._keys, self._key_bytes = list[bytes](), 0

    @property
    def held(self) -> int:
        """The bytes that are kept for this client."""
        waited = sum(len(key) + ENTRY_BYTES for key in self.missing)
        return len(self._inbox) + len(self._answer) + self._key_bytes + waited

    @property
    def owes(self) -> bool:
        """Whether it is the client's turn: to greet, to complete a query, or to take its answer."""
        return not self._greeted or bool(self._inbox) or self.is_behind or self._left > 0

    @property
    def is_behind(self) -> bool:
        """Whether the client has not taken its answer: nothing more is read from it."""
        return bool(self._answer or self._owed)

    @property
    def has_more(self) -> bool:
        """Whether a query may lie in the inbox, for its next turn."""
        return len(self._inbox) > 0 and self._needed <= len(self._inbox) and not self.is_behind

    def read(self) -> None:
        """Read what the client has sent, and answer it.

        Raises:
            Refused: its connection is to be closed.
        """
        try:
            data = self.door.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            raise Refused from None
        if not data:
            raise Refused
        if not self._inbox:
            self._serve(data)
            return
        self._inbox += data
        if len(self._inbox) >= self._needed:
            self.go_on()

    def go_on(self) -> None:
        """Answer what lies in the inbox.

        Raises:
            Refused: its connection is to be closed.
        """
        data = bytes(self._inbox)
        self._inbox.clear()
        self._serve(data)

    def flush(self) -> None:
        """Send the next part of the answer, as far as the client takes it.

        Raises:
            Refused: its connection is to be closed.
        """
        if not self._answer:
            self._answer = self._next_part()
        try:
            self._taken += self.door.send(memoryview(self._answer)[self._taken :])
        except BlockingIOError:
            return
        except OSError:
            raise Refused from None
        if self._taken == len(self._answer):
            self._answer, self._taken, self.progress = b"", 0, True

    def wake(self) -> None:
        """Answer that all keys are there that the client waits for.

        Raises:
            Refused: its connection is to be closed.
        """
        self._say(STOP_WAITING)

    def _say(self, data: bytes) -> None:
        """Send a short answer."""
        self._answer += data
        self.flush()

    def _next_part(self) -> bytes:
        parts, size = list[bytes](), 0
        while self._owed and size < PART_BYTES:
            key = self._owed.pop()
            value = self._values.get(key)
            parts += (COUNT.pack(len(value)), value)
            size += len(value)
            self._key_bytes -= len(key) + ENTRY_BYTES
        return b"".join(parts)

    def _serve(self, data: bytes) -> None:
        """Answer the queries in `data`, as many as are one turn's; the rest goes to the inbox."""
        self._data, self._at, self._needed = data, 0, 0
        turns = QUERIES_A_TURN
        try:
            while self._at < len(data) and turns and not self.is_behind:
                self._query()
                turns -= 1
                self.progress = True
        except _Short as short:
            self._needed = short.end - self._at
        self._inbox += data[self._at :] if self._at else data
        self._data = b""

    def _query(self) -> None:
        if self._left:
            self._listed()
            return
        query = self._data[self._at]
        if query not in _HANDLERS or not (self._greeted or query == VALIDATE):
            raise Refused
        _HANDLERS[query](self)

    def _text(self, at: int, most: int) -> tuple[bytes, int]:
        """The string whose length stands at `at`, and where it ends."""
        start = at + COUNT.size
        if start > len(self._data):
            raise _Short(start)
        end = start + COUNT.unpack_from(self._data, at)[0]
        if end - start > most:
            raise Refused
        if end > len(self._data):
            raise _Short(end)
        return self._data[start:end], end

    def _fixed(self, size: int) -> bytes:
        """The operand of a query that has only one, of `size` bytes."""
        end = self._at + 1 + size
        if end > len(self._data):
            raise _Short(end)
        found, self._at = self._data[self._at + 1 : end], end
        return found

    def _validate(self) -> None:
        if _MAGIC.unpack(self._fixed(_MAGIC.size)) != (MAGIC,):
            raise Refused
        self._greeted = True

    def _ping(self) -> None:
        self._say(self._fixed(_NONCE_BYTES))

    def _set(self) -> None:
        key, at = self._text(self._at + 1, KEY_BYTES)
        value, at = self._text(at, VALUE_BYTES)
        if key == END_KEY:
            self._end(value)
        self._values.set(key, value)
        self._at = at

    def _get(self) -> None:
        key, self._at = self._text(self._at + 1, KEY_BYTES)
        self._owe([key])

    def _add(self) -> None:
        key, at = self._text(self._at + 1, KEY_BYTES)
        end = at + INT64.size
        if end > len(self._data):
            raise _Short(end)
        try:
            total = int(self._values.get(key) if key in self._values else b"0") + INT64.unpack_from(self._data, at)[0]
            answer = INT64.pack(total)
        except (ValueError, struct.error):
            raise Refused from None
        self._values.set(key, b"%d" % total)
        self._at = end
        self._say(answer)

    def _delete(self) -> None:
        key, self._at = self._text(self._at + 1, KEY_BYTES)
        self._say(INT64.pack(self._values.delete(key)))

    def _count(self) -> None:
        self._at += 1
        self._say(INT64.pack(len(self._values)))

    def _cancel_wait(self) -> None:
        self._at += 1
        self._values.stop_waiting(self)
        self._say(WAIT_CANCELED)

    def _begin_list(self) -> None:
        query = self._data[self._at]
        (self._left,) = COUNT.unpack(self._fixed(COUNT.size))
        if self.missing or (query == MULTI_GET and self._left > LIST_KEYS):
            raise Refused
        self._list, self._ready, self._keys = query, True, []
        self._listed()

    def _listed(self) -> None:
        """Go on with a list of keys: what is missing for CHECK and WAIT, all of them for MULTI_GET."""
        while self._left:
            key, self._at = self._text(self._at, KEY_BYTES)
            self._left -= 1
            if self._list == MULTI_GET:
                self._keys.append(key)
                self._key_bytes += len(key) + ENTRY_BYTES
            elif key not in self._values:
                self._lacks(key)
        if self._list == MULTI_GET:
            self._owe(self._keys[::-1])
            self._keys = []
        elif self._list == CHECK:
            self._say(READY if self._ready else NOT_READY)
        elif not self.missing:
            self._say(STOP_WAITING)

    def _lacks(self, key: bytes) -> None:
        self._ready = False
        if self._list == WAIT:
            self.missing.add(key)
            self._values.waiting.setdefault(key, set()).add(self)
            if len(self.missing) > WAITED_KEYS:
                raise Refused

    def _owe(self, keys: list[bytes]) -> None:
        self._owed = keys
        if keys:
            self.flush()


_HANDLERS: dict[int, Callable[[Connection], None]] = {
    VALIDATE: Connection._validate,
    PING: Connection._ping,
    SET: Connection._set,
    GET: Connection._get,
    ADD: Connection._add,
    DELETE_KEY: Connection._delete,
    GETNUMKEYS: Connection._count,
    CANCEL_WAIT: Connection._cancel_wait,
    CHECK: Connection._begin_list,
    WAIT: Connection._begin_list,
    MULTI_GET: Connection._begin_list,
}
