"""A real redis-server (or valkey-server) on a free port of loopback, which a test may stop, kill and start again."""

from __future__ import annotations

import importlib.util
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

HOME = "127.0.0.1"
PROGRAM = shutil.which("redis-server") or shutil.which("valkey-server")
needs_redis = pytest.mark.skipif(
    PROGRAM is None or importlib.util.find_spec("redis") is None, reason="no redis-server, or no redis-py"
)


class RedisServer:
    """A server that keeps what it holds in `folder` when it is restarted, if `durable`.

    Args:
        folder: its own.
        options: lines of its configuration, such as "requirepass x".
        tls: a certificate and its key: TLS only.
    """

    def __init__(
        self, folder: Path, *options: str, durable: bool = False, tls: tuple[Path, Path] | None = None
    ) -> None:
        assert PROGRAM is not None
        with socket.socket() as probe, socket.socket() as other:
            probe.bind((HOME, 0))
            other.bind((HOME, 0))
            self.port, bus = int(probe.getsockname()[1]), int(other.getsockname()[1])
        plain = f"port {self.port}" if tls is None else "port 0"
        lines = [
            f"bind {HOME}",
            plain,
            f'dir "{folder}"',
            "save ''",
            f"appendonly {'yes' if durable else 'no'}",
            *options,
        ]
        lines.append(f'logfile "{folder}/redis.log"')
        if tls is not None:
            files = f'tls-cert-file "{tls[0]}"', f'tls-key-file "{tls[1]}"'
            lines += [f"tls-port {self.port}", *files, "tls-auth-clients no"]
        if "cluster-enabled yes" in options:
            lines += [f"cluster-port {bus}", f'cluster-config-file "{folder}/nodes.conf"']
        self._file = folder / "redis.conf"
        self._file.write_text("\n".join(lines).replace("''", '""') + "\n")
        self._log = folder / "redis.log"
        self.start()

    def start(self) -> None:
        """Start, and wait until it has loaded what it holds: it listens before, and refuses everything meanwhile."""
        assert PROGRAM is not None
        started = self._times_ready()
        self._process = subprocess.Popen(
            [PROGRAM, str(self._file)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 60
        while self._times_ready() == started:
            if self._process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"no server: {self._log.read_text() if self._log.exists() else ''}")
            time.sleep(0.02)

    def _times_ready(self) -> int:
        """How often it has become ready, as its log tells, which it appends to."""
        return self._log.read_text().count("Ready to accept connections") if self._log.exists() else 0

    def url(self, login: str = "", tail: str = "", scheme: str = "redis") -> str:
        """Its address; `login` is such as user:password@."""
        return f"{scheme}://{login}{HOME}:{self.port}{tail}"

    def freeze(self) -> None:
        """Stop it, so that it accepts and does not answer."""
        self._process.send_signal(signal.SIGSTOP)
        deadline = time.monotonic() + 60
        while psutil.Process(self._process.pid).status() != psutil.STATUS_STOPPED:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def thaw(self) -> None:
        """Let it go on."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()

    @property
    def log(self) -> str:
        """What it has written down."""
        return self._log.read_text()


@contextmanager
def redis_server(
    folder: Path, *options: str, durable: bool = False, tls: tuple[Path, Path] | None = None
) -> Iterator[RedisServer]:
    folder.mkdir(exist_ok=True)
    server = RedisServer(folder, *options, durable=durable, tls=tls)
    try:
        yield server
    finally:
        server.kill()
