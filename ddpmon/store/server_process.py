"""Starts the process of a run's store beside rank 0, and ends it."""

from __future__ import annotations

import fcntl
import os
import secrets
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep

from ddpmon.store.base import StoreUnavailable
from ddpmon.store.discovery import Announcement, has_rank_0
from ddpmon.store.liveness import lives, started
from ddpmon.store.lookup import addresses
from ddpmon.store.server import FIRST_PORT
from ddpmon.store.tcp_wire import END_KEY, SET, greeting, packed

# What watchers need to see that rank 0 is lost (10 s), and a person to ask what has happened.
LAST_WORDS_S = 60.0
# While torchrun may start the ranks again: it waits for lost hosts before (30 s by default), and the ranks load torch.
RESTART_WORDS_S = 180.0
_START_S = 30.0  # an interpreter on a cold network file system
_END_S = 0.5  # at the end of the training's process, which does not wait longer than that for the store
_PROGRAM = Path(__file__).with_name("ddpmon_store.py")
_REAP_S = 0.01  # between two looks whether it is to be waited for: it takes a few to end
_LEFT_OVER_S, _LOOK_S = 2.0, 0.05  # it looks once a second whether it is to end
_SECRET_BYTES = 16
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)


@dataclass(frozen=True, slots=True)
class StoreProcess:
    """A running store server.

    This process holds no descriptor of it, and is its parent only where it is process 1 or a child subreaper.

    Attributes:
        host, port: where it listens.
        pid: its process; `pid_started` tells that from a later one of the same number.
    """

    host: str
    port: int
    pid: int
    pid_started: float | None
    _secret: bytes = field(repr=False)

    @property
    def is_running(self) -> bool:
        """Whether its process lives."""
        return lives(self.pid, self.pid_started)

    def end(self) -> None:
        """End it now: nobody wants to read it any more. Takes half a second at most, and never raises.

        Without this it outlives this process by `LAST_WORDS_S`, or by `RESTART_WORDS_S` while its launcher lives.
        """
        until = monotonic() + _END_S
        try:
            address = str(addresses(self.host, self.port, _END_S)[0][4][0])
            with socket.create_connection((address, self.port), timeout=_left_s(until)) as door:
                door.settimeout(_left_s(until))
                door.sendall(greeting(b"end.") + bytes((SET,)) + packed(END_KEY) + packed(self._secret))
                door.settimeout(_left_s(until))
                while door.recv(64):
                    door.settimeout(_left_s(until))
        except (OSError, StoreUnavailable):  # no room for this connection, or no address: it ends with this process
            with suppress(OSError):
                if self.is_running:
                    os.kill(self.pid, signal.SIGTERM)
        with suppress(ChildProcessError):  # it is a child only of process 1 and of a child subreaper
            while os.waitpid(self.pid, os.WNOHANG) == (0, 0) and monotonic() < until:
                sleep(_REAP_S)


def _left_s(until: float) -> float:
    """The seconds until then.

    Raises:
        TimeoutError: there are none.
    """
    if (left_s := until - monotonic()) <= 0:
        raise TimeoutError
    return left_s


def start(
    host: str,
    first_port: int = FIRST_PORT,
    *,
    ranks: int = 1,
    launcher: int = 0,
    last_words_s: float = LAST_WORDS_S,
    restart_words_s: float = RESTART_WORDS_S,
) -> StoreProcess:
    """Start a store on `host`, at `first_port` or the next free port; waits until it listens.

    The process is started without a fork of this one, so that threads, GPU contexts and memory do not matter.

    Args:
        host: an address of this machine.
        first_port: the port that is tried first.
        ranks: of the run, from which the server's bounds follow.
        launcher: the process that may start the ranks again if they fail; 0 for none.
        last_words_s: how long it outlives this process if that does not end it.
        restart_words_s: how long it outlives this process at most while the launcher lives.

    Raises:
        StoreUnavailable: no store can be started; the message says why.
    """
    program = _interpreter()
    secret = secrets.token_bytes(_SECRET_BYTES)
    owner = (os.getpid(), started(os.getpid()) or "", last_words_s)
    words = (host, first_port, ranks, *owner, launcher, started(launcher) or "", restart_words_s)
    ours, theirs = socket.socketpair()
    try:
        with ours:
            with theirs:
                ours.sendall(secret.hex().encode())
                child = _spawn([program, "-I", "-S", str(_PROGRAM), *map(str, words)], theirs)
            said = _first_line(ours, child)
    except OSError as error:
        raise StoreUnavailable(f"no store can be hosted here: {program}: {error.strerror or error}") from None
    match said.split():
        case [port, pid] if port.isdecimal() and pid.isdecimal():
            return StoreProcess(host, int(port), int(pid), started(int(pid)), secret)
    raise StoreUnavailable(f"no store can be hosted here: {said or 'its process ended at once'}")


def end_left_over(run: Announcement) -> bool:
    """End the store of a run whose rank 0 was killed; whether it has ended. Takes two seconds at most, never raises."""
    if has_rank_0(run) or not run.store_pid:
        return False
    until = monotonic() + _LEFT_OVER_S
    with suppress(OSError):
        if lives(run.store_pid, run.store_started):
            os.kill(run.store_pid, signal.SIGTERM)
        while lives(run.store_pid, run.store_started) and monotonic() < until:
            sleep(_LOOK_S)
    return not lives(run.store_pid, run.store_started)


def _interpreter() -> str:
    """The program of this Python. Another one, such as a frozen training, would only begin the training once more.

    Raises:
        StoreUnavailable: this is no interpreter that can be started.
    """
    if not sys.executable:
        raise StoreUnavailable("no store can be hosted here: this Python does not know its own program to start one")
    if getattr(sys, "frozen", False) or not Path(sys.executable).name.lower().startswith(("python", "pypy")):
        raise StoreUnavailable(f"no store can be hosted here: {sys.executable} is no Python interpreter")
    return sys.executable


def _spawn(command: list[str], theirs: socket.socket) -> int:
    """Start `command` with `theirs` as its standard input; its number.

    Raises:
        OSError: the program cannot be started.
    """
    high = fcntl.fcntl(theirs.fileno(), fcntl.F_DUPFD_CLOEXEC, 3)  # this process may have closed its streams
    actions: list[tuple[object, ...]] = [(os.POSIX_SPAWN_DUP2, high, 0)]
    actions += [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_WRONLY, 0) for stream in (1, 2)]
    try:
        return os.posix_spawn(command[0], command, os.environ, file_actions=actions, setsigmask=[], setsigdef=_SIGNALS)
    finally:
        os.close(high)


def _first_line(ours: socket.socket, child: int) -> str:
    """What the process says first; `child`, which has passed the work on to a child of its own, is waited for.

    Only as much as a line is waited for: a worker that the training forks meanwhile keeps the other end open.
    """
    until, said, part = monotonic() + _START_S, b"", b"."
    try:
        while part and not said.endswith(b"\n"):
            ours.settimeout(max(0.01, until - monotonic()))
            part = ours.recv(1024)
            said += part
    except ConnectionError:  # it has ended without reading
        pass
    except TimeoutError:
        _kill(child)
        said = f"its process did not answer within {_START_S:.0f} s".encode()
    finally:
        with suppress(ChildProcessError):  # the training waits for all its children, whoever started them
            os.waitpid(child, 0)
    return said.decode(errors="replace").strip()[:200]


def _kill(child: int) -> None:
    """Kill `child`, unless it has ended: its number may be another process's once it was waited for."""
    with suppress(ChildProcessError, ProcessLookupError):
        if os.waitpid(child, os.WNOHANG) == (0, 0):
            os.kill(child, signal.SIGKILL)
