"""What rank 0 says of its run is said again, where it has been lost: in its own store, and on this host.

And whatever its folders and names are like, its frames go out.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

pytest.importorskip("torch")
import torch
import torch.distributed as dist
from torch.distributed import HashStore  # type: ignore[attr-defined]

from ddpmon.codec import decode, encode
from ddpmon.probe.identity import identify, run_id, store_address
from ddpmon.probe.uplink import Uplink
from ddpmon.schema import RunInfo
from ddpmon.store.base import RUNS_KEY, StoreUnavailable, is_run_id, run_key
from ddpmon.store.connect import connect, list_runs, parse_target
from ddpmon.store.discovery import discover
from tests.made_frames import run_info
from tests.probe.lone_uplink import lone_uplink, speak
from tests.probe.probe_ranks import private_runs


@pytest.fixture
def uplink(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Uplink]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    for name in ("DDPMON_STORE", "DDPMON_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    made = lone_uplink("again")
    yield made
    made.close()


@pytest.mark.parametrize("name", ["--ssh=root@evil.example", "/-h", "-", ""])
def test_no_run_is_called_like_an_option(name: str) -> None:
    assert is_run_id(run_id(name))
    assert not run_id(name).startswith("-")


def test_a_run_that_was_overwritten_can_be_found_again(uplink: Uplink, tmp_path: Path) -> None:
    (tmp_path / "runtime").mkdir()
    assert uplink.connect()
    (announced,) = discover()
    with closing(connect(parse_target(announced.url))) as other:
        other.put(RUNS_KEY, b"another")
        other.put(run_key(uplink.run), b"noise")
        assert list_runs(other) == ["another"]
        speak(uplink)
        while list_runs(other) == ["another"]:  # until it has arrived; the test's own deadline ends this
            pass
        assert list_runs(other) == ["another", uplink.run], "what others publish there is listed still"
        (info,) = other.get_many([run_key(uplink.run)])
        assert decode("run", info or b"", RunInfo).run_id == uplink.run
        many = [f"run-{number}" for number in range(200)]
        other.put(RUNS_KEY, "\n".join([uplink.run, *many]).encode())
        assert list_runs(other)[1:] == many
        speak(uplink)
        while len(list_runs(other)) > 64:
            pass
        assert list_runs(other) == [*many[-63:], uplink.run]


def test_a_run_that_could_not_be_announced_is_announced_later(
    uplink: Uplink, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert uplink.connect(), "a disk that takes no file holds nobody up"
    assert discover() == []
    assert "ddpmon watch tcp://" in capsys.readouterr().err
    for folder in ("runtime", "temporary"):
        (tmp_path / folder).mkdir()
    speak(uplink)
    assert [found.run_id for found in discover()] == [uplink.run]
    assert capsys.readouterr().err == "", "the line is said once"
    uplink.close()
    assert discover() == []


class Deaf:
    """A store of the training that accepts no address."""

    def set(self, _key: str, _address: str) -> None:
        raise RuntimeError("closed")


def test_a_training_that_accepts_no_address_leaves_rank_0_its_server(tmp_path: Path) -> None:
    with private_runs(tmp_path):
        uplink = lone_uplink("deaf", Deaf())
        with pytest.raises(StoreUnavailable, match="accepts no address: closed"):
            uplink.connect()
        (announced,) = discover()
        assert uplink.connect(), "it goes on without the others"
        uplink.drop()
        assert not uplink.connected
        assert uplink.connect(), "its own store is still there"
        speak(uplink)
        with closing(connect(parse_target(announced.url))) as watcher:
            assert list_runs(watcher) == [uplink.run]
        uplink.close()
        # Another run on this machine may have taken the port since.
        with suppress(StoreUnavailable), closing(connect(parse_target(announced.url))) as other:
            assert uplink.run not in list_runs(other)


def speak_until_noticed(uplink: Uplink) -> None:
    """The first frame after the death may still go into the socket."""
    while True:
        speak(uplink)


def reconnect(uplink: Uplink) -> None:
    """The sockets of a process that was killed end before the process has."""
    uplink.drop()
    while not uplink.connected:
        with suppress(StoreUnavailable):
            uplink.connect()


def test_a_store_that_was_killed_is_started_again_where_it_was(
    uplink: Uplink, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "runtime").mkdir()
    assert uplink.connect()
    (before,) = discover()
    os.kill(before.store_pid, signal.SIGKILL)
    with pytest.raises(StoreUnavailable):
        speak_until_noticed(uplink)
    reconnect(uplink)
    (after,) = discover()
    assert after.store_pid != before.store_pid
    assert (after.run_id, after.url) == (before.run_id, before.url)
    speak(uplink)
    with closing(connect(parse_target(after.url))) as watcher:
        assert list_runs(watcher) == [uplink.run]
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_while_its_port_is_somebody_elses_a_store_that_was_killed_is_not_started_again(
    uplink: Uplink, tmp_path: Path
) -> None:
    (tmp_path / "runtime").mkdir()
    assert uplink.connect()
    (announced,) = discover()
    os.kill(announced.store_pid, signal.SIGKILL)
    port = parse_target(announced.url).port
    uplink.drop()
    while True:
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            with pytest.raises(StoreUnavailable, match=f"the store's port {port} is taken"):
                uplink.connect()
            break
    connected = False
    while not connected:  # another test's store may have taken the port meanwhile
        with suppress(StoreUnavailable):
            connected = uplink.connect()


def test_where_no_store_can_be_hosted_it_is_said_once(
    uplink: Uplink, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="no store can be hosted here"):
            uplink.connect()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("ddpmon: no store can be hosted here: /nowhere/python: No such file")
    assert line.endswith("; training goes on unwatched")
    monkeypatch.undo()
    assert uplink.connect()


@contextmanager
def shut(folder: Path) -> Iterator[None]:
    """A folder that this user may not look into; root is somebody else meanwhile."""
    user = os.geteuid()
    try:
        os.seteuid(user or 65534)
    except PermissionError:
        pytest.skip("root may not become anybody else here")
    os.seteuid(user)
    folder.chmod(0)
    os.seteuid(user or 65534)
    try:
        yield
    finally:
        os.seteuid(user)
        folder.chmod(0o700)


def test_a_folder_that_nobody_may_look_into_any_more_costs_no_frame(uplink: Uplink, tmp_path: Path) -> None:
    folder = tmp_path / "runtime"
    folder.mkdir()
    assert uplink.connect()
    (file,) = folder.glob("ddpmon/*.json")
    with shut(folder):
        speak(uplink)
    assert discover() != []
    uplink.close()
    assert not file.exists()


@contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process takes a byte."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_host_without_any_folder_for_temporary_files_is_published_too(
    uplink: Uplink, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setattr(tempfile, "tempdir", None)
    with full_disk():
        assert uplink.connect()
        speak(uplink)
        assert discover() == []
    assert capsys.readouterr().err.startswith("ddpmon: to watch this run: ddpmon watch tcp://127.0.0.1:")


def test_a_host_name_that_is_no_text_can_be_published(monkeypatch: pytest.MonkeyPatch) -> None:
    if dist.is_initialized():
        pytest.skip("this process has a process group already")
    monkeypatch.setitem(os.environ, "DDPMON_HOSTNAME", os.fsdecode(b"node\xff") * 100)
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        me = identify(torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2)))
    finally:
        dist.destroy_process_group()
    assert decode("run", encode(run_info(1, host=me.host)), RunInfo).host.startswith("node?node?")


def test_a_launchers_address_that_is_no_name_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "x" * 100}.items():
        monkeypatch.setenv(name, value)
    with suppress(OSError):  # a host without a route
        assert not store_address().startswith("127.")
