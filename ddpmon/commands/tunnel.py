"""A tunnel through the system's ssh to a store that listens where only another host reaches it."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

from ddpmon.commands.relay import HOME, Relay, is_open
from ddpmon.commands.remote import LIMIT_S, LIMIT_WITH_A_PERSON_S, last_line, ssh_command
from ddpmon.store.base import StoreUnavailable
from ddpmon.store.connect import Target

_PLAIN_PATH = re.compile(r"/[\w./-]{0,60}", re.ASCII)  # that ssh takes as it is, with room for a socket's name
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0
_ALIVE = ("-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3")  # so that a dead link ends it
_ENDS_WITH_PARENT = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 15); os.execvp(sys.argv[1], sys.argv[1:])"


class Tunnel:
    """A port of this host's loopback that leads to `there`, as `host` reaches it, once it is open.

    It is taken up again when it breaks, on the same port and without asking anybody for a password. The ssh process
    ends with this one, however that ends. The port is ours all the time, and ssh listens at a socket in a folder that
    only this user can enter: on a host of many users nobody else can answer in its place.

    Args:
        host: where ssh logs in.
        there: the store.

    Raises:
        TargetError: `host` makes no sense.
        StoreUnavailable: no port or no temporary folder can be had.
    """

    def __init__(self, host: str, there: Target) -> None:
        self._host, self._there = host, there
        self._command = ssh_command(host, "-N", "-T", "-o", "ExitOnForwardFailure=yes", *_ALIVE)
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count()
        try:
            self._said: IO[bytes] = tempfile.TemporaryFile("a+b")  # noqa: SIM115 (as long as the tunnel)
            self._folder = tempfile.TemporaryDirectory(prefix="ddpmon-", dir=_short(), ignore_cleanup_errors=True)
            self._way = self._next_way()
            self._relay = Relay(lambda: self._way)
        except OSError as error:
            raise StoreUnavailable(f"no tunnel through {host}: {error.strerror or error}") from None

    def open(self) -> None:
        """Start ssh and wait until it has logged in.

        Raises:
            StoreUnavailable: there is no tunnel to be had; the message is a sentence that says why.
        """
        self._start(self._command)
        self._wait_until_open()
        threading.Thread(target=self._keep, name="ddpmon-tunnel", daemon=True).start()

    @property
    def url(self) -> str:
        """The address that leads to the store, with the run in it if there is one."""
        run = f"/{self._there.run_id}" if self._there.run_id else ""
        return f"tcp://{HOME}:{self._relay.port}{run}"

    @property
    def _forward(self) -> str:
        there = f"[{self._there.host}]" if ":" in self._there.host else self._there.host
        return f"{self._way}:{there}:{self._there.port}"

    def _next_way(self) -> Path:
        """Where ssh is to listen next: one that was killed has left its socket behind."""
        return Path(self._folder.name) / str(next(self._numbers))

    def close(self) -> None:
        """End the ssh process, and give back what was held."""
        self._closing.set()
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(2.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            self._cancel()
        self._relay.close()
        self._folder.cleanup()
        with self._lock:
            self._said.close()

    def _cancel(self) -> None:
        """Take the socket back where the user's ssh shares connections: there it would outlast our process."""
        command = [*self._command[:-1], "-O", "cancel", "-L", self._forward, self._command[-1]]
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=2.0, check=False)

    def _start(self, command: list[str]) -> None:
        with self._lock:
            if self._closing.is_set():
                return
            self._said.truncate(0)
            self._way = self._next_way()
            if shutil.which(command[0]) is None:
                raise StoreUnavailable(f"{command[0]} cannot be run: command not found")
            self._process = subprocess.Popen(
                [sys.executable, "-ISc", _ENDS_WITH_PARENT, *command[:-1], "-L", self._forward, command[-1]],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._said,
            )

    def _wait_until_open(self) -> None:
        """Wait until ssh listens, which it does once it has logged in.

        Raises:
            StoreUnavailable: there is no tunnel to be had.
        """
        limit = LIMIT_S if "BatchMode=yes" in self._command else LIMIT_WITH_A_PERSON_S
        deadline = time.monotonic() + limit
        process = self._process
        while process is not None and time.monotonic() < deadline:
            if is_open(self._way):
                return
            if process.poll() is not None:
                raise StoreUnavailable(f"no tunnel through {self._host}: {self._reason()}")
            time.sleep(0.05)
        raise StoreUnavailable(f"no tunnel through {self._host}: no answer within {limit:.0f} s")

    def _keep(self) -> None:
        """Start it anew whenever it has ended; nobody is asked for a password across the dashboard."""
        command = [*self._command[:-1], "-o", "BatchMode=yes", self._command[-1]]
        pause = _FIRST_PAUSE_S
        while (process := self._process) is not None:
            began = time.monotonic()
            process.wait()
            pause = _FIRST_PAUSE_S if time.monotonic() - began > _LONGEST_PAUSE_S else min(2 * pause, _LONGEST_PAUSE_S)
            if self._closing.wait(pause):
                return
            try:
                self._start(command)
            except StoreUnavailable:
                return  # there was an ssh, and now there is none

    def _reason(self) -> str:
        self._said.seek(0)
        return last_line(self._said.read(1 << 16))


def _short() -> str:
    """A folder for temporary files in which a socket can have a name: those are short."""
    folder = tempfile.gettempdir()
    return folder if _PLAIN_PATH.fullmatch(folder) else "/tmp"
