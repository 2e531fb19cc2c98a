"""The watcher's commands on a live run, in interpreters in which torch cannot be loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing

import pytest

pytest.importorskip("torch")  # for the run, not for who watches it
from tests.made_frames import RUN_ID
from tests.made_store import MadeStore
from tests.tui.test_terminal import ROOT, terminal

# No ImportError: who would do without torch is found out, too.
REFUSE = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise AssertionError("torch is loaded")
sys.meta_path.insert(0, Refuse())
"""
COMMAND = f"{REFUSE}from ddpmon.cli import main; main()"


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.delenv("DDPMON_TOKEN", raising=False)
    with closing(MadeStore()) as store:
        store.begin()
        yield store.url


def said(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", COMMAND, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


def test_status_and_ls_load_no_torch(url: str) -> None:
    done = said("status", "--json", url)
    assert (done.returncode, done.stderr) == (0, "")
    seen = json.loads(done.stdout)
    assert (seen["run"]["id"], [each["rank"] for each in seen["ranks"]]) == (RUN_ID, [0, 1]), "however long that took"
    assert said("status", url).returncode == 0
    done = said("ls", "--json", url)
    assert (done.returncode, [run["id"] for run in json.loads(done.stdout)["runs"]]) == (0, [RUN_ID])


def test_the_dashboard_loads_no_torch(url: str) -> None:
    with terminal("watch", url, command=("-c", COMMAND)) as term:
        term.until(b"node0")
        term.send(b"q")
        assert term.end() == 0


def test_this_would_be_seen() -> None:
    done = subprocess.run([sys.executable, "-c", f"{REFUSE}import torch"], capture_output=True, text=True, check=False)
    assert "torch is loaded" in done.stderr
