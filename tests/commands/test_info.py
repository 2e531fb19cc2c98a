"""`ddpmon info`, and what a shell offers while a command is typed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ddpmon.store.discovery import Announcement, announce
from tests import ranks
from tests.ranks import ROOT


def completed(words: str, folder: Path = ROOT) -> list[str]:
    """What bash is offered for the last of these words, in a folder."""
    count = len(words.split()) - (not words.endswith(" "))
    asked = {"_DDPMON_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(count)}
    command = [sys.executable, "-m", "ddpmon.cli"]
    done = subprocess.run(command, env={**os.environ, **asked}, capture_output=True, text=True, check=False, cwd=folder)
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


def test_scenarios_choices_and_names_of_runs_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for name in ("my-run", "other", "my $(id)\x1b[31m"):
        run = Announcement(
            run_id=name[:4],
            name=name,
            url="tcp://127.0.0.1:1",
            pid=os.getpid(),
            host="node0",
            world_size=4,
            started_at=1.0,
        )
        assert announce(run) is not None
    assert completed("ddpmon status m") == ["my-run"]
    for path in ("my-night.ddpmon", "night.ddpmon", "notes.txt", "my night.ddpmon", "sub/deep.ddpmon"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).touch()
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    assert completed("ddpmon watch m", tmp_path) == ["my-run", "my-night.ddpmon"]
    assert completed("ddpmon report ni", tmp_path) == ["night.ddpmon"]
    assert completed(f"ddpmon status {tmp_path}/sub/") == [f"{tmp_path}/sub/deep.ddpmon"]
    assert completed("ddpmon watch no", tmp_path) == ["no"], "of another name: the shell goes on"
    assert completed("ddpmon simulate --scenario st") == ["straggler"]
    assert completed("ddpmon watch --theme li") == ["light"]


def test_info_names_paths_and_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("DDPMON_TOKEN", "s3cret-token")
    monkeypatch.setenv("DDPMON_STORE", "redis://me:s3cret@host")
    done = ranks.run("ddpmon.cli", "info")
    said = done.stdout
    assert done.returncode == 0
    assert f"{tmp_path}/config/ddpmon/config.toml (not there)" in said
    assert "DDPMON_TOKEN=(set)" in said
    assert "s3cret" not in said
    found = json.loads(ranks.run("ddpmon.cli", "info", "--json").stdout)
    assert found["state_folder"] == f"{tmp_path}/ddpmon (not there)"
    assert list(tmp_path.iterdir()) == [], "nothing is made"
