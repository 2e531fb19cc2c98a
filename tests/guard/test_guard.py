"""`ddpmon guard` as a process, on runs in a real store: what its command gets, over its death and its restart."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from ddpmon.guard.command import guard
from ddpmon.guard.message import Form
from ddpmon.schema import encode
from ddpmon.store.base import rank_key
from tests.made_frames import RUN_ID, MadeJob, healthy_phases, rank_frame
from tests.made_store import MadeStore

ROOT = Path(__file__).parents[2]
RANKS, STEPS = 2, 40


class Guarded:
    """A run whose rank 1 is late, in a store, and a guard on it.

    Args:
        folder: for the guard's file and what its command writes.
    """

    def __init__(self, folder: Path) -> None:
        self.out, self.file, self.log = folder / "out.jsonl", folder / "state" / "guard.json", folder / "guard.log"
        self.store = MadeStore(RANKS)
        self.store.begin()
        self.seq, self.step = 1, 4
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> None:
        command = [sys.executable, "-m", "ddpmon.cli", "guard", self.store.url, "--state", str(self.file)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--on-finding", f"cat >> '{self.out}'", *more], cwd=ROOT, stdout=log, stderr=log
            )

    def speak(self, state: str = "running") -> None:
        """Forty more steps of each rank, in which rank 1 is late."""
        phases = healthy_phases(RANKS, STEPS, seed=self.seq)
        phases["input"][1] += 60.0
        job = MadeJob(phases)
        self.seq += 1
        for rank in range(RANKS):
            shifted = self._shifted(job.columns(rank, 0, STEPS))
            frame = rank_frame(
                rank, self.seq, shifted, state=state, sent_at=time.time(), step=self.step + STEPS - 1, host="node0"
            )
            self.store.host.put(rank_key(RUN_ID, rank), encode(frame))
        self.step += STEPS
        self.store.settle()

    def _shifted(self, columns: Any) -> Any:
        steps = (np.frombuffer(columns.step, "<i8") + self.step).astype("<i8").tobytes()
        return msgspec.structs.replace(columns, step=steps)

    def until(self, count: int, state: str = "running") -> list[dict[str, Any]]:
        """Go on until the command has got so many messages."""
        deadline = time.monotonic() + 120
        while len(said := self.said()) < count:
            assert time.monotonic() < deadline, self.log.read_text()
            assert self.process is not None
            assert self.process.poll() is None, self.log.read_text()
            self.speak(state)
            time.sleep(0.5)
        return said

    def said(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.read_text().splitlines()] if self.out.exists() else []

    def end(self, number: int = signal.SIGTERM) -> int:
        process, self.process = self.process, None
        if process is None:
            return 0
        process.send_signal(number)
        return process.wait(60)


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    made = Guarded(tmp_path)
    try:
        yield made
    finally:
        made.end(signal.SIGKILL)
        made.store.close()


def test_a_guard_that_is_killed_and_started_again_repeats_nothing(guarded: Guarded) -> None:
    guarded.start()
    (first,) = guarded.until(1)
    assert (first["event"], first["finding"]["kind"], first["finding"]["ranks"]) == ("firing", "straggler", [1])
    guarded.end(signal.SIGKILL)
    guarded.start()
    wait_until_seen(guarded)
    second = guarded.until(2, "finished")[1]
    assert (second["event"], second["alert"]) == ("resolved", first["alert"])
    assert second["reason"] == "the run has finished"
    assert guarded.end() == 0
    assert len(guarded.said()) == 2
    assert oct(guarded.file.stat().st_mode & 0o777) == "0o600"


def wait_until_seen(guarded: Guarded) -> None:
    """Go on until the guard that was started again has seen the run, as its file tells."""
    seen = json.loads(guarded.file.read_text())["runs"][RUN_ID]["seen_at"]
    deadline = time.monotonic() + 120
    while json.loads(guarded.file.read_text())["runs"][RUN_ID]["seen_at"] == seen:
        assert time.monotonic() < deadline, guarded.log.read_text()
        guarded.speak()
        time.sleep(0.5)


def test_a_second_guard_with_the_same_file_is_refused(guarded: Guarded) -> None:
    guarded.start()
    guarded.until(1)
    command = [sys.executable, "-m", "ddpmon.cli", "guard", guarded.store.url, "--state", str(guarded.file)]
    second = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert second.returncode == 2
    assert "another guard uses" in second.stderr


@pytest.mark.parametrize(
    ("targets", "webhook", "form", "said"),
    [
        (["http://host"], None, "json", "unknown scheme"),
        (["host:29480"], None, "json", "write tcp://host:29480"),
        ([""], None, "json", "TARGET is empty"),
        ([], "ftp://x/SECRET", "json", "webhook's address is not understood"),
        ([], None, "slack", "give --webhook URL"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(
    targets: list[str], webhook: str | None, form: Form, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert guard(targets, None, webhook, form, "warning", 60.0, None) == 2
    told = capsys.readouterr()
    assert said in told.err
    assert "SECRET" not in told.err
    assert told.out == ""
