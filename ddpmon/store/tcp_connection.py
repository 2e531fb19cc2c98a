"""A TCP connection whose every operation has a deadline, and which keeps no more than it was asked to read."""

from __future__ import annotations

import select
import socket
from collections.abc import Sequence
from time import monotonic

from ddpmon.store.base import Place
from ddpmon.store.lookup import addresses

_PIECE = 1 << 17  # bytes that are read or sent at once: what a connection holds beside the value that is being read


class HungUp(ConnectionError):  # noqa: N818 (a state of the world and no mistake)
    """The other end has closed the connection in good order."""

    def __str__(self) -> str:
        return "it has closed the connection"


class Connection:
    """One connection, for one thread at a time.

    It prints nothing and starts no thread. It makes no view of its buffers: a program that lists its objects, as many
    do that look for a leak, would keep the view, and a buffer that is viewed cannot be shortened. A forked child
    inherits the descriptor and must not use it; it does no harm there except that the other end notices the end later.

    Args:
        places: the addresses of the server, as `lookup.addresses` has them: the first where somebody listens is used.
        until: when the present operation has to be over, on the monotonic clock in seconds.

    Attributes:
        until: the same, for whoever begins the next operation.

    Raises:
        OSError: nobody listens there, or no connection was made in time.
    """

    def __init__(self, places: Sequence[Place], until: float) -> None:
        self.until = until
        self._unsent = bytearray()
        self._unread, self._at = b"", 0  # what has come, and up to where it has been handed out
        self._coming = bytearray()  # what comes
        self._socket = _connected(places, until)
        self._poll = select.poll()
        self._poll.register(self._socket)

    def send(self, data: bytes) -> None:
        """Put `data` behind what is to be sent; `flush`, and all that reads, sends it."""
        self._unsent += data

    def flush(self) -> None:
        """Send everything.

        Raises:
            OSError: the connection has ended, or the other end does not take it in time.
        """
        while self._unsent:
            self._go_on(reading=False)

    def receive(self, size: int) -> bytes:
        """The next `size` bytes.

        Raises:
            OSError: the connection has ended, or they do not come in time.
        """
        if self._at + size > len(self._unread):
            self._fetch(size)
        end = self._at + size
        data = self._unread[self._at : end]
        self._at = end
        return data

    def receive_any(self, most: int) -> bytes:
        """The next bytes, as soon as there is one, and as far as they are here.

        Raises:
            OSError: the connection has ended, or none comes in time.
        """
        if self._at == len(self._unread):
            self._fetch(1)
        return self.receive(min(most, len(self._unread) - self._at))

    def skip(self, size: int) -> None:
        """Let go of the next `size` bytes, piece by piece.

        Raises:
            OSError: the connection has ended, or they do not come in time.
        """
        while size:
            if self._at == len(self._unread):
                self._fetch(1)
            here = min(size, len(self._unread) - self._at)
            self._at += here
            size -= here

    def is_quiet(self) -> bool:
        """Whether the other end has neither hung up nor sent what was not asked for."""
        if self._at < len(self._unread) or self._unsent:
            return False
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def close(self) -> None:
        """End it, in this process."""
        self._socket.close()

    def _fetch(self, size: int) -> None:
        """Read on until the next `size` bytes are here."""
        self._coming += self._unread[self._at :]
        while len(self._coming) < size:
            self._go_on(reading=True)
        self._unread, self._at = bytes(self._coming), 0
        self._coming = bytearray()

    def _go_on(self, *, reading: bool) -> None:
        """Send and read what can be; or else wait for that."""
        left_s = self.until - monotonic()
        if left_s <= 0:
            raise TimeoutError
        sent = bool(self._unsent) and self._send_piece()
        if not (reading and self._read_piece()) and not sent:
            events = (select.POLLIN if reading else 0) | (select.POLLOUT if self._unsent else 0)
            self._poll.modify(self._socket, events)
            self._poll.poll(left_s * 1e3 + 1)

    def _send_piece(self) -> bool:
        try:
            taken = self._socket.send(self._unsent[:_PIECE])
        except BlockingIOError:
            return False
        del self._unsent[:taken]
        return True

    def _read_piece(self) -> bool:
        try:
            data = self._socket.recv(_PIECE)
        except BlockingIOError:
            return False
        if not data:
            raise HungUp
        self._coming += data
        return True


def _connected(places: Sequence[Place], until: float) -> socket.socket:
    """A socket that is connected to the first of these addresses where somebody listens."""
    trouble = OSError("it has no address")
    for number, (family, kind, protocol, _, address) in enumerate(places):
        left_s = until - monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        door = socket.socket(family, kind, protocol)
        try:
            door.settimeout(left_s / (len(places) - number))
            door.connect(address)
            door.setblocking(False)
            if family != socket.AF_UNIX:
                door.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            door.close()
            trouble = error
        except BaseException:
            door.close()
            raise
        else:
            return door
    raise trouble


def knock(host: str, port: int, limit_s: float) -> None:
    """See whether somebody listens there.

    Raises:
        OSError: nobody does, or there is no way there within `limit_s` and the limit of a lookup.
    """
    _connected(addresses(host, port), monotonic() + limit_s).close()
