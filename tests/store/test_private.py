"""The private folder where another user has a hand in it: a real one, who needs root to be started."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from ddpmon.store.discovery import Announcement, announce, discover, withdraw
from ddpmon.store.host_lease import HostLease
from ddpmon.store.private import squatted

OTHER = 65534
MINE = f"ddpmon-{os.geteuid()}"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
SWAPPER = """
import ctypes, os, sys
os.setuid(int(sys.argv[1]))
os.symlink(sys.argv[3], "link")
exchange, here = ctypes.CDLL(None).renameat2, -100
names = sys.argv[2].encode(), b"link"
assert exchange(here, names[0], here, names[1], 2) == 0
print(flush=True)
while True:
    exchange(here, names[0], here, names[1], 2)
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place for a private folder."""
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def run() -> Announcement:
    here = {"url": "tcp://127.0.0.1:1", "pid": os.getpid(), "host": "node0", "world_size": 1, "started_at": 1000.0}
    return Announcement(run_id="gpt-1", name="gpt", **here)  # type: ignore[arg-type]


@contextmanager
def swapped_by_another(parent: Path, goal: Path) -> Iterator[None]:
    """Another user, to whom `parent` belongs, puts a link to `goal` in the private folder's place, again and again."""
    command = [sys.executable, "-c", SWAPPER, str(OTHER), MINE, str(goal)]
    with subprocess.Popen(command, cwd=parent, stdout=subprocess.PIPE) as swapper:
        try:
            assert swapper.stdout is not None
            assert swapper.stdout.readline()
            yield
            assert swapper.poll() is None
        finally:
            swapper.kill()


def take_a_turn() -> None:
    turn = HostLease("gpt-1")
    with suppress(OSError):  # while the folder is not in its place
        turn.take()
    turn.give()


@needs_root
@pytest.mark.parametrize("use", [discover, lambda: withdraw(announce(run())), take_a_turn], ids=["look", "run", "turn"])
def test_nothing_outside_is_removed_or_written_while_another_user_swaps_the_folder(
    temporary: Path, use: Callable[[], object]
) -> None:
    shared, victim = temporary / "shared", temporary / "victim"
    for folder in (shared, shared / MINE, victim):
        folder.mkdir(mode=0o700)
    kept = {"daemon.json", "package.json", "old.turn"}
    for name in kept:
        (victim / name).touch()
        os.utime(victim / name, (0, 0))
    os.chown(shared, OTHER, OTHER)
    with pytest.MonkeyPatch.context() as patch, swapped_by_another(shared, victim):
        patch.setattr("tempfile.tempdir", str(shared))
        for _ in range(5000):
            use()
            assert {path.name for path in victim.iterdir()} == kept


@needs_root
def test_a_runtime_folder_of_another_user_is_not_used(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = temporary / "runtime"
    (runtime / "ddpmon").mkdir(parents=True, mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    os.chown(runtime, OTHER, OTHER)
    path = announce(run())
    assert path is not None
    assert path.parent == temporary / MINE
    assert [found.run_id for found in discover()] == ["gpt-1"]
    assert list((runtime / "ddpmon").iterdir()) == []
    os.chown(runtime, os.geteuid(), -1)
    withdraw(path)
    path = announce(run())
    assert path is not None
    assert path.parent == runtime / "ddpmon"


@needs_root
def test_a_folder_of_another_user_is_not_used_and_said_to_be_theirs(temporary: Path) -> None:
    folder = temporary / MINE
    assert squatted() == ""
    folder.mkdir(mode=0o700)
    assert squatted() == ""
    os.chown(folder, OTHER, OTHER)
    assert announce(run()) is None
    assert discover() == []
    assert squatted().startswith(f"{folder} belongs to another user (uid {OTHER}), so no run is announced there: ")


def test_what_is_no_private_folder_is_said(temporary: Path) -> None:
    folder = temporary / MINE
    folder.touch()
    assert squatted().startswith(f"{folder} is no folder")
    folder.unlink()
    folder.mkdir()
    folder.chmod(0o770)
    assert squatted().startswith(f"{folder} is open to others (mode 770)")
