"""Starts the trainer as a user does: real processes, real Gloo, a model small enough for seconds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.ranks import Group, running, start

TINY = ("--layers", "1", "--heads", "2", "--width", "16", "--context", "16", "--batch", "2")


def command(ranks: int, *options: str, launcher: str = "torchrun", restarts: int = 0) -> list[str]:
    run = [sys.executable, "-m"]
    if launcher == "torchrun":
        run += ["torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", f"--max-restarts={restarts}"]
        run += ["-m"]
    nproc = ["--nproc", str(ranks)] if launcher == "spawn" else []
    return [*run, "trainer", *nproc, *TINY, *options]


def environment() -> dict[str, str]:
    return {**os.environ, "DDPMON": "0", "OMP_NUM_THREADS": "1"}


@contextmanager
def ranks(folder: Path, count: int, log: Path, *options: str) -> Iterator[Group]:
    """Ranks forked from the preloaded server, without a launcher."""
    group = Group(count, "trainer", [*TINY, *options], [log], environment=environment(), folder=folder)
    with running(group):
        yield group


def train(folder: Path, count: int, *options: str, launcher: str = "", code: int = 0) -> str:
    """Run to the end and return stdout and stderr; the exit code must be `code`.

    Args:
        folder: the working directory.
        count: the number of ranks.
        options: the trainer's, beside those of a tiny model.
        launcher: "torchrun", "spawn" (the trainer's own), or none.
        code: the exit code that is expected.
    """
    with TemporaryDirectory() as elsewhere:
        log = Path(elsewhere, "log")
        if launcher:
            with log.open("wb") as output:
                found = subprocess.run(
                    command(count, *options, launcher=launcher),
                    cwd=folder,
                    env=environment(),
                    stdout=output,
                    stderr=output,
                    check=False,
                ).returncode
        else:
            with ranks(folder, count, log, *options) as group:
                found = group.wait()
        printed = log.read_text()
    assert found == code, printed
    return printed


def alone(folder: Path, *options: str, code: int = 0) -> str:
    """Train in one process without a process group; returns stdout and stderr."""
    with TemporaryDirectory() as elsewhere:
        log = Path(elsewhere, "log")
        process = start("trainer", [*TINY, *options], log, environment(), folder)
        try:
            found = process.wait()
        finally:
            process.end()
        printed = log.read_text()
    assert found == code, printed
    return printed


def dump(folder: Path, name: str, count: int, *options: str, launcher: str = "") -> dict[str, Any]:
    """Train and return what --dump wrote."""
    train(folder, count, "--dump", name, *options, launcher=launcher)
    result: dict[str, Any] = json.loads((folder / name).read_text())
    return result
