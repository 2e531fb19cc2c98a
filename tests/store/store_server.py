"""A store in a process of its own, which a test may stop and kill."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

SERVE = """
import os, sys, time
from ddpmon.store.tcp import serve
store, port = serve("127.0.0.1")
store.put("greeting", b"hello")
child = os.fork() if "fork" in sys.argv else -1
if child == 0:
    time.sleep(600)
print(port, child, flush=True)
sys.stdin.read()
"""


class Server:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.process = process
        self.port, self.child = map(int, process.stdout.readline().split())

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
def server(*options: str) -> Iterator[Server]:
    command = [sys.executable, "-c", SERVE, *options]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Server(process)
        finally:
            tree = psutil.Process(process.pid).children() if process.poll() is None else []
            for each in tree:
                each.kill()
            process.kill()
