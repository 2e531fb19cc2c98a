"""The embedded store: torch's TCPStore on a socket that we bind ourselves."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from ddpmon.store.base import StoreSilent, StoreUnavailable

FIRST_PORT = 29480
_PORTS_TO_TRY = 100
_CHUNK = 1024  # keys a multi_get
_KNOCK_S = 2.5
_REDIS_PORTS = (6379, 6380)
_NONCE = b"dmon"
_GREETING = struct.pack("<BIB", 0, 0x3C85F7CE, 13) + _NONCE  # every client of a TCPStore says who it is, and pings


class TcpStore:
    """A client of a TCPStore, and its server too where `listen_fd` is given.

    Args:
        host: the server's address.
        port: the server's port.
        timeout_s: how long one operation may wait for the server. One that falls silent holds it for longer, in C++:
            whoever cannot wait works in a thread (`patience.PatientStore`).
        listen_fd: a bound socket: the server is then started on it, in this process.

    Raises:
        StoreSilent: somebody listens there and does not answer.
        StoreUnavailable: nobody listens there, or what answers is no TCPStore.
    """

    def __init__(self, host: str, port: int, *, timeout_s: float = 5.0, listen_fd: int | None = None) -> None:
        self.address = f"{host}:{port}"
        self._known: set[str] = set()
        if listen_fd is None:
            knock(host, port, timeout_s)
        self._store: Any = _open(host, port, timeout_s, listen_fd)

    def put(self, key: str, value: bytes) -> None:
        """Set `key` to `value`; fire and forget, a full socket buffer blocks."""
        try:
            self._store.set(key, value)
        except Exception as error:
            raise StoreUnavailable(f"the store at {self.address} has gone: {_first_line(error)}") from None

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        """The values of `keys` in one round trip a thousand; None for a key that is missing or empty.

        A key that has been deleted since it was seen holds a read for as long as an operation may wait, once.
        """
        try:
            found = self._read(keys)
            if found is None:
                self._known.clear()
                found = self._read(keys)
        except Exception as error:
            raise StoreUnavailable(f"the store at {self.address} does not answer: {_first_line(error)}") from None
        if found is None:
            raise StoreSilent(f"the store at {self.address} is too slow, or its keys are deleted while they are read")
        return [found.get(key) or None for key in keys]

    def be_patient(self, seconds: float) -> None:
        """From now on let a read wait this long for keys that are not there."""
        self._store.set_timeout(timedelta(seconds=seconds))

    def close(self) -> None:
        """Drop the connection, and the server if it is ours. Never raises."""
        self._store = None

    def _read(self, keys: Sequence[str]) -> dict[str, bytes] | None:
        """The values of those of `keys` that exist; None if the server was waiting in vain for one of them."""
        present = self._present(keys)
        found: dict[str, bytes] = {}
        for start in range(0, len(present), _CHUNK):
            chunk = present[start : start + _CHUNK]
            try:
                found.update(zip(chunk, self._store.multi_get(chunk), strict=True))
            except _waited_in_vain():
                return None
        return found

    def _present(self, keys: Sequence[str]) -> list[str]:
        """Those of `keys` that exist: multi_get would wait for one that does not."""
        self._learn([key for key in keys if key not in self._known])
        return [key for key in keys if key in self._known]

    def _learn(self, unknown: list[str]) -> None:
        """Find out which keys exist by now, by halves: few are missing."""
        if unknown and self._store.check(unknown):
            self._known.update(unknown)
        elif len(unknown) > 1:
            middle = len(unknown) // 2
            self._learn(unknown[:middle])
            self._learn(unknown[middle:])


def bind(host: str, first_port: int = FIRST_PORT) -> socket.socket:
    """A listening socket on `host`, at `first_port` or the next free port.

    Raises:
        OSError: `host` is not an address of this machine, or no port could be had.
    """
    family = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][0]
    ports = [*range(first_port, min(first_port + _PORTS_TO_TRY, 65536)), 0]
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


def serve(host: str, first_port: int = FIRST_PORT) -> tuple[TcpStore, int]:
    """Host a store on `host` in this process; returns it and its port.

    Raises:
        OSError: the address cannot be bound.
        StoreUnavailable: the server did not start.
    """
    listener = bind(host, first_port)
    port = int(listener.getsockname()[1])
    fd = listener.detach()
    _listening[fd] = _inode(fd)
    return TcpStore(host, port, listen_fd=fd), port


_listening: dict[int, int] = {}  # descriptor -> inode of the sockets that our servers listen on


def _inode(fd: int) -> int:
    try:
        return os.fstat(fd).st_ino
    except OSError:
        return -1


def _close_in_child() -> None:
    """A forked DataLoader worker must not keep the port open after this process has died."""
    for fd, inode in _listening.items():
        if _inode(fd) == inode:  # else the number is another file's by now
            with suppress(OSError):
                os.close(fd)
    _listening.clear()


os.register_at_fork(after_in_child=_close_in_child)


def knock(host: str, port: int, timeout_s: float) -> None:
    """See whether a store answers: TCPStore itself would retry where nobody listens, and wait for ever for the deaf.

    Raises:
        StoreSilent: somebody listens there and does not answer.
        StoreUnavailable: nobody listens there, or what answers is no TCPStore.
    """
    wait_s = min(timeout_s / 2, _KNOCK_S)
    try:
        with socket.create_connection((host, port), timeout=wait_s) as door:
            answer = _answer(door)
    except OSError as error:
        raise StoreUnavailable(f"no store at {host}:{port}: {error.strerror or error}") from None
    if answer is None:
        raise StoreSilent(
            f"the process at {host}:{port} does not answer: a store that is stopped or disconnected, or no store"
            f"{' (a Redis server is redis://)' if port in _REDIS_PORTS else ''}"
        )
    if not _NONCE.startswith(answer[: len(_NONCE)]):
        raise StoreUnavailable(f"{host}:{port} answers, but not as a ddpmon store: {_quoted(answer)}")


def _answer(door: socket.socket) -> bytes | None:
    """What is said to a greeting; empty if it hangs up, None if it says nothing."""
    try:
        door.sendall(_GREETING)
        return door.recv(200)
    except TimeoutError:
        return None
    except ConnectionError:
        return b""


def _quoted(answer: bytes) -> str:
    """The first line of what an unknown server says, as plain ASCII."""
    line = answer.strip().splitlines()[0] if answer.strip() else answer
    return f"it says {line[:60].decode('latin-1')!a}"


def load_torch() -> Any:
    """Torch's TCPStore class.

    Raises:
        StoreUnavailable: torch is not installed.
    """
    try:
        from torch.distributed import TCPStore  # type: ignore[attr-defined]
    except ImportError:
        raise StoreUnavailable("reading a tcp:// store needs torch: pip install 'ddpmon[torch]'") from None
    return TCPStore


def _open(host: str, port: int, timeout_s: float, listen_fd: int | None) -> Any:
    tcp_store = load_torch()
    options: dict[str, Any] = {"timeout": timedelta(seconds=timeout_s), "wait_for_workers": False}
    if listen_fd is not None:
        options["master_listen_fd"] = listen_fd
    try:
        return tcp_store(host, port, None, listen_fd is not None, **options)
    except Exception as error:
        raise StoreUnavailable(f"{host}:{port} answers, but not as a ddpmon store: {_first_line(error)}") from None


def _waited_in_vain() -> type[Exception]:
    """What torch raises once it has waited long enough for a key."""
    from torch.distributed import DistStoreError

    return DistStoreError


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:160] if lines else type(error).__name__
