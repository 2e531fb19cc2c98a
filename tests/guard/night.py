"""A night of a simulated run: its frames in a real store, real watchers, a guard, and a made-up clock.

A tick is forty seconds in which ten steps of four seconds are made. Troubles come one after the other; between and
during them ranks restart, the store is started again on its port, and the guard is started again with its file.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from ddpmon.codec import encode
from ddpmon.guard.courier import Courier
from ddpmon.guard.fleet import Look
from ddpmon.guard.guard import Guard
from ddpmon.guard.memory import StateFile
from ddpmon.guard.policy import GuardPolicy
from ddpmon.schema import RankFrame, RunInfo
from ddpmon.store.base import RUNS_KEY, rank_key, run_key
from ddpmon.store.discovery import Announcement, announce
from ddpmon.store.tcp_client import TcpClient
from ddpmon.watcher.observer import Observer
from tests.made_frames import RUN_ID, MadeJob, healthy_phases, rank_frame, run_info
from tests.store.served import HOME, begin, end

RANKS, A_HOST = 4, 2
STEPS, TICK_S, STEP_MS = 10, 40.0, 4000.0
QUIET_TICKS, TROUBLE_TICKS, SHORT_TICKS = 16, 14, 5


class Clock:
    """Stands in for the module `time` in what watches; a tick moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return 1.8e9 + self.now


@dataclass
class Trouble:
    """What goes wrong: its kind, on which ranks, and when."""

    kind: str
    ranks: tuple[int, ...]
    first: int = 0
    last: int = 0

    def is_on(self, tick: int) -> bool:
        return self.first <= tick < self.last


def troubles(kinds: Sequence[str]) -> list[Trouble]:
    """One after the other, on one rank after the other."""
    planned, tick = [], 8
    for number, kind in enumerate(kinds):
        ranks = (2, 3) if kind == "slow_node" else (number % RANKS,)
        length = SHORT_TICKS if kind in ("rank_lost", "no_word") else TROUBLE_TICKS
        planned.append(Trouble(kind, ranks, tick, tick + length))
        tick += length + QUIET_TICKS
    return planned


@dataclass
class Night:
    """The run, its store and its guard.

    Args:
        folder: for the guard's file.
        plan: the troubles.

    Attributes:
        said: all messages that the guard's channel has taken.
    """

    folder: Path
    plan: list[Trouble]
    said: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clock = Clock()
        self.port = begin(HOME, 29600)
        self.client: TcpClient | None = TcpClient(HOME, self.port)
        self.info: RunInfo = run_info(RANKS, started_at=self.clock.time(), pid=os.getpid())
        self.life, self.pid, self.seq, self.step = 0, [100 + rank for rank in range(RANKS)], [0] * RANKS, 0
        self.url = f"tcp://{HOME}:{self.port}/{RUN_ID}"
        announce(
            Announcement(
                run_id=RUN_ID, name="made", url=f"tcp://{HOME}:{self.port}", pid=os.getpid(), host="node0",
                world_size=RANKS, started_at=time.time(),
            )
        )  # fmt: skip
        self._open()
        self.start_guard()

    def _open(self) -> None:
        assert self.client is not None
        for rank in range(RANKS):
            self.client.put(rank_key(RUN_ID, rank), b"")
        self.client.put(run_key(RUN_ID), encode(self.info))
        self.client.put(RUNS_KEY, RUN_ID.encode())

    def start_guard(self) -> None:
        """A guard and a watcher that know nothing but the file."""
        self.file = StateFile(self.folder / "guard.json")
        clock = self.clock
        self.guard = Guard(GuardPolicy(), self.file, print, print, clock=clock.monotonic, wall=clock.time)
        self.guard.employ([Courier("command", self, self.guard.hand, print)])
        self.observer = Observer(self.url)

    def send(self, message: dict[str, Any]) -> None:
        self.said.append(message)

    def settle(self) -> None:
        """Wait until every message is brought out and the guard knows it."""
        deadline = time.monotonic() + 60
        while self.guard.waiting:
            assert time.monotonic() < deadline
            self.guard.serve(0.1)

    def restart_guard(self) -> None:
        """Kill it, as far as a thread can be: nothing but the file is left."""
        self.settle()
        self.observer.close()
        self.file.close()
        self.start_guard()

    def stop_store(self) -> None:
        assert self.client is not None
        self.client.close()
        self.client = None
        end(self.port)

    def start_store(self) -> None:
        """A store without anything, at the same port."""
        assert begin(HOME, self.port) == self.port
        self.client = TcpClient(HOME, self.port)
        self._open()

    def restart_ranks(self, *ranks: int) -> None:
        """New processes; if they are all, they count their steps from the beginning."""
        for rank in ranks:
            self.pid[rank] += 1000
            self.seq[rank] = 0
        if len(ranks) == RANKS:
            self.life, self.step = self.life + 1, 0

    def tick(self, number: int) -> None:
        """Make ten steps, publish them, and let the guard look; a lost rank holds up all others."""
        self.clock.now += TICK_S
        on = [trouble for trouble in self.plan if trouble.is_on(number)]
        lost = {rank for trouble in on if trouble.kind == "rank_lost" for rank in trouble.ranks}
        if self.client is not None:
            self._publish(on, lost)
        self.guard.hand(Look(self.url, self.observer.tick()))
        self.guard.serve(0.0)

    def _publish(self, on: list[Trouble], lost: set[int]) -> None:
        job, first = self._job(on), 0 if lost else STEPS
        for rank in range(RANKS):
            if rank in lost:
                continue
            self.seq[rank] += 1
            columns = job.columns(rank, 0, first)
            steps = (np.frombuffer(columns.step, "<i8") + self.step).astype("<i8").tobytes()
            columns = msgspec.structs.replace(columns, step=steps)
            frame: RankFrame = rank_frame(
                rank, self.seq[rank], columns, pid=self.pid[rank], sent_at=self.clock.time(),
                host=f"node{rank // A_HOST}", node=rank // A_HOST, step=self.step + first - 1,
            )  # fmt: skip
            assert self.client is not None
            self.client.put(rank_key(RUN_ID, rank), encode(frame))
        assert self.client is not None
        self.client.get_many([rank_key(RUN_ID, 0)])  # its answer comes after all puts: else a rank may look lost
        self.step += first

    def _job(self, on: list[Trouble]) -> MadeJob:
        phases = {
            name: STEP_MS / 105 * table for name, table in healthy_phases(RANKS, STEPS, seed=self.step + 1).items()
        }
        for trouble in on:
            if trouble.kind in ("straggler", "slow_node"):
                for rank in trouble.ranks:
                    phases["forward"][rank] += 0.3 * STEP_MS
        return MadeJob(phases, transfer_ms=20.0)

    def close(self) -> None:
        self.observer.close()
        if self.client is not None:
            self.stop_store()


def night(folder: Path, monkeypatch: pytest.MonkeyPatch, kinds: Sequence[str]) -> Iterator[Night]:
    """A night in which what watches reads the made-up clock."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    folder.chmod(0o700)
    made = Night(folder, troubles(kinds))
    for module in ("observer", "feed", "link"):
        monkeypatch.setattr(f"ddpmon.watcher.{module}.time", made.clock)
    try:
        yield made
    finally:
        made.close()
