"""A store whose server runs in a thread of this process: it starts at once, and ends with its client."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Sequence

from ddpmon.store.server import FIRST_PORT, StoreServer, bind
from ddpmon.store.server_bounds import Bounds
from ddpmon.store.tcp_client import TcpClient
from ddpmon.store.tcp_wire import END_KEY, SET, greeting, packed

HOME = "127.0.0.1"
ALONE = "127.77.0.9"  # where no other test's store takes the port of one that has ended
SECRET = bytes(range(16))
DESCRIPTORS = 4096


def begin(
    host: str = HOME, first_port: int = FIRST_PORT, bounds: Bounds | None = None, last_read_s: float = 0.0
) -> int:
    """Start a server that `end` ends; its port."""
    listener = bind(host, first_port)
    port = int(listener.getsockname()[1])
    server = StoreServer(listener, bounds or Bounds(8, DESCRIPTORS), SECRET, last_read_s)
    threading.Thread(target=server.serve, args=(lambda: False,), name="store-server", daemon=True).start()
    return port


def end(port: int, host: str = HOME) -> None:
    """End it, and wait until it has ended."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=60) as door:
        door.sendall(greeting(b"end.") + bytes((SET,)) + packed(END_KEY) + packed(SECRET))
        while door.recv(64):
            pass


class Served:
    """A store whose server ends with it.

    Attributes:
        port: where its server listens.
    """

    def __init__(self, host: str = HOME, first_port: int = FIRST_PORT) -> None:
        self.port, self._host = begin(host, first_port), host
        self._client = TcpClient(host, self.port)

    def put(self, key: str, value: bytes) -> None:
        self._client.put(key, value)

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        return self._client.get_many(keys)

    def close(self) -> None:
        """Drop the connection, and end the server."""
        self._client.close()
        end(self.port, self._host)


def serve(host: str = HOME, first_port: int = FIRST_PORT) -> tuple[Served, int]:
    """A store with its port."""
    store = Served(host, first_port)
    return store, store.port
