"""Discovery with real processes: live, ended cleanly, killed, and files that nobody should trust."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from ddpmon.store import discovery
from ddpmon.store.discovery import (
    Announcement,
    announce,
    discover,
    past_runs,
    refresh,
    told_of_containers,
    withdraw,
    withdraw_run,
)
from ddpmon.store.private import KEEP_S, stem

Sleeper = Callable[[], "subprocess.Popen[bytes]"]


def left_behind(run_id: str) -> bool:
    return any(past.id == run_id for past in past_runs())


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    runtime, temporary = tmp_path / "runtime", tmp_path / "tmp"
    runtime.mkdir(mode=0o700)
    temporary.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    return runtime / "ddpmon"


@pytest.fixture
def sleeper() -> Iterator[Sleeper]:
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def run(run_id: str = "r1", pid: int | None = None, started_at: float = 1000.0) -> Announcement:
    return Announcement(
        run_id=run_id,
        name="gpt",
        url="tcp://127.0.0.1:29480",
        pid=os.getpid() if pid is None else pid,
        host="node0",
        world_size=4,
        started_at=started_at,
    )


def test_a_live_run_is_found_with_what_it_said_of_itself(folder: Path) -> None:
    assert announce(run()) is not None
    (found,) = discover()
    assert (found.run_id, found.name, found.url, found.world_size) == ("r1", "gpt", "tcp://127.0.0.1:29480", 4)
    assert not left_behind("r1")
    assert folder.is_dir()


def test_the_file_and_its_folder_are_private(folder: Path) -> None:
    path = announce(run())
    assert path is not None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [entry.name for entry in folder.iterdir()] == [path.name]


def test_newest_first() -> None:
    for number in (2, 3, 1):
        announce(run(f"r{number}", started_at=1000.0 + number))
    assert [found.run_id for found in discover()] == ["r3", "r2", "r1"]


def test_a_clean_end_leaves_nothing(folder: Path) -> None:
    withdraw(announce(run()))
    assert discover() == []
    assert not left_behind("r1")
    withdraw(None)
    withdraw(folder / "never-there.json")


def test_a_killed_run_that_is_withdrawn_is_none(sleeper: Sleeper) -> None:
    process = sleeper()
    announce(run(pid=process.pid))
    process.kill()
    process.wait()
    assert discover() == []
    assert left_behind("r1")
    withdraw_run("r1")
    assert past_runs() == []


@pytest.mark.parametrize("reaped", [True, False], ids=["gone", "zombie"])
def test_a_killed_run_is_not_found_and_known_to_have_been_left_behind(sleeper: Sleeper, reaped: bool) -> None:
    process = sleeper()
    announce(run(pid=process.pid))
    assert [found.pid for found in discover()] == [process.pid]
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | (0 if reaped else os.WNOWAIT))
    assert left_behind("r1")
    assert discover() == []
    assert left_behind("r1"), "another watcher's look must not hide how the run ended"
    assert not left_behind("r2")


def test_a_run_whose_launcher_has_attempts_left_is_restarting_as_long_as_that_lives(sleeper: Sleeper) -> None:
    rank, launcher = sleeper(), sleeper()
    elastic = msgspec.structs.replace(run(pid=rank.pid), launcher_pid=launcher.pid, launch="job", max_restarts=2)
    announce(elastic)
    announce(msgspec.structs.replace(elastic, run_id="last", launch="other", restart=2))
    assert past_runs() == []
    rank.kill()
    rank.wait()
    said = {past.id: (past.state, past.restart, past.max_restarts) for past in past_runs()}
    assert said == {"r1": ("restarting", 0, 2), "last": ("killed", 2, 2)}
    announce(msgspec.structs.replace(elastic, run_id="second", pid=sleeper().pid, restart=1))
    assert {past.id: past.state for past in past_runs()} == {"r1": "restarted", "last": "killed"}
    launcher.kill()
    launcher.wait()
    assert {past.state for past in past_runs()} == {"killed"}


def test_a_reused_pid_is_not_the_run(sleeper: Sleeper) -> None:
    path = announce(run(pid=sleeper().pid))
    assert path is not None
    earlier = msgspec.json.decode(path.read_bytes(), type=Announcement)
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(earlier, pid_started=earlier.pid_started - 1)))
    assert discover() == []
    assert left_behind("r1")


def test_a_run_that_comes_back_under_its_id_is_no_longer_left_behind(sleeper: Sleeper) -> None:
    process = sleeper()
    announce(run(pid=process.pid))
    process.kill()
    process.wait()
    assert discover() == []
    withdraw(announce(run()))
    assert not left_behind("r1")


def test_what_a_killed_run_left_is_cleared_after_a_day(folder: Path, sleeper: Sleeper) -> None:
    process = sleeper()
    announce(run(pid=process.pid))
    process.kill()
    process.wait()
    discover()
    (dead,) = folder.iterdir()
    long_ago = time.time() - KEEP_S - 60
    os.utime(dead, (long_ago, long_ago))
    assert discover() == []
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "content",
    [b"", b"not json", b"[]", b'{"run_id": 3}', b"\xff\xfe", b"[" * 5000, b" " * (discovery.MAX_FILE_BYTES + 1)],
    ids=["empty", "text", "list", "types", "bytes", "deep", "huge"],
)
def test_a_malformed_file_is_skipped_and_removed_where_its_name_is_ours(folder: Path, content: bytes) -> None:
    announce(run())
    bad, others = folder / f"{stem('bad')}.json", folder / "package.json"
    for path in (bad, others):
        path.write_bytes(content)
    assert [found.run_id for found in discover()] == ["r1"]
    assert not bad.exists()
    assert others.exists()


def test_odd_files_neither_block_nor_are_followed(folder: Path, tmp_path: Path) -> None:
    path = announce(run())
    assert path is not None
    elsewhere = tmp_path / "elsewhere"
    path.rename(elsewhere)
    (folder / f"{stem('link')}.json").symlink_to(elsewhere)
    os.mkfifo(folder / f"{stem('pipe')}.json")
    (folder / f"{stem('folder')}.json").mkdir()
    assert discover() == []
    assert elsewhere.exists()


def test_another_machines_run_is_neither_shown_nor_judged() -> None:
    path = announce(run())
    assert path is not None
    mine = msgspec.json.decode(path.read_bytes(), type=Announcement)
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(mine, machine="elsewhere")))
    assert discover() == []
    assert path.exists()
    assert not left_behind("r1")


def foreign(folder: Path, **changes: str) -> Path:
    """A run as a container announces it that shares this folder."""
    path = announce(run())
    assert path is not None
    mine = msgspec.json.decode(path.read_bytes(), type=Announcement)
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(mine, **changes)))
    assert path.parent == folder
    return path


@pytest.mark.parametrize(
    ("changes", "how"),
    [
        ({"machine": "boot/pid:[7]"}, "ddpmon watch tcp://127.0.0.1:29480"),
        ({"machine": "boot/pid:[7]", "network": "net:[7]"}, "run ddpmon inside it, or set DDPMON_LISTEN for the run"),
        ({"network": "net:[7]"}, "run ddpmon inside it, or set DDPMON_LISTEN for the run"),
        ({"machine": "boot/pid:[7]", "network": "net:[7]", "url": "tcp://10.9.8.7:1"}, "ddpmon watch tcp://10.9.8.7:1"),
    ],
    ids=["pids", "both", "network", "reached"],
)
def test_a_run_in_a_container_is_told_of_with_what_reaches_it(folder: Path, changes: dict[str, str], how: str) -> None:
    assert told_of_containers() == ""
    foreign(folder, **changes)
    assert discover() == []
    assert told_of_containers() == f"run gpt is in a container that shares a folder with this host: {how}"


def test_a_run_in_a_container_that_says_nothing_is_not_told_of_and_its_file_goes(folder: Path) -> None:
    path = foreign(folder, machine="boot/pid:[7]")
    os.utime(path, (time.time() - 600,) * 2)
    assert told_of_containers() == ""
    assert refresh(path), "the run still lives"
    assert told_of_containers()
    os.utime(path, (time.time() - KEEP_S - 60,) * 2)
    assert discover() == []
    assert not path.exists()
    assert not refresh(path)


def test_what_is_from_before_a_reboot_of_this_host_is_cleared_away(folder: Path) -> None:
    announce(run())
    (path,) = folder.iterdir()
    (mine,) = discover()
    ours = msgspec.structs.replace(mine, machine="another-boot/pid:[1]", host=socket.gethostname())
    path.write_bytes(msgspec.json.encode(ours))
    assert discover() == []
    assert not path.exists()


def test_without_a_runtime_folder_the_temporary_one_serves(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    path = announce(run())
    assert path is not None
    assert path.parent == tmp_path / "tmp" / f"ddpmon-{os.geteuid()}"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder.parent))
    assert [found.run_id for found in discover()] == ["r1"], "the watcher may have a runtime folder, the run none"


@pytest.mark.parametrize("kind", ["open", "link", "file"])
def test_a_folder_that_others_could_write_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    shared = tmp_path / "tmp" / f"ddpmon-{os.geteuid()}"
    if kind == "open":
        shared.mkdir()
        shared.chmod(0o777)
    elif kind == "link":
        (tmp_path / "target").mkdir(mode=0o700)
        shared.symlink_to(tmp_path / "target")
    else:
        shared.touch(mode=0o600)
    assert announce(run()) is None
    assert discover() == []
