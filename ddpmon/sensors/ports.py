"""Ports that the run wanted and did not get: who listens there."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from time import monotonic, thread_time

from ddpmon.machine import TakenPort
from ddpmon.sensors.identities import Identities
from ddpmon.sensors.reading import read_file

_LOOK_EVERY_S, _LONGEST_S = 10.0, 300.0
_PAST_S = 30.0
_MOST = 8
_SHARE = 0.001  # of a core, that looking for holders may take
_LISTENS = "0A"


class PortSensor:
    """Looks for the holders of ports.

    Args:
        wanted: port -> what for; it may change.
    """

    def __init__(self, wanted: Mapping[int, str], identities: Identities) -> None:
        self._wanted, self._identities = wanted, identities
        self._holders: dict[int, tuple[str, int | None]] = {}  # port -> socket of the first look, whose it is
        self._missed: dict[int, float] = {}  # ports without a listener at the first look -> until when to tell of them
        self._seen: set[int] = set()
        self._next = self._search_from = 0.0
        self._pause = _LOOK_EVERY_S

    def read(self) -> list[TakenPort]:
        """The wanted ports that somebody listens on, with its process where that can be seen.

        One that was let go before the first look is reported for half a minute; who takes one later did not hinder us.

        Raises:
            OSError: the kernel lists no sockets.
        """
        wanted = dict(list(self._wanted.items())[:_MOST])
        if wanted and (monotonic() >= self._next or wanted.keys() - self._seen):
            self._look(wanted)
        return [taken for port, what in wanted.items() if (taken := self._taken(port, what)) is not None]

    def _taken(self, port: int, what: str) -> TakenPort | None:
        if port in self._holders:
            _, pid = self._holders[port]
            return TakenPort(port, what, None if pid is None else self._identities.of(pid))
        return TakenPort(port, what, held=False) if monotonic() < self._missed.get(port, 0.0) else None

    def _look(self, wanted: Mapping[int, str]) -> None:
        """Find who listens. A socket known by now costs nothing, one that is nobody's whom we may see less and less."""
        began = thread_time()
        listening = _listeners()
        known = {socket: pid for socket, pid in self._holders.values() if pid is not None and _holds(pid, socket)}
        held = {port: socket for port in wanted if (socket := self._socket(port, listening.get(port, ())))}
        found = known | self._search({*held.values()} - known.keys())
        self._holders = {port: (socket, found.get(socket)) for port, socket in held.items()}
        now = monotonic()
        self._missed |= {port: now + _PAST_S for port in wanted.keys() - self._seen if port not in listening}
        self._seen |= wanted.keys()
        self._next = now + max(_LOOK_EVERY_S, (thread_time() - began) / _SHARE)

    def _socket(self, port: int, listening: Sequence[str]) -> str | None:
        """The socket that hinders us: one that was there at the first look, as long as it is."""
        if port not in self._seen:
            return listening[-1] if listening else None
        socket, _ = self._holders.get(port, (None, None))
        return socket if socket in listening else None

    def _search(self, sought: set[str]) -> dict[str, int]:
        if not sought or monotonic() < self._search_from:
            return {}
        found = _owners(sought)
        self._pause = min(_LONGEST_S, self._pause * 2) if sought - found.keys() else _LOOK_EVERY_S
        self._search_from = monotonic() + self._pause
        return found


def _listeners() -> dict[int, list[str]]:
    """Port -> the inodes of the sockets that listen there, on one address or another."""
    found = defaultdict[int, list[str]](list)
    for table in ("tcp6", "tcp"):
        with suppress(FileNotFoundError):  # there may be no IPv6
            for line in read_file(f"/proc/net/{table}").splitlines()[1:]:
                fields = line.split(None, 10)
                if fields[3] == _LISTENS:
                    found[int(fields[1].rpartition(":")[2], 16)].append(f"socket:[{fields[9]}]")
    return found


def _owners(sockets: set[str]) -> dict[str, int]:
    """Of these sockets, as links of /proc call them, the processes that hold them, as far as they can be seen."""
    found: dict[str, int] = {}
    with os.scandir("/proc") as entries:
        pids = [int(entry.name) for entry in entries if entry.name.isdigit()]
    for pid in pids:
        for link in _links(pid) & sockets:
            found.setdefault(link, pid)
        if len(found) == len(sockets):
            break
    return found


def _holds(pid: int, socket: str) -> bool:
    return socket in _links(pid)


def _links(pid: int) -> set[str]:
    """What the descriptors of a process are; empty if we may not see them."""
    found = set()
    with suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
        for entry in entries:
            with suppress(OSError):
                found.add(os.readlink(entry.path))  # noqa: PTH115 (no path: it names a socket)
    return found
