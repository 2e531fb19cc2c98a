"""Starts the trainer as a user does: real processes, real Gloo, a model small enough for seconds."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.ranks import ROOT, Group, Process, running, start

TINY = ("--layers", "1", "--heads", "2", "--width", "16", "--context", "16", "--batch", "2")
ENVIRONMENT = {"DDPMON": "0", "PYTHONPATH": str(ROOT)}


@contextmanager
def ranks(folder: Path, count: int, log: Path, *options: str) -> Iterator[Group]:
    """Ranks without a launcher."""
    with running(Group(count, "trainer", [*TINY, *options], [log], environment=ENVIRONMENT, folder=folder)) as group:
        yield group


@contextmanager
def launched(folder: Path, count: int, log: Path, *options: str, launcher: str, restarts: int = 0) -> Iterator[Process]:
    """A launcher and its ranks: "torchrun", "spawn" (the trainer's own), or "none": one process without a group."""
    arguments = ["--nproc", str(count)] if launcher == "spawn" else []
    module, arguments = "trainer", [*arguments, *TINY, *options]
    if launcher == "torchrun":
        elastic = ["--standalone", f"--nproc-per-node={count}", f"--max-restarts={restarts}", "-m", "trainer"]
        module, arguments = "torch.distributed.run", [*elastic, *arguments]
    process = start(module, arguments, log, ENVIRONMENT, folder)
    try:
        yield process
    finally:
        process.end()


def until_printed(what: str, process: Process | Group, log: Path) -> None:
    """Wait until a line of the log begins so; fails when the process ends first."""
    while not any(line.startswith(what) for line in log.read_text().splitlines()):
        assert process.poll() is None, log.read_text()
        time.sleep(0.02)


def train(folder: Path, count: int, *options: str, launcher: str = "", code: int = 0) -> str:
    """Run to the end and return stdout and stderr; the exit code must be `code`."""
    with TemporaryDirectory() as elsewhere:
        log = Path(elsewhere, "log")
        if launcher:
            with launched(folder, count, log, *options, launcher=launcher) as process:
                found = process.wait()
        else:
            with ranks(folder, count, log, *options) as group:
                found = group.wait()
        printed = log.read_text()
    assert found == code, printed
    return printed


def dump(folder: Path, name: str, count: int, *options: str, launcher: str = "") -> dict[str, Any]:
    """Train and return what --dump wrote."""
    train(folder, count, "--dump", name, *options, launcher=launcher)
    result: dict[str, Any] = json.loads((folder / name).read_text())
    return result
