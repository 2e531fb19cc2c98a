"""A host with runs on it: `python -m tests.commands.served_runs NAME...` serves and announces one made-up run a name.

Each has two ranks, of which the second is late, and a store of its own on loopback; their frames are kept fresh.
SIGTERM ends them as runs that end in good order.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ddpmon.codec import encode
from ddpmon.probe.job_ids import job_ids
from ddpmon.schema import HistoryFrame, RunInfo, StepColumns
from ddpmon.store.base import RUNS_KEY, Store, history_key, rank_key, run_key
from ddpmon.store.discovery import Announcement, announce, withdraw
from tests.made_frames import MadeJob, healthy_phases, rank_frame, run_info
from tests.ranks import Process, start
from tests.store.served import serve

ROOT = Path(__file__).parents[2]
STEPS = 120


@contextlib.contextmanager
def host_with_runs(folder: Path, *names: str) -> Iterator[list[str]]:
    """Runs that only a look into `folder` finds; yields their stores' addresses, and they end with the block."""
    process, urls = serve_runs(folder, *names)
    try:
        yield urls
    finally:
        process.end()


def serve_runs(folder: Path, *names: str) -> tuple[Process, list[str]]:
    """The process that serves such runs, and their stores' addresses."""
    folder.mkdir(mode=0o700, exist_ok=True)
    log = folder / f"{'-'.join(names)}.log"
    log.unlink(missing_ok=True)
    process = start("tests.commands.served_runs", names, log, {"XDG_RUNTIME_DIR": str(folder), "TMPDIR": str(folder)})
    while not (said := log.read_text()).endswith("\n"):
        assert process.poll() is None, said
        time.sleep(0.02)
    return process, said.split()


def remote_ddpmon(folder: Path) -> str:
    """The command, for a shell on that host, that is its ddpmon."""
    python_path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    places = f"XDG_RUNTIME_DIR={folder}", f"TMPDIR={folder}", f"PYTHONPATH={python_path}"
    return shlex.join(["env", *places, sys.executable, "-m", "ddpmon.cli"])


class Served:
    """One run."""

    def __init__(self, name: str) -> None:
        self.run_id = f"{name}-20260101-000000-ab12"
        self.job = MadeJob({**healthy_phases(2, STEPS), "input": np.array([[5.0], [60.0]]) * np.ones(STEPS)})
        self.store, port = serve("127.0.0.1", 0)  # one that no other run takes once this one has ended
        self.url = f"tcp://127.0.0.1:{port}"
        self._publish_run(self.store, run_info(2, run_id=self.run_id, name=name, started_at=time.time() - 3600))
        self.file = announce(
            Announcement(
                run_id=self.run_id,
                name=name,
                url=self.url,
                pid=os.getpid(),
                host="node0",
                world_size=2,
                started_at=time.time() - 3600,
                jobs=job_ids(),
            )
        )

    def _publish_run(self, store: Store, info: RunInfo) -> None:
        for rank in range(2):
            recent = self.job.columns(rank, 0, STEPS)
            frame = HistoryFrame(run_id=self.run_id, rank=rank, recent=recent, older=StepColumns())
            store.put(history_key(self.run_id, rank), encode(frame))
            store.put(rank_key(self.run_id, rank), b"")
        self.publish(1)
        store.put(run_key(self.run_id), encode(info))
        store.put(RUNS_KEY, self.run_id.encode())

    def publish(self, seq: int) -> None:
        for rank in range(2):
            steps = self.job.columns(rank, STEPS - 20, STEPS)
            frame = rank_frame(rank, seq, steps, run_id=self.run_id, sent_at=time.time())
            self.store.put(rank_key(self.run_id, rank), encode(frame))


def main() -> None:
    runs = [Served(name) for name in sys.argv[1:]]
    print(*(run.url for run in runs), flush=True)
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    for seq in itertools.count(2):
        if ending.wait(0.5):
            break
        for run in runs:
            run.publish(seq)
    for run in runs:
        withdraw(run.file)


if __name__ == "__main__":
    main()
