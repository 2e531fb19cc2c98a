"""A client of torch's TCPStore, without torch: plain sockets, with bounds on what is read and how long it may take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import monotonic, sleep

from ddpmon.store.base import (
    MOST_ANSWER_BYTES,
    MOST_VALUE_BYTES,
    TOO_LONG,
    Place,
    StoreHungUp,
    StoreSilent,
    StoreUnavailable,
    Through,
    tcp_url,
)
from ddpmon.store.lookup import addresses
from ddpmon.store.tcp_connection import Connection
from ddpmon.store.tcp_wire import (
    CHECK,
    COUNT,
    MULTI_GET,
    NOT_READY,
    READY,
    SET,
    greeting,
    packed,
    packed_key,
    query_of_keys,
)

_NONCE = b"dmon"
_CHUNK = 1024  # keys a MULTI_GET: the server may build the whole answer to one before it sends it
_KNOCK_S = 2.5  # for connecting and the greeting: two round trips
# Between two attempts at a port that refuses. Chosen: on a link that refuses 1 % of connections, 0.01 % are left.
_AGAIN_S = 0.2
_REDIS_PORTS = (6379, 6380)
_RELEASES = "torch 2.6 to 2.15"  # whose servers are known to speak as `tcp_wire` says


class TcpClient:
    """A client of a TCPStore, for one thread at a time.

    No operation takes longer than `timeout_s`, whatever the server does; the lookup of a name takes `LOOKUP_S` at most
    besides. After an operation has failed the connection is closed, and the next operation connects again: a server
    that was merely stopped is taken up where it stood.

    Args:
        host: the server's address.
        port: the server's port.
        timeout_s: the longest that an operation takes.
        through: a tunnel that leads to that address; None where the address can be reached from here.

    Raises:
        StoreSilent: somebody listens there and does not answer.
        StoreHungUp: the connection is closed at once.
        StoreUnavailable: nobody listens there, or what answers is no TCPStore.
    """

    def __init__(self, host: str, port: int, *, timeout_s: float = 5.0, through: Through | None = None) -> None:
        self._host, self._port, self._timeout_s, self._through = host, port, timeout_s, through
        there = f" on {through.host}" if through else ""
        self._url, self._place = f"{tcp_url(host, port)}{there}", f"{host}:{port}{there}"
        self._until = 0.0
        self._known: set[str] = set()  # keys that the server of this connection has
        self._expected: str | None = None  # how keys begin that it is said to have
        self._met = False  # a store has answered here
        self._connection: Connection | None = None
        with self._operation():
            self._connect()

    def put(self, key: str, value: bytes) -> None:
        """Set `key` to `value`; the server does not answer, so a server that dies may be noticed by the next call."""
        with self._operation():
            connection = self._connection or self._connect()
            if not connection.is_quiet():
                raise ConnectionResetError("the connection has ended")
            connection.send(bytes((SET,)) + packed_key(key) + packed(value))
            connection.flush()

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        """The values of `keys`; None for a key that is missing or empty, TOO_LONG for one that no frame can be.

        One round trip a thousand keys, and one or two for those that are not known to exist. No more than 32 MiB are
        read.
        """
        with self._operation():
            connection = self._connection
            if connection is None or not connection.is_quiet():
                connection = self._connect()
            try:
                return self._read(connection, keys)
            except StoreUnavailable:
                raise
            except ConnectionError:  # so a server ends a read of a key that has been deleted since it was seen
                return self._read(self._connect(), keys)

    def expect(self, prefix: str) -> None:
        """Take it that the server has every key that begins so, for as long as this connection lasts.

        Where it has not, it ends the connection at the first read, and on the next one it is asked as usual.
        """
        self._expected = prefix

    def close(self) -> None:
        """Drop the connection. Never raises."""
        self._known.clear()
        self._expected = None
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @contextmanager
    def _operation(self) -> Iterator[None]:
        """An operation with its deadline; whatever goes wrong is one sentence, and the connection is not used again."""
        self._until = monotonic() + self._timeout_s
        if self._connection is not None:
            self._connection.until = self._until
        try:
            yield
        except BaseException as error:
            self.close()
            if isinstance(error, StoreUnavailable) or not isinstance(error, OSError | ValueError):
                raise
            raise self._in_words(error) from None

    def _in_words(self, error: OSError | ValueError) -> StoreUnavailable:
        """What has happened to a store that has answered before."""
        if isinstance(error, TimeoutError):
            return StoreSilent(f"the store at {self._url} does not answer")
        text = f"the store at {self._url} does not answer: {_reason(error)}"
        has_ended = isinstance(error, ConnectionError | ValueError)  # else there is no way to its host
        return StoreUnavailable(text) if has_ended else StoreSilent(text)

    def _connect(self) -> Connection:
        """Connect and see whether a store answers.

        Raises:
            OSError: there was a store before, and now there is none, or no answer.
            StoreUnavailable: there has not been a store.
        """
        self.close()
        began = monotonic()
        try:
            places = [self._through.place] if self._through else addresses(self._host, self._port)
            self._until += monotonic() - began
            self._connection = connection = self._dialled(places)
        except StoreSilent:  # the lookup
            raise
        except OSError as error:
            if self._met:
                raise
            raise StoreUnavailable(f"no store at {self._place}: {_reason(error)}") from None
        self._greet(connection)
        self._met, connection.until = True, self._until
        return connection

    def _dialled(self, places: Sequence[Place]) -> Connection:
        """A connection; a server that refuses once, as one does that is just starting, is tried again.

        Raises:
            OSError: there is none.
        """
        until = min(self._until, monotonic() + min(self._timeout_s / 2, _KNOCK_S))
        try:
            return Connection(places, until)
        except ConnectionRefusedError:
            sleep(_AGAIN_S)
            return Connection(places, until)

    def _greet(self, connection: Connection) -> None:
        """Say who we are, and see whether a TCPStore answers.

        Raises:
            OSError: a store that has answered before does not.
            StoreSilent: nothing is said.
            StoreHungUp: the connection is closed before anything is said.
            StoreUnavailable: it is no TCPStore.
        """
        answer = b""
        connection.send(greeting(_NONCE))
        try:
            while answer != _NONCE and _NONCE.startswith(answer):
                answer += connection.receive_any(200)
        except (TimeoutError, ConnectionError) as error:
            if self._met:
                raise
            if isinstance(error, TimeoutError):
                raise StoreSilent(self._deaf()) from None
            if not answer:
                raise StoreHungUp(self._full()) from None
            raise self._no_store(_reason(error)) from None
        if answer != _NONCE:
            raise self._no_store(f"it says {_quoted(answer)}")

    def _deaf(self) -> str:
        hint = " (a Redis server is redis://)" if self._port in _REDIS_PORTS else ""
        return (
            f"the process at {self._place} does not answer: a store that is stopped or disconnected, or no "
            f"store of {_RELEASES}{hint}"
        )

    def _full(self) -> str:
        return f"the process at {self._place} closes connections at once: it may be full, or no ddpmon store"

    def _no_store(self, what: str) -> StoreUnavailable:
        """What answers and is no store."""
        return StoreUnavailable(f"{self._place} answers, but not as a ddpmon store ({_RELEASES}): {what}")

    def _read(self, connection: Connection, keys: Sequence[str]) -> list[bytes | None]:
        """The values of `keys`, on this connection."""
        present: Sequence[str] = keys
        if unknown := [key for key in keys if not self._has(key)]:
            self._learn(connection, unknown)
            present = [key for key in keys if self._has(key)]
        found: dict[str, bytes] = {}
        left = MOST_ANSWER_BYTES
        for start in range(0, len(present), _CHUNK):
            chunk = present[start : start + _CHUNK]
            connection.send(query_of_keys(MULTI_GET, chunk))
            for key in chunk:
                (size,) = COUNT.unpack(connection.receive(COUNT.size))
                left -= size
                if left < 0:
                    much = "holds far more data for this run than frames need"
                    raise StoreUnavailable(f"the store at {self._url} {much}")
                found[key] = _value(connection, size)
        return [found.get(key) or None for key in keys]

    def _has(self, key: str) -> bool:
        """Whether the server is known, or said, to have this key."""
        return key in self._known or (self._expected is not None and key.startswith(self._expected))

    def _learn(self, connection: Connection, unknown: Sequence[str]) -> None:
        """Find out which keys exist by now, since a read of a missing one would end the connection.

        All are asked for at once, and each by itself only if one is missing: at 4,096 keys with 1 to 512 missing ones
        this took a third of the time of halving them again and again.
        """
        if self._are_there(connection, [unknown]) == [True]:
            self._known.update(unknown)
        elif len(unknown) > 1:
            found = self._are_there(connection, [[key] for key in unknown])
            self._known.update(key for key, is_there in zip(unknown, found, strict=True) if is_there)

    def _are_there(self, connection: Connection, groups: Sequence[Sequence[str]]) -> list[bool]:
        """Whether all keys of each group exist, in one round trip."""
        connection.send(b"".join(query_of_keys(CHECK, group) for group in groups))
        answers = connection.receive(len(groups))
        if answers.strip(READY + NOT_READY):
            raise self._no_store(f"it says {_quoted(answers)} where a key was asked for")
        return [answer == READY[0] for answer in answers]


def _value(connection: Connection, size: int) -> bytes:
    """The next value, unless it is longer than any frame: its bytes are then let go as they come."""
    if size <= MOST_VALUE_BYTES:
        return connection.receive(size)
    connection.skip(size)
    return TOO_LONG


def _quoted(answer: bytes) -> str:
    """The first line of what an unknown server says, as plain ASCII."""
    line = answer.strip().splitlines()[0] if answer.strip() else answer
    return f"{line[:60].decode('latin-1')!a}"


def _reason(error: Exception) -> str:
    """Why, in a few words."""
    text = getattr(error, "strerror", None) or str(error) or "timed out"
    return str(text).splitlines()[0][:160]
