"""A store in a process of its own, which a test may stop and kill."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

SERVE = """
import sys
from tests.store.served import serve
store, port = serve("127.0.0.1")
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


@contextmanager
def server() -> Iterator[Server]:
    with subprocess.Popen(
        [sys.executable, "-c", SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Server(process)
        finally:
            process.kill()
