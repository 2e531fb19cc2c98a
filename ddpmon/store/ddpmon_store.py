"""The process of a run's store: `python -I -S ddpmon_store.py HOST FIRST_PORT RANKS`, and what `Owner` takes.

Rank 0 starts it (`server_process.py`), with a socket as its standard input: it reads the secret that ends it from there
and answers with one line, its port and its number, or why there is no store. It loads neither torch nor any package.

It lives as long as rank 0 does, and `LAST_WORDS_S` seconds longer where rank 0 dies without ending it, so that watchers
read what the ranks said last, and longer while the launcher lives that may start the ranks again
(`RESTART_WORDS_S`). It is nobody's child and leads a session of its own: no signal to rank 0's process group
and no wait of rank 0 for its children meets it. Only where rank 0 is process 1 of a container, or a child subreaper,
the store becomes its child, and rank 0 waits for it when it ends it (`StoreProcess.end`).
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import sys
from contextlib import suppress
from time import monotonic
from typing import IO, Any

if __name__ == "__main__":  # an isolated interpreter finds no package but the standard library
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))  # noqa: PTH100, PTH120

from ddpmon.store.liveness import lives
from ddpmon.store.server import StoreServer, bind
from ddpmon.store.server_bounds import Bounds

# Less urgent than training: who floods the store takes a quarter of a core that a rank computes on, not half of it.
_NICE = 5
_DESCRIPTORS = 1 << 17


class Owner:
    """Rank 0's process.

    Args:
        pid: its number.
        started: when it started, as `liveness.started` says; None where that is unknown.
        last_words_s: how long the store outlives it.
        launcher: the number of the process that may start the ranks again; 0 for none.
        launcher_started: when that started.
        restart_words_s: how long the store outlives rank 0 while the launcher lives.
    """

    def __init__(
        self,
        pid: int,
        started: float | None,
        last_words_s: float,
        launcher: int,
        launcher_started: float | None,
        restart_words_s: float,
    ) -> None:
        self._pid, self._started, self._last_words_s = pid, started, last_words_s
        self._launcher, self._launcher_started, self._restart_words_s = launcher, launcher_started, restart_words_s
        self._died: float | None = None
        self._told = False

    def is_over(self) -> bool:
        """Whether the store is to end: its owner has died, and its last words could be read."""
        if self._died is None and not lives(self._pid, self._started):
            self._died = monotonic()
        if self._died is None:
            return False
        age = monotonic() - self._died
        return self._told or (age >= self._last_words_s and (age >= self._restart_words_s or not self._may_restart()))

    def _may_restart(self) -> bool:
        return self._launcher > 0 and lives(self._launcher, self._launcher_started)

    def end_with_it(self, *_: object) -> None:
        """A signal: the host or the job ends. Rank 0 may save a checkpoint first; the store does not outlive it."""
        self._told = True


def main() -> None:
    """Serve, in a process that nobody waits for."""
    door = socket.socket(fileno=0)
    if os.fork():
        os._exit(0)
    os.setsid()
    host, first_port, ranks, pid, started, last_words_s, launcher, its_start, restart_words_s = sys.argv[1:]
    owner = Owner(
        *(int(pid), float(started) if started else None, float(last_words_s)),
        *(int(launcher), float(its_start) if its_start else None, float(restart_words_s)),
    )
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, owner.end_with_it)
    _settle()
    try:
        listener = bind(host, int(first_port))
        secret = bytes.fromhex(door.recv(64).decode())
        server = StoreServer(listener, Bounds(int(ranks), _raise_descriptors()), secret)
        door.sendall(f"{listener.getsockname()[1]} {os.getpid()}\n".encode())
    except (OSError, ValueError) as error:
        with suppress(OSError):
            door.sendall(f"{getattr(error, 'strerror', None) or error}\n".encode())
        return
    door.close()
    server.serve(owner.is_over)


def _settle() -> None:
    """Hold nothing of rank 0's: neither its files and sockets nor its cores, its urgency or its protection."""
    os.closerange(3, _highest_descriptor() + 1)
    os.chdir("/")
    with suppress(OSError):
        os.nice(_NICE)
    with suppress(OSError):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    with suppress(OSError, ValueError):
        if int(_file("oom_score_adj").read()) < 0:  # a protected rank 0 is no reason to protect the store
            _file("oom_score_adj", "w").write("0")
    with suppress(OSError):
        _file("comm", "w").write("ddpmon-store")


def _file(name: str, mode: str = "r") -> IO[Any]:
    return open(f"/proc/self/{name}", mode)  # noqa: PTH123 (it is closed with its last use)


def _highest_descriptor() -> int:
    try:
        return max(map(int, os.listdir("/proc/self/fd")))  # noqa: PTH208
    except OSError:
        return min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], _DESCRIPTORS)


def _raise_descriptors() -> int:
    """Allow this process as many descriptors as it may have; how many those are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        return most
    return soft


if __name__ == "__main__":
    main()
