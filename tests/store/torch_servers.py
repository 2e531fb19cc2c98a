"""Servers of torch's own in processes of their own, with libuv and without, which a test may stop and kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil

HOME = "127.0.0.1"
# Loads torch once, and forks a server for each line. A server answers one question itself, as torch's client does.
FARM = """
import os, signal, sys, time
from datetime import timedelta
from torch.distributed import TCPStore
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in iter(sys.stdin.readline, ""):
    if os.fork() == 0:
        libuv = line.strip() == "libuv"
        store = TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=600), wait_for_workers=False, use_libuv=libuv)
        store.set("greeting", b"hello")
        print(store.port, os.getpid(), flush=True)
        store.set("answer", store.get("question") + b", too")
        time.sleep(600)
        os._exit(0)
"""


class TorchServer:
    """One of them.

    Attributes:
        port: where it listens, on loopback.
    """

    def __init__(self, port: int, pid: int) -> None:
        self.port = port
        self._process = psutil.Process(pid)

    def stop(self) -> None:
        """Stop it, so that it accepts and does not answer."""
        self._process.send_signal(signal.SIGSTOP)
        deadline = time.monotonic() + 60
        while self._process.status() != psutil.STATUS_STOPPED:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        with suppress(psutil.NoSuchProcess):
            self._process.kill()
            self._process.wait(60)


class Farm:
    """Starts servers."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._servers: list[TorchServer] = []

    def serve(self, kind: str) -> TorchServer:
        """A new server; `kind` is libuv or plain."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{kind}\n")
        self._process.stdin.flush()
        port, pid = map(int, self._process.stdout.readline().split())
        self._servers.append(TorchServer(port, pid))
        return self._servers[-1]

    def close(self) -> None:
        for server in self._servers:
            server.kill()


@contextmanager
def farm() -> Iterator[Farm]:
    command = [sys.executable, "-c", FARM]
    quiet = {**os.environ, "TORCH_CPP_LOG_LEVEL": "FATAL"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=quiet) as process:
        found = Farm(process)
        try:
            yield found
        finally:
            found.close()
            process.kill()
