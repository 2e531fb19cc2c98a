"""A redis-server on one of the hosts, which is killed, stopped and started again."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

from network import Network

PROGRAM = shutil.which("redis-server") or shutil.which("valkey-server")
PORT = 6390


class Redis:
    """Keeps nothing on disk: a restart finds it empty."""

    def __init__(self, net: Network, host: int, log: Path) -> None:
        self.url = f"redis://{net.address(host)}:{PORT}"
        assert PROGRAM is not None
        options = f"--port {PORT} --bind {net.address(host)} 127.0.0.1 --protected-mode no --appendonly no"
        self._command = [*net.enter(host), PROGRAM, *options.split(), "--save", "", "--logfile", str(log)]
        self._look = [*net.enter(host), "redis-cli", "-p", str(PORT), "ping"]
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self.process = subprocess.Popen(
            self._command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 30
        while b"PONG" not in subprocess.run(self._look, capture_output=True, check=False).stdout:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("redis-server does not start")
            time.sleep(0.05)

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()
