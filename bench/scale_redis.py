"""A redis-server (or valkey-server) of the benchmark's own on a free port of loopback; it keeps nothing on disk."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

HOME = "127.0.0.1"
_PATIENCE_S = 30.0


@contextmanager
def redis_of_our_own() -> Iterator[tuple[str, psutil.Process]]:
    """Its address and its process."""
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        raise SystemExit("there is no redis-server and no valkey-server here")
    with socket.socket() as probe:
        probe.bind((HOME, 0))
        port = probe.getsockname()[1]
    options = f"--port {port} --bind {HOME} --appendonly no --loglevel warning --save".split()
    with subprocess.Popen([program, *options, ""], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as server:
        try:
            _wait_until_it_listens(server, port)
            yield f"redis://{HOME}:{port}", psutil.Process(server.pid)
        finally:
            server.terminate()


def _wait_until_it_listens(server: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while server.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection((HOME, port), timeout=1.0).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise SystemExit("the redis-server does not start")
