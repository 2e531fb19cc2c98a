"""`ddpmon guard` as a process, on runs in a real store: what its command gets, over its death and its restart."""

from __future__ import annotations

import dataclasses
import json
import os
import pwd
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click import Command

from ddpmon.codec import encode
from ddpmon.commands.completion import completion
from ddpmon.commands.console import NOT_WRITTEN
from ddpmon.guard.command import guard
from ddpmon.guard.fleet import Fleet, Look
from ddpmon.guard.guard import Guard
from ddpmon.guard.memory import Memory, RunMemory, StateFile
from ddpmon.guard.message import Form, from_elsewhere
from ddpmon.guard.policy import GuardPolicy
from ddpmon.parts import Attempt
from ddpmon.snapshot import Finding, Link
from ddpmon.store.base import rank_key
from ddpmon.store.discovery import Announcement, announce
from tests.commands.command_snapshots import snapshot
from tests.made_frames import RUN_ID, MadeJob, healthy_phases, rank_frame, run_info
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
    opening = guarded.log.read_text().splitlines()[0]
    assert f"guards {guarded.store.url}; tells here and to the command of findings of severity warning" in opening
    assert len(guarded.said()) == 2
    assert oct(guarded.file.stat().st_mode & 0o777) == "0o600"


def test_a_reader_on_another_host_is_told_a_way_from_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.9 50000 10.0.0.7 22")
    made = snapshot(findings=()).run
    assert made is not None
    here = dataclasses.replace(made, id="gpt-1", source="tcp://127.0.0.1:29480", jobs=())
    assert from_elsewhere(here) == "", "it is not announced on this host: its port may be a tunnel of the user's"
    user = pwd.getpwuid(os.geteuid()).pw_name
    announced = Announcement(
        run_id="gpt-1", name="gpt", url=here.source, pid=os.getpid(), host="h", world_size=2, started_at=1.0
    )
    assert announce(announced) is not None
    assert from_elsewhere(here) == f"ddpmon watch --ssh {user}@10.0.0.7 gpt-1"
    monkeypatch.delenv("SSH_CONNECTION")
    assert from_elsewhere(here) == f"ddpmon watch --ssh {user}@{socket.gethostname()} gpt-1"
    assert from_elsewhere(dataclasses.replace(here, source="tcp://10.0.0.7:29480")) == ""
    of_slurm = dataclasses.replace(here, jobs=(("slurm", "4711"),))
    assert from_elsewhere(of_slurm) == "ddpmon watch --slurm 4711 gpt-1"


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


def test_a_job_that_goes_on_as_another_run_ends_what_was_open_on_the_last(tmp_path: Path) -> None:
    lines: list[str] = []
    file = StateFile(tmp_path / "guard.json")
    kept = Guard(GuardPolicy(), file, lines.append, print)
    gone = Link("gone", "its host is gone")

    def look(run_id: str, **changes: Any) -> None:
        made = snapshot(findings=(), link=changes.pop("link", Link("live")))
        assert made.run is not None
        run = dataclasses.replace(made.run, id=run_id, **changes)
        kept.hand(Look(f"tcp://127.0.0.1:1/{run_id}", dataclasses.replace(made, run=run)))
        kept.serve(0.0)

    look("old", state="lost", link=gone)
    assert lines == [], "it was over before the guard came"
    look("first")
    look("first", state="lost", link=gone)
    look("first", state="lost", link=gone)
    assert [line.split()[0] for line in lines] == ["[critical]"]
    look("second")
    assert [line.split()[0] for line in lines] == ["[critical]", "[resolved]"]
    assert "the run goes on as second" in lines[1]
    look("second", state="finished", link=gone)
    assert len(lines) == 2
    redis = "redis://server:6379"
    look("third", source=redis)
    look("third", source=redis, state="lost", link=gone)
    look("other", source=redis)
    assert len(lines) == 3, "another run of the same name in the same server has nothing to do with it"
    look("fourth", source=redis, attempts=(Attempt(run_id="third"),))
    assert [line.split()[0] for line in lines[2:]] == ["[critical]", "[resolved]"]
    assert "the run goes on as fourth" in lines[3]
    look("third", source=redis, state="killed", link=gone)
    assert len(lines) == 4, "an attempt that another one has followed is not killed"
    file.close()


@pytest.mark.parametrize(("began_s", "guarded_s", "told"), [(-60.0, 0.0, 0), (1.0, 0.0, 1), (-60.0, 10.0, 1)])
def test_a_run_that_failed_before_its_first_look_is_told_unless_it_was_over_before_the_guard_came(
    began_s: float, guarded_s: float, told: int, tmp_path: Path
) -> None:
    lines: list[str] = []
    file = StateFile(tmp_path / "guard.json")
    clock = [100.0]
    kept = Guard(GuardPolicy(), file, lines.append, print, clock=lambda: clock[0])
    clock[0] += guarded_s
    ended = Finding("rank_failed", "critical", "rank 1 failed before its first step", ranks=(1,))
    made = snapshot(findings=(ended,), link=Link("gone", "the run has failed"))
    assert made.run is not None
    info = run_info(2, started_at=time.time() + began_s)
    run = dataclasses.replace(made.run, state="failed", info=info)
    kept.hand(Look("tcp://127.0.0.1:1/r1", dataclasses.replace(made, run=run)))
    kept.serve(0.0)
    file.close()
    assert len(lines) == told


def test_a_guard_that_is_started_again_hears_nothing_from_an_address_that_it_follows(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"tcp://127.0.0.1:{closed.getsockname()[1]}"
    file, lines = StateFile(tmp_path / "guard.json"), queue.SimpleQueue[str]()
    file.save(Memory(runs={"r1": RunMemory("r1", "gpt", url, step=700, seen_at=time.time())}))
    kept = Guard(GuardPolicy(silence_s=0.2), file, lines.put, print)
    fleet = Fleet(lambda: [url], kept.hand, print, tick_s=0.1)
    thread = threading.Thread(target=kept.run, args=(fleet,), daemon=True)
    thread.start()
    try:
        line = lines.get(timeout=60)
    finally:
        kept.stop()
        thread.join(60)
        file.close()
    assert line.startswith("[critical]")
    assert "no word from the run since the guard was started; it was last seen at step 700" in line


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"version": 99}', b'{"runs": {"a": 5}}', b"\xff" * 1000])
def test_a_state_file_that_cannot_be_read_is_set_aside(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "guard.json"
    path.write_bytes(data)
    file = StateFile(path)
    memory, trouble = file.load()
    assert "is set aside" in trouble
    assert memory.runs == {}
    assert path.with_name("guard.json.bad").read_bytes() == data
    assert file.save(memory) == ""
    assert file.load()[1] == ""
    path.unlink()
    path.with_name("guard.json.new").mkdir()
    assert "cannot be written" in file.save(memory)
    file.close()


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


def test_a_guard_of_a_run_that_is_not_there_yet_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    said = Announcement(
        run_id="gpt-1", name="gpt", url="tcp://127.0.0.1:1", pid=os.getpid(), host="h", world_size=2, started_at=1.0
    )
    assert announce(said) is not None
    command = [sys.executable, "-m", "ddpmon.cli", "guard", "nosuch", "gpt", "--state", str(tmp_path / "state.json")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        opening = process.stdout.readline()
        process.terminate()
    assert "guards nosuch (there is no such run yet), gpt; tells here of findings" in opening


def test_a_user_without_a_home_is_asked_for_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", _unknown_user)
    assert guard(["tcp://127.0.0.1:1"], None, None, "json", "warning", 60.0, None) == 2
    assert "has no home directory: say where the guard remembers with --state FILE" in capsys.readouterr().err
    assert completion(Command("ddpmon"), "bash", is_to_install=True) == NOT_WRITTEN
    assert "completion cannot be installed: this user has no home directory" in capsys.readouterr().err


def _unknown_user(uid: int) -> None:
    raise KeyError(f"getpwuid(): uid not found: {uid}")
