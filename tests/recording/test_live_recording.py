"""A real faulty run, recorded by a process of its own; then both are killed."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddpmon.recording.layout import RecordingError
from ddpmon.recording.player import Player
from ddpmon.recording.reader import Recording
from ddpmon.recording.travel import Replay
from ddpmon.shell_command import advice_text
from tests.live import TINY, LiveRun

ROOT = Path(__file__).parents[2]
DEADLINE_S = 240.0


@contextlib.contextmanager
def recorder_of(folder: Path, path: Path) -> Iterator[subprocess.Popen[str]]:
    """`ddpmon record` on the run that is announced in `folder`."""
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder), "TMPDIR": str(folder)}
    command = [sys.executable, "-m", "ddpmon.cli", "record", "-o", str(path)]
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for(path: Path, query: str, log: Path) -> None:
    """Look into the recording while it is written until the query finds something."""
    until = time.monotonic() + DEADLINE_S
    while time.monotonic() < until:
        with contextlib.suppress(RecordingError, sqlite3.Error), contextlib.closing(Recording(path)) as recording:
            if next(recording.rows(query), None) is not None:
                return
        time.sleep(0.5)
    pytest.fail(f"not recorded in time: {query}\n{log.read_text()[-2000:]}")


def test_a_killed_run_and_its_killed_recorder_leave_the_last_second_and_the_same_verdicts(tmp_path: Path) -> None:
    path = tmp_path / "run.ddpmon"
    usual = [f"--fault=forward:rank={rank},ms=50" for rank in range(2)]
    fault = "--fault=forward:rank=1,ms=200,from=50"
    run = LiveRun(tmp_path, 2, "--steps=20000", *usual, fault, *TINY)
    try:
        with recorder_of(tmp_path, path) as recorder:
            wait_for(path, "SELECT 1 FROM alerts WHERE kind = 'straggler' AND worst != 'info'", run.log)
            with contextlib.closing(Recording(path)) as recording:
                seen = recording.last()
            recorder.send_signal(signal.SIGKILL)
            recorder.wait()
    finally:
        run.end()
    assert seen is not None
    recording = Recording(path)
    assert recording.notes == []
    last = recording.last()
    assert last is not None
    assert last.look >= seen.look, "every second is a transaction"
    player, said = Player(recording), 0
    while player.step():
        assert player.place is not None
        look = recording.look(player.place, recording.chunk_of(player.place))
        if look.findings is not None:
            assert player.findings == tuple(look.findings), "the same verdicts at the same looks as live"
            said += any(finding.kind == "straggler" for finding in look.findings)
    assert said
    assert player.is_exact
    recording.close()
    shown = Replay(path).tick()
    (late,) = (finding for finding in shown.findings if finding.kind == "straggler")
    assert late.ranks == (1,)
    assert "py-spy" in advice_text(late.advice)
    assert "--pid" not in advice_text(late.advice), "another process may have its number when the recording is read"
    assert shown.run is not None
    assert shown.run.step == last.step


def test_a_recorder_ends_with_its_run(tmp_path: Path) -> None:
    path = tmp_path / "run.ddpmon"
    with recorder_of(tmp_path, path) as recorder:
        assert recorder.stdout is not None
        assert "recording to" in recorder.stdout.readline(), "it waits for a run"
        run = LiveRun(tmp_path, 2, "--steps=60", *TINY)
        try:
            said, _ = recorder.communicate(timeout=DEADLINE_S)
        finally:
            run.end()
        assert recorder.returncode == 0, said
    assert "finished, step" in said
    shown = Replay(path).tick()
    assert shown.run is not None
    assert shown.run.state == "finished"
    assert [each.name for each in tmp_path.glob("run.ddpmon*")] == ["run.ddpmon"], "one file is left"


def test_a_command_is_recorded_by_a_process_beside_it_until_its_run_is_over(tmp_path: Path) -> None:
    path, log = tmp_path / "run.ddpmon", tmp_path / "log"
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "ddpmon.cli", "run", f"--record={path}", "--"]
    training = [sys.executable, "-m", "tests.autoattach.lone_model", str(tmp_path)]
    with log.open("w") as output:
        process = subprocess.Popen([*command, *training], cwd=ROOT, env=environment, stdout=output, stderr=output)
    try:
        wait_for(path, "SELECT 1 FROM looks", log)
        (tmp_path / "release").touch()
        assert process.wait() == 0
        wait_for(path, "SELECT 1 FROM runs WHERE state = 'finished'", log)
    finally:
        process.kill()
        process.wait()
    again = subprocess.run([*command, "true"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert again.returncode == 2
    assert "exists already: a recording is never overwritten" in again.stderr


def test_a_command_without_a_run_leaves_no_recording(tmp_path: Path) -> None:
    path = tmp_path / "run.ddpmon"
    command = [sys.executable, "-m", "ddpmon.cli", "run", f"--record={path}", "--", "true"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # the recorder has its stderr
    assert done.returncode == 0
    assert "nothing was recorded: the command ended before it announced a run on this host" in done.stderr
    assert not path.exists()
