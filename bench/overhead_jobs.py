"""The jobs of `overhead.py`: how they are launched, told what to do, and kept quiet while it is not their turn."""

from __future__ import annotations

import importlib.metadata
import json
import os
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from overhead_rank import Block

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = Path(__file__).with_name("overhead_rank.py")
PEER = "traceml-ai"
PATIENCE_S = 600.0


class Job:
    """A launched job; it is stopped (SIGSTOP) whenever it is not its turn."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self._folder = folder
        self._played = 0
        self.aside_s = 0.0
        self.played_s = 0.0
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, env=environment)
        self.play(0, "without")  # what a process does for the first time is nobody's price

    def play(self, size: int, mode: str) -> Block:
        """Have one block played."""
        self._each("resume")
        began, aside = time.monotonic(), self._aggregator_s()
        self._order(f"{size} {mode}")
        answer = self._folder / f"{self._played - 1}.json"
        while not answer.exists():
            if self.process.poll() is not None or time.monotonic() - began > PATIENCE_S:
                raise SystemExit(f"a job did not play its block:\n{(self._folder / 'log').read_text()[-3000:]}")
            time.sleep(0.02)
        if mode == "with":
            self.aside_s += self._aggregator_s() - aside
            self.played_s += time.monotonic() - began
        self._each("suspend")
        return Block(**json.loads(answer.read_text()))

    def end(self) -> None:
        """Let it end by itself, and see that it does."""
        everybody = [self.process.pid, *(each.pid for each in self._family())]
        self._each("resume")
        self._order("end")
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(60)
        for pid in everybody:
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                if str(self._folder) in " ".join(process.cmdline()):
                    process.kill()

    def _order(self, text: str) -> None:
        (self._folder / "order").write_text(text)
        (self._folder / "order").replace(self._folder / f"{self._played}.go")
        self._played += 1

    def _family(self) -> list[psutil.Process]:
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(self.process.pid).children(recursive=True)
        return []

    def _each(self, what: str) -> None:
        for each in self._family():
            with suppress(psutil.NoSuchProcess):
                getattr(each, what)()

    def _aggregator_s(self) -> float:
        total = 0.0
        for each in self._family():
            with suppress(psutil.NoSuchProcess):
                if "aggregator" in " ".join(each.cmdline()[1:3]):
                    total += sum(each.cpu_times()[:2])
        return total


def commands(folder: Path) -> Iterator[tuple[str, list[str], Path]]:
    """How each job is launched; the peer's is left out where it is not installed."""
    ours, theirs = folder / "ddpmon", folder / "peer"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={free_port()}"]
    yield "ddpmon", [*launcher, str(SCRIPT), str(ours)], ours
    if peer_version() is not None:
        traceml = str(Path(sysconfig.get_path("scripts"), "traceml"))
        ports = [f"--master-port={free_port()}", f"--aggregator-port={free_port()}"]
        options = ["--nproc-per-node=2", *ports, "--logs-dir", str(theirs / "logs"), "--run-name", "overhead"]
        yield "peer", [traceml, "run", str(SCRIPT), *options, "--args", str(theirs), "peer"], theirs


@contextmanager
def launched() -> Iterator[dict[str, Job]]:
    """Both jobs, until the end of the block."""
    jobs: dict[str, Job] = {}
    with tempfile.TemporaryDirectory(prefix="ddpmon-bench-") as folder:
        try:
            for name, command, own in commands(Path(folder)):
                own.mkdir()
                jobs[name] = Job(command, own)
            yield jobs
        finally:
            for job in jobs.values():
                job.end()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def peer_version() -> str | None:
    """The peer's version, None where it is not installed."""
    with suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(PEER)
    return None
