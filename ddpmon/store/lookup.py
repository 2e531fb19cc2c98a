"""Looks up the addresses of a host within a limit: where DNS does not answer, the system's own lookup takes 10 to 30 s.

The lookup itself cannot be ended, so it runs in a daemon thread. One that comes to its end later is remembered, and the
next attempt takes its result.
"""

from __future__ import annotations

import os
import socket
import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from time import monotonic

from ddpmon.store.base import Place, StoreSilent

# A resolver asks its second server after 5 s (resolv.conf(5), "timeout"): this lets that one answer.
LOOKUP_S = 6.0
_KEPT_S = 60.0  # so long a result is used again; a name that moves to another host is followed after that


class _Lookups:
    """The lookups of this process, under way or done, by process, name and port."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun: dict[tuple[int, str, int], tuple[float, Future[list[Place]]]] = {}

    def find(self, host: str, port: int) -> Future[list[Place]]:
        """The lookup that is under way, the last result while it is fresh, or else a new lookup."""
        key, now = (os.getpid(), host, port), monotonic()
        with self._lock:
            self._begun = {each: (at, found) for each, (at, found) in self._begun.items() if _is_usable(at, found, now)}
            if key not in self._begun:
                found: Future[list[Place]] = Future()
                self._begun[key] = now, found
                _begin(host, port, found)
            return self._begun[key][1]


def _begin(host: str, port: int, found: Future[list[Place]]) -> None:
    try:
        threading.Thread(target=_look, args=(host, port, found), name="ddpmon-lookup", daemon=True).start()
    except RuntimeError as error:  # a limit of threads, or the interpreter ends
        found.set_exception(OSError(f"{host} cannot be looked up: {error}"))


def _is_usable(begun: float, found: Future[list[Place]], now: float) -> bool:
    return not found.done() or (found.exception() is None and now - begun < _KEPT_S)


def _look(host: str, port: int, found: Future[list[Place]]) -> None:
    try:
        found.set_result(_ask(host, port))
    except BaseException as error:
        found.set_exception(error)


def _ask(host: str, port: int, flags: int = 0) -> list[Place]:
    try:
        return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags))
    except UnicodeError:  # a name with an empty part, or one that is too long
        raise OSError("this is no name of a host") from None


_lookups = _Lookups()


def _renew() -> None:
    """A child may be forked while a thread of its parent's holds the lock."""
    global _lookups  # noqa: PLW0603
    _lookups = _Lookups()


os.register_at_fork(after_in_child=_renew)


def addresses(host: str, port: int, limit_s: float = LOOKUP_S) -> list[Place]:
    """The addresses of `host`, for TCP; a numeric one is not looked up.

    Raises:
        OSError: the name is not known.
        StoreSilent: there was no answer within `limit_s`; the message says that DNS is to blame.
    """
    try:
        return _ask(host, port, socket.AI_NUMERICHOST)
    except socket.gaierror:
        pass
    try:
        return _lookups.find(host, port).result(limit_s)
    except FutureTimeout:
        raise StoreSilent(
            f"this host's name lookup is slow (DNS): {host} was not found in {limit_s:g} s; check /etc/resolv.conf, "
            "or give a numeric address"
        ) from None
