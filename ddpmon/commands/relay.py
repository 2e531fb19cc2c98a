"""A port of this host's loopback that leads to a socket file: held from first to last, so that nobody else gets it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

HOME = "127.0.0.1"
_PIECE = 1 << 16


class Relay:
    """Passes on what comes to its port to whoever listens at a socket file; while nobody does, it hangs up.

    Args:
        way: tells the file; it may change.

    Attributes:
        port: of this host's loopback.

    Raises:
        OSError: no port can be had.
    """

    def __init__(self, way: Callable[[], Path]) -> None:
        self._way = way
        self._listener = socket.create_server((HOME, 0))
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, name="ddpmon-relay", daemon=True).start()

    def close(self) -> None:
        """Give the port back and hang up on everybody."""
        _hang_up(self._listener)  # closing alone would not wake the thread that waits for visitors
        self._listener.close()
        with self._lock:
            for end in self._open:
                _hang_up(end)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                visitor, _ = self._listener.accept()
                visitor.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._serve, args=(visitor,), name="ddpmon-relay", daemon=True).start()

    def _serve(self, visitor: socket.socket) -> None:
        with visitor, socket.socket(socket.AF_UNIX) as there, suppress(OSError):
            there.connect(str(self._way()))
            with self._lock:
                self._open |= {visitor, there}
            back = threading.Thread(target=_pass_on, args=(there, visitor), name="ddpmon-relay", daemon=True)
            back.start()
            _pass_on(visitor, there)
            back.join()
            with self._lock:
                self._open -= {visitor, there}


def is_open(way: Path) -> bool:
    """Whether somebody listens at a socket file."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(way))
        except OSError:
            return False
    return True


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    """Until either end is closed; then both are."""
    with suppress(OSError):
        while piece := source.recv(_PIECE):
            sink.sendall(piece)
    for end in (source, sink):
        _hang_up(end)


def _hang_up(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
