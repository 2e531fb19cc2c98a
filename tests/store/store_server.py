"""A store in a process of its own, which a test may stop and kill."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

SERVE = """
import sys
from tests.store.served import serve
store, port = serve(sys.argv[1])
store.put("ddpmon/greeting", b"hello")
print(port, flush=True)
sys.stdin.read()
"""


class Server:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.process = process
        self.port = int(process.stdout.readline())

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait_until(self, status: str) -> None:
        deadline = time.monotonic() + 60
        while psutil.Process(self.process.pid).status() != status:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def own_address() -> str:
    """An address of this host where no other process serves: a port that is given up stays free there."""
    pid = os.getpid()
    return f"127.{1 + (pid >> 16) % 250}.{pid >> 8 & 255}.{pid & 255 or 1}"


@contextmanager
def server(address: str = "127.0.0.1") -> Iterator[Server]:
    with subprocess.Popen(
        [sys.executable, "-c", SERVE, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Server(process)
        finally:
            process.kill()
