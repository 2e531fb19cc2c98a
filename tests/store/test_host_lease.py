"""One at a time, with real processes that give back, are killed, or leave children behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ddpmon.store.host_lease import HostLease
from ddpmon.store.private import KEEP_S

HOLDER = """
import os, sys, time
from ddpmon.store.host_lease import HostLease
turn = HostLease(sys.argv[1])
print(turn.take(), flush=True)
if sys.argv[2] == "fork" and os.fork() == 0:
    os.write(1, f"{os.getpid()}\\n".encode())
    time.sleep(600)
sys.stdin.readline()
turn.give()
print("given", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    return tmp_path / "ddpmon"


@contextmanager
def holder(name: str, how: str = "") -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLDER, name, how]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        yield process
    finally:
        process.kill()
        process.wait()


def test_it_is_had_by_one_and_then_by_the_next(folder: Path) -> None:
    mine, another = HostLease("run/0/host"), HostLease("run/1/host")
    with holder("run/0/host") as process:
        assert not mine.take()
        assert another.take(), "names do not meddle with each other"
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "given\n"
        assert mine.take()
        assert mine.take()
    mine.give()
    another.give()
    mine.give()
    assert list(folder.iterdir()) == []


def test_a_killed_holder_has_it_no_longer_although_its_child_lives() -> None:
    turn = HostLease("run")
    with holder("run", "fork") as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        try:
            assert not turn.take()
            process.kill()
            process.wait()
            os.kill(child, 0)
            assert turn.take()
            turn.give()
        finally:
            os.kill(child, 9)


def test_what_the_killed_leave_is_cleared_away_after_a_day(folder: Path) -> None:
    with holder("old"):
        pass
    (left,) = folder.iterdir()
    with holder("living"):
        (living,) = set(folder.iterdir()) - {left}
        old = time.time() - KEEP_S - 60
        for path in (left, living):
            os.utime(path, (old, old))
        turn = HostLease("mine")
        assert turn.take()
        assert left not in set(folder.iterdir())
        assert living in set(folder.iterdir()), "a run may last for days"
        turn.give()


def test_without_a_folder_that_is_private_it_is_refused(folder: Path) -> None:
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    with pytest.raises(OSError, match="private"):
        HostLease("run").take()
