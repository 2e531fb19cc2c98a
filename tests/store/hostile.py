"""A server that means ill, by seeded chance, and a client of the store that meets it."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress

from ddpmon.store.base import TOO_LONG, StoreSilent, StoreUnavailable
from ddpmon.store.tcp_client import TcpClient
from ddpmon.store.tcp_wire import CHECK, COUNT, MULTI_GET

HOSTS = [f"127.0.0.{number}" for number in range(1, 9)]  # each has ports of its own for connections that have ended
TIMEOUT_S = 0.05
SLACK_S = 1.0  # a machine that is busy lets a thread wait
_LENGTHS = (0, 1, 1 << 20, (1 << 20) + 65, 3 << 20, 32 << 20, 1 << 31, 1 << 32, 1 << 62, 1 << 63, (1 << 64) - 1)
_PATIENCE_S = 2.0  # a visitor who says nothing is left
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: the connection ends without a farewell


class Hostile:
    """Answers its visitors by chance: truly, in part, too much, noise, slowly, or not at all.

    Args:
        chance: decides; one visitor after the other is served.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._stack = ExitStack()
        self.ports = [self._listen(host) for host in HOSTS]

    def close(self) -> None:
        """End it."""
        self._stack.close()

    def _listen(self, host: str) -> int:
        door = self._stack.enter_context(socket.create_server((host, 0)))
        self._stack.callback(lambda: door.shutdown(socket.SHUT_RDWR))
        threading.Thread(target=self._admit, args=(door,), daemon=True).start()
        return int(door.getsockname()[1])

    def _admit(self, door: socket.socket) -> None:
        with suppress(OSError):
            while True:
                visitor, _ = door.accept()
                with visitor, suppress(OSError):
                    visitor.settimeout(_PATIENCE_S)
                    self._serve(visitor)

    def _serve(self, visitor: socket.socket) -> None:
        nonce = visitor.recv(100)[-4:]
        visitor.sendall(self._or_worse(nonce, 0.05))
        while query := visitor.recv(1 << 16):
            answer = self._answer(query)
            if self._chance.random() < 0.1:
                self._trickle(visitor, answer)
            else:
                visitor.sendall(answer)
            if self._chance.random() < 0.2:
                break
        if self._chance.random() < 0.3:
            visitor.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)

    def _trickle(self, visitor: socket.socket, answer: bytes) -> None:
        for place in range(min(len(answer), 20)):
            visitor.sendall(answer[place : place + 1])
            time.sleep(TIMEOUT_S / 10)

    def _answer(self, query: bytes) -> bytes:
        chance = self._chance
        if query[0] == CHECK:
            count = query.count(bytes((CHECK,)) + COUNT.pack(1)) or 1
            return self._or_worse(bytes(chance.choices((0, 1), (9, 1), k=count)), 0.1)
        if query[0] == MULTI_GET:
            keys = COUNT.unpack_from(query, 1)[0] if len(query) >= 9 else 1
            return self._or_worse(b"".join(self._value() for _ in range(min(keys, 100))), 0.2)
        return b"" if chance.random() < 0.9 else chance.randbytes(9)

    def _value(self) -> bytes:
        chance = self._chance
        if chance.random() < 0.02:
            return COUNT.pack(chance.choice((*_LENGTHS, chance.getrandbits(64)))) + chance.randbytes(50)
        size = chance.choices((0, 7, 1000, (1 << 20) + 65), (10, 60, 30, 0.1))[0]
        return COUNT.pack(size) + bytes(size)

    def _or_worse(self, answer: bytes, how_often: float) -> bytes:
        """The true answer, or a part of it, or more, or noise, or nothing."""
        chance = self._chance
        if chance.random() > how_often:
            return answer
        cut = answer[: chance.randrange(len(answer) + 1)]
        return chance.choice((cut, answer + chance.randbytes(20), chance.randbytes(len(answer) + 1), b""))


@contextmanager
def hostile(seed: int) -> Iterator[Hostile]:
    """Such a server."""
    with closing(Hostile(random.Random(seed))) as found:
        yield found


def visit(server: Hostile, chance: random.Random) -> Iterator[tuple[str, float]]:
    """What some operations of one client come to, and how many seconds each took.

    Raises:
        AssertionError: an operation brought what cannot be, or a complaint that is no sentence.
    """
    place = chance.randrange(len(HOSTS))
    client: TcpClient | None = None
    for _ in range(chance.randrange(1, 5)):
        began = time.monotonic()
        try:
            if client is None:
                client = TcpClient(HOSTS[place], server.ports[place], timeout_s=TIMEOUT_S)
                outcome = "greeted"
            elif chance.random() < 0.2:
                client.put("key", bytes(chance.choice((0, 100, 100_000))))
                outcome = "put"
            else:
                outcome = _read(client, chance.choice((1, 1, 2, 5, 40)))
        except StoreUnavailable as error:
            outcome = _told(error)
        yield outcome, time.monotonic() - began
    if client is not None:
        client.close()


def _told(error: StoreUnavailable) -> str:
    """What it says is for a terminal."""
    assert str(error).isprintable(), error
    return "silent" if isinstance(error, StoreSilent) else "refused"


def _read(client: TcpClient, count: int) -> str:
    values = client.get_many([f"key/{number}" for number in range(count)])
    assert len(values) == count
    assert all(value is None or 0 < len(value) <= len(TOO_LONG) for value in values)
    return "read"


def besiege_client(cases: int, seed: int) -> tuple[Counter[str], int, float]:
    """How the operations of so many clients ended, how many took too long, and the longest in seconds."""
    chance, outcomes, hung, slowest = random.Random(seed), Counter[str](), 0, 0.0
    with hostile(seed) as server:
        for _ in range(cases):
            for outcome, seconds in visit(server, chance):
                outcomes[outcome] += 1
                hung += seconds > TIMEOUT_S + SLACK_S
                slowest = max(slowest, seconds)
    return outcomes, hung, slowest
