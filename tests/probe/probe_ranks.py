"""Plays scenes on real ranks, and reads back through the store what the probe published."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy
import pytest

from ddpmon.codec import decode
from ddpmon.schema import HOST_COLUMNS, RankFrame, RunInfo
from ddpmon.store.base import Store, StoreUnavailable, rank_key, run_key
from ddpmon.store.connect import connect, parse_target
from ddpmon.store.discovery import Announcement, discover
from tests.ranks import ROOT, Group, kill_family, running

PATIENCE_S = 240.0
STEPS = 4  # as in probe_stage


@dataclass
class Rank:
    """One rank as the store showed it: its newest frame, and every step that any frame held."""

    frame: RankFrame
    steps: dict[int, dict[str, float]] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)

    def take(self, frame: RankFrame) -> None:
        self.frame = frame
        numbers = numpy.frombuffer(frame.steps.step, "<i8").tolist()
        columns = {
            name: numpy.frombuffer(column, "<f2" if name in HOST_COLUMNS else "<f4")
            for name, column in frame.steps.values.items()
        }
        for row, step in enumerate(numbers):
            values = {name: float(column[row]) for name, column in columns.items()}
            self.steps[step] = {**self.steps.get(step, {}), **values}

    @property
    def of_device(self) -> bool:
        """Whether the steps were timed by a device's clock: a host's fills no `HOST_COLUMNS`."""
        return any(name in HOST_COLUMNS for row in self.steps.values() for name in row)

    def column(self, name: str) -> list[float]:
        """A quantity over the steps after the first, whose start is the script's."""
        return [self.quantity(name, step) for step in range(1, STEPS)]

    def quantity(self, name: str, step: int) -> float:
        row = self.steps[step]
        if name == "other":
            parts = ("input", "forward", "backward", "optimizer", "exposed", "barrier", "marked")
            return row["duration"] - sum(row[part] for part in parts)
        if name == "work":
            return row["duration"] - row["exposed"] - row["barrier"]
        return row[name]


@dataclass
class Seen:
    """One scene's run."""

    info: RunInfo
    announcement: Announcement
    ranks: list[Rank]


@dataclass
class Played:
    """What a launch left: the scenes' runs by name, and what the ranks said."""

    folder: Path
    runs: dict[str, Seen] = field(default_factory=dict)
    output: str = ""

    def notes(self, scene: str, rank: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / f"{scene}.{rank}.json").read_text())
        return found


def torchrun(script: str, ranks: int, *arguments: str) -> list[str]:
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    return [sys.executable, *launcher, "-m", f"tests.probe.{script}", *arguments]


@contextmanager
def private_runs(folder: Path) -> Iterator[None]:
    """Discovery sees only the runs of this folder, here and in what is started."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(folder))
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setattr("tempfile.tempdir", str(folder))
        yield


@contextmanager
def started(command: Sequence[str], log: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process in a session of its own; at the end it and all its children are gone."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=ROOT,
            env={**os.environ, **environment, "TEST_PID": str(os.getpid())},
            start_new_session=True,
        )
    try:
        yield process
    finally:
        kill_family(process.pid)
        process.wait()


Launched = subprocess.Popen[bytes] | Group


@contextmanager
def grouped(
    script: str, ranks: int, log: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> Iterator[Launched]:
    """Ranks that are forked from the preloaded server."""
    with running(Group(ranks, f"tests.probe.{script}", arguments, [log], environment=environment)) as group:
        yield group


@contextmanager
def launched(script: str, ranks: int, log: Path, *arguments: str) -> Iterator[Launched]:
    """Ranks that a real torchrun starts, each in an interpreter of its own."""
    with started(torchrun(script, ranks, *arguments), log) as process:
        yield process


def at_once(_frame: RankFrame) -> bool:
    return True


def play(
    folder: Path,
    script: str,
    ranks: int,
    watch: Sequence[str] = (),
    also: Sequence[str] = (),
    ready: Callable[[RankFrame], bool] = at_once,
    steps: int = STEPS,
    launch: Callable[..., AbstractContextManager[Launched]] = grouped,
) -> Played:
    """Play scenes in one launch; the runs of those to `watch` are read from the store while they are held.

    They are read until every rank's `steps` first steps are there and its newest frame is `ready`.
    """
    played, log = Played(folder), folder / "log"
    with private_runs(folder), launch(script, ranks, log, str(folder), *watch, *also) as process:
        for scene in watch:
            played.runs[scene] = harvest(process, log, scene, ranks, ready, steps)
            (folder / f"{scene}.release").touch()
        code = wait_for_end(process, log)
    played.output = log.read_text(errors="replace")
    assert code == 0, played.output
    for scene, seen in played.runs.items():
        for number, rank in enumerate(seen.ranks):
            if (folder / f"{scene}.{number}.json").exists():
                rank.notes = played.notes(scene, number)
    return played


def wait_for_end(process: Launched, log: Path) -> int:
    try:
        return process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        pytest.fail(f"did not end:\n{log.read_text(errors='replace')[-4000:]}")


def harvest(
    process: Launched,
    log: Path,
    scene: str,
    ranks: int,
    ready: Callable[[RankFrame], bool],
    steps: int = STEPS,
) -> Seen:
    """Read the scene's run until every rank has published its first steps and is ready."""
    deadline = time.monotonic() + PATIENCE_S
    reader = Reader(scene)
    while time.monotonic() < deadline and process.poll() is None:
        seen = reader.look(ranks)
        if seen is not None and all(
            set(range(steps)) <= rank.steps.keys() and ready(rank.frame) for rank in seen.ranks
        ):
            return seen
        time.sleep(0.05)
    pytest.fail(f"{scene}: the ranks did not publish {steps} steps:\n{log.read_text(errors='replace')[-4000:]}")


class Reader:
    """Follows one run through the store."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.store: Store | None = None
        self.seen: Seen | None = None

    def look(self, ranks: int) -> Seen | None:
        """What is known of the run now; None before every rank has spoken."""
        with contextlib.suppress(StoreUnavailable):
            if self.seen is None:
                self.find(ranks)
            if self.seen is not None:
                self.read(self.seen)
        return self.seen

    def find(self, ranks: int) -> None:
        found = [run for run in discover() if run.name == self.name]
        if not found:
            return
        self.store = connect(parse_target(found[0].url))
        (info,) = self.store.get_many([run_key(found[0].run_id)])
        frames = self.frames(found[0].run_id, ranks)
        if info is not None and len(frames) == ranks:
            run = decode("run", info, RunInfo)
            self.seen = Seen(run, found[0], [Rank(frame) for frame in frames])

    def read(self, seen: Seen) -> None:
        for rank, frame in zip(seen.ranks, self.frames(seen.info.run_id, len(seen.ranks)), strict=True):
            rank.take(frame)

    def frames(self, run_id: str, ranks: int) -> list[RankFrame]:
        assert self.store is not None
        keys = [rank_key(run_id, rank) for rank in range(ranks)]
        found = zip(keys, self.store.get_many(keys), strict=True)
        return [decode(key, value, RankFrame) for key, value in found if value is not None]
