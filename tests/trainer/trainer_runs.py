"""Starts the trainer as a user does: real processes, real Gloo, a model small enough for seconds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

TINY = ("--layers", "1", "--heads", "2", "--width", "16", "--context", "16", "--batch", "2")


def command(ranks: int, *options: str, launcher: str = "torchrun", restarts: int = 0) -> list[str]:
    run = [sys.executable, "-m"]
    if launcher == "torchrun":
        run += ["torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", f"--max-restarts={restarts}"]
        run += ["-m"]
    nproc = ["--nproc", str(ranks)] if launcher == "spawn" else []
    return [*run, "ddpmon.trainer", *nproc, *TINY, *options]


def environment() -> dict[str, str]:
    return {**os.environ, "DDPMON": "0", "OMP_NUM_THREADS": "1"}


def train(folder: Path, ranks: int, *options: str, launcher: str = "torchrun", code: int = 0) -> str:
    """Run to the end and return stdout and stderr; the exit code must be `code`."""
    process = subprocess.run(
        command(ranks, *options, launcher=launcher),
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    assert process.returncode == code, process.stdout
    return process.stdout


def dump(folder: Path, name: str, ranks: int, *options: str, launcher: str = "torchrun") -> dict[str, Any]:
    """Train and return what --dump wrote."""
    train(folder, ranks, "--dump", name, *options, launcher=launcher)
    result: dict[str, Any] = json.loads((folder / name).read_text())
    return result
