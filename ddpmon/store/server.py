"""The server of a run's store: one thread, plain Python, bounds on all that clients can make it hold.

It is run by a small process beside rank 0 (`ddpmon_store.py`). It prints nothing, whatever is sent to it.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from time import monotonic

from ddpmon.store.server_bounds import IDLE_S, OWING_S, SOCKET_BYTES, Bounds
from ddpmon.store.server_connection import Connection
from ddpmon.store.server_values import Refused, Values

FIRST_PORT = 29480
PORTS_TO_TRY = 100
_SWEEP_S = 1.0  # between looks for connections that owe something, and whether it is to end
# For which it serves those who are connected when it is told to end: the longest interval of a dashboard is 10 s.
LAST_READ_S = 12.0
_HAS_READ_S = 2.0  # without a query, after which a client that has asked since then is done: a slow link takes 1 s
_ACCEPTS_A_TURN = 64  # newcomers before it is the turn of those that are here
_READ, _WRITE = select.EPOLLIN, select.EPOLLOUT


def bind(host: str, first_port: int = FIRST_PORT) -> socket.socket:
    """A listening socket on `host`, at `first_port` or the next free port.

    Raises:
        OSError: `host` is not an address of this machine, or no port is free.
    """
    family = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][0]
    ports = [*range(first_port, min(first_port + PORTS_TO_TRY, 65536)), 0]
    for port in ports:
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen(socket.SOMAXCONN)
        except OSError:
            listener.close()
            if port == 0:
                raise
        else:
            return listener
    raise OSError(f"no free port on {host}")


class StoreServer:
    """Holds values for its clients.

    Args:
        listener: a listening socket, which it takes over.
        bounds: what it takes from its clients.
        secret: ends it, where a client sets `tcp_wire.END_KEY` to it.
        last_read_s: for how long those who are connected then can still read.
    """

    def __init__(
        self, listener: socket.socket, bounds: Bounds, secret: bytes, last_read_s: float = LAST_READ_S
    ) -> None:
        self._listener, self._bounds, self._secret, self._last_read_s = listener, bounds, secret, last_read_s
        self._values = Values(bounds.stored_bytes)
        self._connections: dict[int, Connection] = {}
        self._backlog: dict[Connection, None] = {}  # in their order: what has been read of them is not all answered
        self._owing: dict[Connection, None] = {}  # those that owe something, the longest first
        self._held = 0
        self._ended = False
        self._leaving_since: float | None = None  # when it was told to end
        self._now = monotonic()
        self._prepare(listener)
        self._poll = select.epoll()
        self._poll.register(listener.fileno(), _READ)

    def serve(self, is_over: Callable[[], bool]) -> None:
        """Serve until `is_over`, asked once a second, or until a client that knows the secret ends it.

        Those who are connected then can read once more, so that every dashboard has the last steps. Nobody else can
        connect, and the port is free.
        """
        next_sweep = monotonic()
        while not self._ended and (self._leaving_since is None or self._connections):
            wait_s = 0.0 if self._backlog else max(0.0, next_sweep - monotonic())
            events = self._poll.poll(wait_s)
            self._now = monotonic()
            self._turn(events)
            if self._now >= next_sweep:
                next_sweep = self._now + _SWEEP_S
                self._sweep()
                self._ended |= is_over()
                if self._leaving_since is not None:
                    self._part(self._leaving_since)
        self._close()

    def _prepare(self, listener: socket.socket) -> None:
        """What connections inherit of the socket that accepts them."""
        listener.setblocking(False)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for direction in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            listener.setsockopt(socket.SOL_SOCKET, direction, SOCKET_BYTES)

    def _turn(self, events: list[tuple[int, int]]) -> None:
        """Serve every connection that has something to say, or takes something, once."""
        backlog, self._backlog = self._backlog, {}
        for behind in backlog:
            self._serve(behind, behind.go_on)
        for fd, _ in events:
            connection = self._connections.get(fd)
            if connection is None:
                if fd == self._listener.fileno():
                    self._accept()
            elif connection not in backlog:
                self._serve(connection, connection.flush if connection.is_behind else connection.read)

    def _serve(self, connection: Connection, serve: Callable[[], None]) -> None:
        if connection.door.fileno() < 0:  # it was closed since, such as for room
            return
        try:
            serve()
        except Refused:
            self._drop(connection)
        else:
            self._settle(connection)
        woken, self._values.woken = self._values.woken, []
        for each in woken:
            self._serve(each, each.wake)

    def _settle(self, connection: Connection) -> None:
        """Take down how a connection stands after its turn: what is kept for it, what it owes, what is heard of it."""
        connection.active = self._now
        self._count(connection, connection.held)
        if connection.has_more:
            self._backlog[connection] = None
        if not connection.owes:
            self._owing.pop(connection, None)
        elif connection.progress or connection not in self._owing:
            self._owing.pop(connection, None)
            self._owing[connection], connection.owes_since = None, self._now
        connection.progress = False
        wanted = _WRITE if connection.is_behind else _READ
        if wanted != connection.wanted:
            connection.wanted = wanted
            self._poll.modify(connection.door.fileno(), wanted)
        while self._held > self._bounds.held_bytes and (victim := self._least_missed()) is not None:
            self._drop(victim)

    def _least_missed(self) -> Connection | None:
        """Who is closed first for room: one that waits for keys, as ddpmon's clients never do, or else owes longest."""
        for waiting in self._values.waiting.values():
            return next(iter(waiting))
        return next(iter(self._owing), None)

    def _count(self, connection: Connection, held: int) -> None:
        self._held += held - connection.counted
        connection.counted = held

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_A_TURN):
            try:
                door, _ = self._listener.accept()
            except OSError:  # nobody is left, or the newcomer has closed its connection
                return
            if len(self._connections) >= self._bounds.connections:
                door.close()
                continue
            door.setblocking(False)
            connection = Connection(door, self._values, self._end)
            connection.wanted = _READ
            self._connections[door.fileno()] = connection
            self._poll.register(door.fileno(), _READ)
            self._settle(connection)

    def _sweep(self) -> None:
        """Close what has owed something for too long, and what is idle while there is no room."""
        while (oldest := next(iter(self._owing), None)) is not None and self._now - oldest.owes_since > OWING_S:
            self._drop(oldest)
        if len(self._connections) >= self._bounds.connections:
            for connection in [each for each in self._connections.values() if self._now - each.active > IDLE_S]:
                self._drop(connection)

    def _drop(self, connection: Connection) -> None:
        fd = connection.door.fileno()
        if fd < 0:
            return
        self._values.stop_waiting(connection)
        self._count(connection, 0)
        self._owing.pop(connection, None)
        self._backlog.pop(connection, None)
        del self._connections[fd]
        self._poll.unregister(fd)
        connection.door.close()

    def _end(self, said: bytes) -> None:
        """A client sets END_KEY: leave if it knows the secret, else close its connection; always in the same time."""
        differences = sum(one != other for one, other in zip(said, self._secret, strict=False))
        if not differences and len(said) == len(self._secret) and self._leaving_since is None:
            self._leaving_since, self._ended = self._now, self._last_read_s <= 0
            self._poll.unregister(self._listener.fileno())
            self._listener.close()
        raise Refused

    def _part(self, since: float) -> None:
        """Close the connections that have read since then; in the end all."""
        self._ended |= self._now - since > self._last_read_s
        for connection in [*self._connections.values()]:
            if connection.active > since and self._now - connection.active > _HAS_READ_S:
                self._drop(connection)

    def _close(self) -> None:
        for connection in [*self._connections.values()]:
            self._drop(connection)
        self._poll.close()
        self._listener.close()
