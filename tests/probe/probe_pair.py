"""Two ranks started one by one, whose rendezvous the test hosts: either may end, and the other lives on."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from tests.probe.probe_ranks import PATIENCE_S, private_runs, started

Ranks = list[subprocess.Popen[bytes]]


@contextmanager
def two_ranks(folder: Path, script: str, scene: str, **environment: str) -> Iterator[Ranks]:
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    command = [sys.executable, "-m", f"tests.probe.{script}", str(folder), scene]
    with private_runs(folder), ExitStack() as stack:
        yield [
            stack.enter_context(
                started(
                    command,
                    folder / f"log.{rank}",
                    **common,
                    **environment,
                    RANK=str(rank),
                    LOCAL_RANK=str(rank),
                    WORLD_SIZE="2",
                    LOCAL_WORLD_SIZE="2",
                )
            )
            for rank in range(2)
        ]


def until(folder: Path, happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        logs = "".join(path.read_text(errors="replace") for path in sorted(folder.glob("log.*")))
        assert time.monotonic() < deadline, logs
        time.sleep(0.02)
