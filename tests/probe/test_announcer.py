"""Rank 0's line: the command that shows its run, here and from where the user probably is."""

from __future__ import annotations

import getpass
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
from ddpmon.probe.registration import Announcer
from ddpmon.store.discovery import discover, past_runs
from tests.ranks import ROOT

URL, WIDE = "tcp://127.0.0.1:29480", "tcp://10.0.0.7:29480"
BEHIND_SSH = "10.0.0.9 51234 10.0.0.7 22"
BEHIND_ANOTHER_PORT = "10.0.0.9 51234 10.0.0.7 2222"


@pytest.fixture(autouse=True)
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are announced where this user's other shells would look, which is a folder of this test."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def line(capsys: pytest.CaptureFixture[str], url: str = URL, name: str = "gpt", run_id: str = "gpt-1") -> str:
    """What rank 0 says."""
    Announcer(name, 2).announce(run_id, url)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said.strip().removeprefix("ddpmon: to watch this run: ")


def test_it_names_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert line(capsys) == "ddpmon watch gpt"
    assert line(capsys, run_id="gpt-2") == "ddpmon watch gpt-2", "another run here is called gpt"
    assert line(capsys, name="my run", run_id="my-run-1") == "ddpmon watch 'my run'"
    assert line(capsys, name="--help", run_id="help-1") == "ddpmon watch help-1"


def test_it_names_the_way_from_another_host(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert line(capsys, WIDE, "a") == f"ddpmon watch a (from another host: ddpmon watch {WIDE})"
    user = getpass.getuser()
    monkeypatch.setenv("SSH_CONNECTION", BEHIND_SSH)
    assert line(capsys, URL, "b") == f"ddpmon watch b (from another host: ddpmon watch --ssh {user}@10.0.0.7)"
    monkeypatch.setenv("SSH_CONNECTION", BEHIND_ANOTHER_PORT)
    assert "DDPMON_SSH='ssh -p 2222' ddpmon watch --ssh" in line(capsys, URL, "c")
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    assert line(capsys, WIDE, "d") == "ddpmon watch d (from another host: ddpmon watch --slurm 4711)"
    assert line(capsys, "redis://h", "e") == "ddpmon watch e (from another host: ddpmon watch redis://h)"


def test_it_announces_who_starts_the_ranks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RUN_ID": "job", "RESTART_COUNT": "1", "MAX_RESTARTS": "2"}.items():
        monkeypatch.setenv(f"TORCHELASTIC_{name}", value)
    Announcer("gpt", 2).announce("gpt-1", URL)
    (run,) = discover()
    assert (run.launch, run.launcher_pid, run.restart, run.max_restarts) == ("job", os.getppid(), 1, 2)
    assert past_runs() == [], "its rank 0 has not ended yet"


def test_a_shell_between_torchrun_and_a_rank_is_not_the_launcher() -> None:
    environment = {**os.environ, "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_MAX_RESTARTS": "2"}
    asks = f"{sys.executable} -c 'from ddpmon.probe.run_life import launch; print(launch().name, launch().pid)'; true"
    said = subprocess.check_output(["sh", "-c", asks], cwd=ROOT, env=environment, text=True)
    assert said.split() == [f"none/{os.getpid()}", str(os.getpid())]
