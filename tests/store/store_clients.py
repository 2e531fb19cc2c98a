"""Clients of a store that say what they like, byte by byte."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from ddpmon.store.tcp_wire import COUNT, GETNUMKEYS, INT64, MULTI_GET, SET, greeting, packed, packed_key, query_of_keys

HOME = "127.0.0.1"
PATIENCE_S = 60.0


class Client:
    """One connection, greeted unless it is not to be."""

    def __init__(self, port: int, *, greets: bool = True) -> None:
        self.door = socket.create_connection((HOME, port), timeout=PATIENCE_S)
        if greets:
            self.say(greeting(b"hey!"))
            assert self.hear(4) == b"hey!"

    def say(self, *queries: bytes) -> None:
        self.door.sendall(b"".join(queries))

    def hear(self, size: int) -> bytes:
        """The next bytes of an answer."""
        said = bytearray()
        while len(said) < size:
            part = self.door.recv(size - len(said))
            assert part, "the server has closed the connection"
            said += part
        return bytes(said)

    def put(self, key: str, value: bytes) -> None:
        self.say(set_query(key, value))

    def get(self, *keys: str) -> list[bytes]:
        self.say(query_of_keys(MULTI_GET, keys))
        return [self.hear(COUNT.unpack(self.hear(COUNT.size))[0]) for _ in keys]

    def count(self) -> int:
        """How many keys there are; by then all is done that this client has said before."""
        self.say(bytes((GETNUMKEYS,)))
        (number,) = INT64.unpack(self.hear(INT64.size))
        return int(number)

    def is_closed(self) -> bool:
        """Whether the server closes the connection rather than say another word; waits for either."""
        try:
            return self.door.recv(1) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self.door.close()


def set_query(key: str, value: bytes) -> bytes:
    return bytes((SET,)) + packed_key(key) + packed(value)


def closed(port: int, *said: bytes) -> bool:
    """Whether the server closes a connection that says this after its greeting."""
    client = Client(port)
    try:
        client.say(*said)
    except ConnectionError:
        return True
    try:
        return client.is_closed()
    finally:
        client.close()


def names(number: int, of: str = "many") -> Sequence[str]:
    return [f"ddpmon/{of}/{each}" for each in range(number)]
