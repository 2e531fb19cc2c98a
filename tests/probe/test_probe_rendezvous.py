"""DDPMON_STORE=rendezvous: no further port, the same frames, and watchers who follow from one run to the next."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
from ddpmon.snapshot import Snapshot
from ddpmon.store.base import history_key, rank_key
from ddpmon.store.connect import connect, list_runs, parse_target
from ddpmon.watcher.observer import Observer
from tests.probe.probe_ranks import (
    PATIENCE_S,
    Seen,
    at_once,
    harvest,
    private_runs,
    started,
    torchrun,
    wait_for_end,
)
from tests.ranks import ROOT

FILE_STORE = """
import sys, torch, torch.distributed as dist, ddpmon
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=0, world_size=1)
ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
with ddpmon.attach(ddp):
    for _ in range(3):
        ddp(torch.ones(2, 4)).sum().backward()
print("trained")
"""


class Story:
    """Two runs, one after the other, in the store of one launch."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "log"
        self.runs: dict[str, Seen] = {}
        self.ids: list[str] = []
        self.watched: list[str] = []
        self.freed: list[bytes | None] = []

    def play(self) -> None:
        command = torchrun("scenes_rendezvous", 2, str(self.folder), "first", "second")
        with private_runs(self.folder), started(command, self.log, DDPMON_STORE="rendezvous") as process:
            self.runs["first"] = harvest(process, self.log, "first", 2, at_once)
            url = self.runs["first"].announcement.url
            with closing(Observer(url)) as one, closing(Observer(url)) as other:
                self.watched += [name_of(watch_until(each, "first")) for each in (one, other)]
                self._release("first")
                self.runs["second"] = harvest(process, self.log, "second", 2, at_once)
                self.watched.append(name_of(watch_until(one, "second")))
            self._read(url)
            self._release("second")
            assert wait_for_end(process, self.log) == 0, self.log.read_text()

    def _release(self, scene: str) -> None:
        for what in ("seen", "release"):
            (self.folder / f"{scene}.{what}").touch()

    def _read(self, url: str) -> None:
        run = self.runs["first"].info.run_id
        with closing(connect(parse_target(url))) as store:
            self.ids = list_runs(store)
            self.freed = store.get_many([key(run, rank) for key in (rank_key, history_key) for rank in range(2)])

    def notes(self, scene: str, rank: int) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / f"{scene}.{rank}.json").read_text())
        return found


def name_of(snapshot: Snapshot) -> str:
    return "" if snapshot.run is None else snapshot.run.name


def watch_until(observer: Observer, name: str) -> Snapshot:
    """Tick until the run of this name is shown."""
    deadline = time.monotonic() + PATIENCE_S
    while name_of(snapshot := observer.tick()) != name and time.monotonic() < deadline:
        time.sleep(0.1)
    return snapshot


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    played = Story(tmp_path_factory.mktemp("rendezvous"))
    played.play()
    return played


@pytest.mark.parametrize("scene", ["first", "second"])
def test_frames_go_through_the_trainings_own_store_and_no_port_is_opened(story: Story, scene: str) -> None:
    notes = [story.notes(scene, rank) for rank in range(2)]
    assert story.runs[scene].announcement.url == notes[0]["rendezvous"]
    for rank in notes:
        assert rank["after"] == rank["before"]
    assert [rank.frame.rank for rank in story.runs[scene].ranks] == [0, 1]


def test_a_watcher_follows_to_the_run_that_comes_after(story: Story) -> None:
    assert story.watched == ["first", "first", "second"]


def test_the_store_lists_its_runs_and_keeps_no_frames_of_those_that_are_over(story: Story) -> None:
    assert story.ids == [story.runs[name].info.run_id for name in ("first", "second")]
    assert story.freed == [None] * 4


def test_a_rendezvous_without_a_server_is_told_once_and_training_goes_on(tmp_path: Path) -> None:
    environment = {**os.environ, "DDPMON_STORE": "rendezvous", "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", FILE_STORE, str(tmp_path / "store")],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "trained"  # some releases of Gloo say a line before
    (said,) = [line for line in done.stderr.splitlines() if line.startswith("ddpmon: ")]
    assert "needs a TCPStore, this run has a FileStore" in said
