"""Hosts whose DNS does not answer: a run's own address needs no name server, and a name is not waited for long."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ddpmon.store.lookup import addresses
from tests.ranks import ROOT

SPACES = ["unshare", "-n", "-m"]


def why_not() -> str:
    """Why this machine has no such host, empty if it can have one."""
    missing = [tool for tool in ("unshare", "ip", "mount") if shutil.which(tool) is None]
    if os.geteuid() != 0 or missing:
        return f"needs root and {', '.join(missing) or 'namespaces'}"
    made = subprocess.run([*SPACES, "true"], capture_output=True, check=False)
    return "" if made.returncode == 0 else "this kernel lets nobody make namespaces"


@pytest.mark.skipif(why_not() != "", reason=why_not())
def test_where_dns_does_not_answer_a_run_is_read_and_a_name_is_told_as_slow(tmp_path: Path) -> None:
    pytest.importorskip("redis")
    command = [*SPACES, sys.executable, "-m", "tests.store.slow_dns", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["runs"] == ["made-run"]
    assert seen["questions"] == 0, (
        "the address of a store on this host is not looked up, neither forwards nor backwards"
    )
    for told in seen["told"]:
        assert told.startswith("this host's name lookup is slow (DNS): trainer.example was not found in 6 s")


def test_a_numeric_address_and_a_name_of_this_host_are_found() -> None:
    assert addresses("127.0.0.1", 80)[0][4] == ("127.0.0.1", 80)
    assert ("127.0.0.1", 80) in {place[4] for place in addresses("localhost", 80)}
    with pytest.raises(OSError, match="no name of a host"):
        addresses("a..b", 80)


def test_a_thread_that_cannot_start_is_said_and_the_name_is_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:  # a limit of threads holds for a whole user, and not for root
        full.setattr(threading.Thread, "start", refuse)
        with pytest.raises(OSError, match="localhost cannot be looked up: can't start new thread"):
            addresses("localhost", 81)
    assert ("127.0.0.1", 81) in {place[4] for place in addresses("localhost", 81)}
