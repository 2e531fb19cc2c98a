"""Servers that answer some and leave others waiting for good, as a host does that was cut off."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

HOME = "127.0.0.1"
KNOCK = b"dmon"  # in the greeting of a watcher that looks whether anybody answers


class Gate:
    """A way to a store, in which connections can be lost without either end being told.

    Args:
        port: where the store listens.
        path: of a Unix socket where the way is entered, as a tunnel is; None for a port.

    Attributes:
        port: where it is entered; 0 with a path.
        answers: how many pieces the store has sent, one at least for every question.
        questions: how often the visitor has spoken, where there is one who waits for each answer.
    """

    def __init__(self, port: int, path: str | None = None) -> None:
        self._to = port
        family = socket.AF_INET if path is None else socket.AF_UNIX
        self._door = socket.create_server((HOME, 0) if path is None else path, family=family)
        self._pairs: list[tuple[socket.socket, socket.socket, threading.Event]] = []
        self.answers = self.questions = 0
        self._is_answered = True
        self.port = 0 if path else self._door.getsockname()[1]
        threading.Thread(target=self._admit, daemon=True).start()

    def lose(self) -> None:
        """From now on nothing passes on the connections that there are; new ones are served."""
        for _, _, cut in self._pairs:
            cut.set()

    def lead_to(self, port: int) -> None:
        """Hang up on everybody; from now on the way leads to another store."""
        self._to = port
        for pair in self._pairs:
            for end in pair[:2]:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End everything."""
        with suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()
        for inner, outer, _ in self._pairs:
            for end in (inner, outer):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()

    def _admit(self) -> None:
        with suppress(OSError):
            while True:
                outer, _ = self._door.accept()
                inner, cut = socket.create_connection((HOME, self._to)), threading.Event()
                self._pairs.append((inner, outer, cut))
                for source, sink in ((inner, outer), (outer, inner)):
                    threading.Thread(target=self._carry, args=(source, sink, cut, source is inner), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket, cut: threading.Event, answer: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                self.answers += answer
                self.questions += self._is_answered and not answer
                self._is_answered = answer
                if not cut.is_set():
                    sink.sendall(data)
            if not cut.is_set():
                sink.shutdown(socket.SHUT_WR)


@contextmanager
def impostor(answer: Callable[[socket.socket], object], greets: bytes = KNOCK) -> Iterator[int]:
    """A port that greets as a store does, or otherwise, and then treats each visitor as `answer` does."""

    def entertain(visitor: socket.socket) -> None:
        with visitor, suppress(OSError):
            visitor.recv(100)
            visitor.sendall(greets)
            answer(visitor)

    with visited(lambda visitor: threading.Thread(target=entertain, args=(visitor,), daemon=True).start()) as port:
        yield port


@contextmanager
def visited(admit: Callable[[socket.socket], None]) -> Iterator[int]:
    """A port whose visitors are admitted one after the other."""

    def wait() -> None:
        with suppress(OSError):
            while True:
                admit(door.accept()[0])

    with socket.create_server((HOME, 0)) as door:
        threading.Thread(target=wait, daemon=True).start()
        try:
            yield door.getsockname()[1]
        finally:
            with suppress(OSError):
                door.shutdown(socket.SHUT_RDWR)
