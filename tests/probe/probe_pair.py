"""Two ranks started one by one, whose rendezvous the test hosts: either may end, and the other lives on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.probe.probe_ranks import PATIENCE_S, private_runs
from tests.ranks import Group, Process, running


@contextmanager
def two_ranks(folder: Path, script: str, scene: str, **environment: str) -> Iterator[list[Process]]:
    logs, arguments = [folder / f"log.{rank}" for rank in range(2)], [str(folder), scene]
    with private_runs(folder):
        group = Group(2, f"tests.probe.{script}", arguments, logs, together=False, environment=environment)
        with running(group):
            yield group.processes


def until(folder: Path, happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        logs = "".join(path.read_text(errors="replace") for path in sorted(folder.glob("log.*")))
        assert time.monotonic() < deadline, logs
        time.sleep(0.02)
