"""Starts processes, and groups of ranks, from a server that has imported torch once for a whole pytest worker."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import psutil

from tests.rank_server import NUMBER

ROOT = Path(__file__).parents[1]


class Process:
    """A process that the server has forked, with the part of subprocess.Popen's interface that tests use.

    Args:
        pid: its process id; it leads a session of its own.
        status: the socket on which the server sends its exit code.
    """

    def __init__(self, pid: int, status: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._status = status

    def poll(self) -> int | None:
        """The exit code (minus the signal's number after a signal), None while the process runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit code.

        Raises:
            subprocess.TimeoutExpired: the process still runs after `timeout` seconds.
        """
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            data = self._status.recv(NUMBER.size, socket.MSG_PEEK)  # several threads may ask
            self.returncode = NUMBER.unpack(data)[0] if data else -signal.SIGKILL
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, if the process still runs."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(self.pid, number)

    def end(self) -> None:
        """Kill the process, its children, and everything in its session, such as workers of a rank that has ended."""
        if self.poll() is None:
            kill_family(self.pid)
        for pid in session_of(self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.wait()
        self._status.close()


def session_of(leader: int) -> list[int]:
    """The processes of the session that this one leads, or led."""
    found = []
    for pid in psutil.pids():
        with contextlib.suppress(OSError):
            found += [pid] if os.getsid(pid) == leader else []
    return found


def kill_family(pid: int) -> None:
    """Kill a process and all its descendants."""
    with contextlib.suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        for each in [*parent.children(recursive=True), parent]:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()


@functools.cache
def _server() -> socket.socket:
    """The control socket of this process's server; the server ends when this process does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        subprocess.Popen(
            [sys.executable, "-m", "tests.rank_server", str(theirs.fileno())],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},  # OpenMP reads it when torch is loaded
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    return ours


def start(
    module: str,
    arguments: Sequence[str],
    log: Path,
    environment: Mapping[str, str] | None = None,
    folder: Path = ROOT,
) -> Process:
    """Run a module as `python -m` does.

    Args:
        module: its name.
        arguments: its command line.
        log: the file to which its stdout and stderr are appended.
        environment: variables beside those of this process.
        folder: its working directory.
    """
    with Path(os.devnull).open("rb") as nothing, log.open("ab") as output:
        return _fork(module, arguments, (nothing, output, output), environment, folder)


def run(
    module: str, *arguments: str, stdin: bytes = b"", environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a module as `python -m` does, to its end; `environment` are variables beside those of this process."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as complained:
        given.write(stdin)
        given.seek(0)
        process = _fork(module, arguments, (given, said, complained), environment, ROOT)
        try:
            code = process.wait()
        finally:
            process.end()
        texts = []
        for output in (said, complained):
            output.seek(0)
            texts.append(output.read().decode())
    return subprocess.CompletedProcess([module, *arguments], code, *texts)


def _fork(
    module: str,
    arguments: Sequence[str],
    streams: Sequence[IO[bytes]],
    environment: Mapping[str, str] | None,
    folder: Path,
) -> Process:
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "TEST_PID": str(os.getpid()), **(environment or {})}
    request = {"module": module, "arguments": arguments, "environment": variables, "folder": str(folder)}
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        socket.send_fds(
            _server(), [json.dumps(request).encode()], [*(stream.fileno() for stream in streams), theirs.fileno()]
        )
    return Process(NUMBER.unpack(ours.recv(NUMBER.size))[0], ours)


class Group:
    """The ranks of one training on this host, started without a launcher; the test hosts their rendezvous.

    Args:
        count: the number of ranks.
        module: what each rank runs.
        arguments: its command line.
        logs: a log file for each rank, or one for all.
        together: end the other ranks by SIGTERM when one has failed, as launchers do.
        environment: variables beside those of this process and those of a launcher.
        folder: the working directory.
    """

    def __init__(
        self,
        count: int,
        module: str,
        arguments: Sequence[str],
        logs: Sequence[Path],
        together: bool = True,
        environment: Mapping[str, str] | None = None,
        folder: Path = ROOT,
    ) -> None:
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        self._store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        common = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self._store.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "WORLD_SIZE": str(count),
            "LOCAL_WORLD_SIZE": str(count),
            **(environment or {}),
        }
        self.processes = [
            start(
                module,
                arguments,
                logs[rank % len(logs)],
                {**common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                folder,
            )
            for rank in range(count)
        ]
        self._together, self._failed = together, 0
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def poll(self) -> int | None:
        """None while a rank runs and none has failed; then 0, or the exit code of the rank that failed first."""
        codes = [process.poll() for process in self.processes]
        self._failed = self._failed or next((code for code in codes if code), 0)
        return self._failed or (None if None in codes else 0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait until all ranks have ended and return 0 or the first exit code that is not.

        Raises:
            subprocess.TimeoutExpired: a rank still runs after `timeout` seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        for process in self.processes:
            process.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
        return self.poll() or 0

    def send_signal(self, number: int) -> None:
        """Send a signal to every rank that still runs."""
        for process in self.processes:
            process.send_signal(number)

    def end(self) -> None:
        """Kill every rank and its children; all are stopped first, so that none sees another one end."""
        for process in self.processes:
            process.send_signal(signal.SIGSTOP)
        for process in self.processes:
            process.send_signal(signal.SIGKILL)
        self._watcher.join()
        for process in self.processes:
            process.end()

    def _watch(self) -> None:
        while self.poll() is None:
            time.sleep(0.05)
        if self._together and self._failed:
            self.send_signal(signal.SIGTERM)


@contextlib.contextmanager
def running(group: Group) -> Iterator[Group]:
    """The group; killed at the end."""
    try:
        yield group
    finally:
        group.end()
