"""A tunnel through the system's ssh to a store that listens where only another host reaches it."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from typing import IO

from ddpmon.commands.elsewhere import LIMIT_S, LIMIT_WITH_A_PERSON_S, last_line, ssh_command
from ddpmon.store.base import StoreUnavailable
from ddpmon.store.connect import Target

HOME = "127.0.0.1"
_TRIES = 3  # the port that was free a moment ago may be somebody's by now
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0
_ALIVE = ("-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3")  # so that a dead link ends it
_ENDS_WITH_PARENT = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 15); os.execvp(sys.argv[1], sys.argv[1:])"


class Tunnel:
    """A port of this host's loopback that leads to `there`, as `host` reaches it, once it is open.

    It is taken up again when it breaks, on the same port and without asking anybody for a password. The ssh process
    ends with this one, however that ends.

    Args:
        host: where ssh logs in.
        there: the store.

    Raises:
        TargetError: `host` makes no sense.
    """

    def __init__(self, host: str, there: Target) -> None:
        self._host, self._there = host, there
        self._command = ssh_command(host, "-N", "-T", "-o", "ExitOnForwardFailure=yes", *_ALIVE)
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._said: IO[bytes] = tempfile.TemporaryFile("a+b")  # noqa: SIM115 (as long as the tunnel)
        self.port = 0

    def open(self) -> None:
        """Start ssh and wait until it has logged in.

        Raises:
            StoreUnavailable: there is no tunnel to be had; the message is a sentence that says why.
        """
        for _ in range(_TRIES):
            self.port = _free_port()
            self._start(self._command)
            if self._wait_until_open():
                threading.Thread(target=self._keep, name="ddpmon-tunnel", daemon=True).start()
                return
        raise StoreUnavailable(f"no tunnel through {self._host}: {self._reason()}")

    @property
    def url(self) -> str:
        """The address that leads to the store, with the run in it if there is one."""
        run = f"/{self._there.run_id}" if self._there.run_id else ""
        return f"tcp://{HOME}:{self.port}{run}"

    @property
    def _forward(self) -> str:
        there = f"[{self._there.host}]" if ":" in self._there.host else self._there.host
        return f"{HOME}:{self.port}:{there}:{self._there.port}"

    def close(self) -> None:
        """End the ssh process."""
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

    def _cancel(self) -> None:
        """Take the port back where the user's ssh shares connections: there it would outlast our process."""
        command = [*self._command[:-1], "-O", "cancel", "-L", self._forward, self._command[-1]]
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=2.0, check=False)

    def _start(self, command: list[str]) -> None:
        self._said.truncate(0)
        with self._lock:
            if self._closing.is_set():
                return
            if shutil.which(command[0]) is None:
                raise StoreUnavailable(f"{command[0]} cannot be run: there is no such command")
            self._process = subprocess.Popen(
                [sys.executable, "-ISc", _ENDS_WITH_PARENT, *command[:-1], "-L", self._forward, command[-1]],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._said,
            )

    def _wait_until_open(self) -> bool:
        """Whether the port is open; False if only the port was the trouble.

        Raises:
            StoreUnavailable: there is no tunnel to be had.
        """
        limit = LIMIT_S if "BatchMode=yes" in self._command else LIMIT_WITH_A_PERSON_S
        deadline = time.monotonic() + limit
        process = self._process
        while process is not None and time.monotonic() < deadline:
            if process.poll() is not None:
                if "ddress already in use" in self._reason() or "cannot listen to port" in self._reason():
                    return False
                raise StoreUnavailable(f"no tunnel through {self._host}: {self._reason()}")
            if _is_open(self.port):
                return True
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


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOME, 0))
        return int(probe.getsockname()[1])


def _is_open(port: int) -> bool:
    try:
        socket.create_connection((HOME, port), timeout=1.0).close()
    except OSError:
        return False
    return True
