"""A rank's way to an external store: who names the run, who follows, what is said; training never notices."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
import torch
import torch.distributed as dist
from torch.distributed import HashStore  # type: ignore[attr-defined]

import ddpmon
from ddpmon.codec import decode
from ddpmon.probe.external_store import ExternalStore, uplink_of
from ddpmon.probe.identity import Identity
from ddpmon.probe.publisher import PUBLISHER
from ddpmon.probe.uplink import Handover, Uplink
from ddpmon.schema import RunInfo
from ddpmon.store.base import rank_key, run_key
from ddpmon.store.connect import connect, list_runs, parse_target
from ddpmon.store.discovery import discover
from ddpmon.store.redis_url import parse_redis
from tests.made_frames import columns, rank_frame, run_info
from tests.probe.lone_uplink import speak
from tests.store.redis_server import HOME, RedisServer, needs_redis, redis_server

pytestmark = needs_redis


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("uplink"), "requirepass hunter2") as found:
        yield found


@pytest.fixture(autouse=True)
def _private(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name in ("DDPMON", "DDPMON_STORE", "DDPMON_TOKEN", "DDPMON_TTL_S", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)


def identity(rank: int) -> Identity:
    return Identity(rank, 2, rank, 0, (0,), "here", os.getpid(), torch.device("cpu"), None, "gloo")


def described(run_id: str) -> RunInfo:
    return run_info(2, run_id=run_id, name="uplinked")


def hosting(rank: int, training: Any) -> Uplink:
    return uplink_of(identity(rank), "uplinked", Handover(training, "address"), described)


def publishing(rank: int, training: Any, url: str, ttl_s: int = 600) -> Uplink:
    external = ExternalStore(parse_redis(url)[0], ttl_s)
    return uplink_of(identity(rank), "uplinked", Handover(training, "address"), described, external)


def test_all_ranks_publish_one_run_that_can_be_watched(server: RedisServer, capsys: pytest.CaptureFixture[str]) -> None:
    url, training = server.url(":hunter2@"), HashStore()
    first, second = publishing(0, training, url), publishing(1, training, url)
    assert not second.connect(), "the run has no name yet, and nobody waits for it"
    assert first.connect()
    assert second.connect()
    assert first.run == second.run
    assert b"hunter2" not in training.get("address")
    for rank, uplink in enumerate((first, second)):
        uplink.put_rank(rank_frame(rank, 1, columns([], {}), run_id=uplink.run))
    (announced,) = discover()
    assert announced.url == f"{server.url()}?run={first.run}"
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert said[0].startswith("ddpmon: to watch this run: ddpmon watch")
    assert "hunter2" not in said[0]
    second.close()
    first.close()
    assert discover() == []
    with closing(connect(parse_target(url))) as watcher:
        assert list_runs(watcher) == [first.run]
        info, *frames = watcher.get_many([run_key(first.run), rank_key(first.run, 0), rank_key(first.run, 1)])
        assert decode("run", info or b"", RunInfo).world_size == 2
        assert None not in frames
        (age,) = watcher.ages([run_key(first.run)])
        assert age is not None
        assert age < 300


def test_a_rank_without_the_variable_says_that_it_is_not_watched(
    server: RedisServer, capsys: pytest.CaptureFixture[str]
) -> None:
    training = HashStore()
    first, second = publishing(0, training, server.url(":hunter2@")), hosting(1, training)
    assert first.connect()
    capsys.readouterr()
    assert not second.connect()
    assert not second.connect()
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert "rank 1 is not watched" in said[0]
    assert "DDPMON_STORE is not set here" in said[0]
    assert "hunter2" not in said[0]
    first.close()


def test_an_address_that_somebody_has_made_up_is_one_harmless_line(capsys: pytest.CaptureFixture[str]) -> None:
    training = HashStore()
    training.set("address", f"redis://\x1b[2J\nhost\u202e{'x' * 9000} - run")
    assert not hosting(1, training).connect()
    (said,) = capsys.readouterr().err.splitlines()
    assert said.isprintable()
    assert len(said) < 1000
    assert said.endswith("DDPMON_STORE is not set here")


def test_a_run_that_cannot_be_announced_here_is_told_of_once(
    server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    with closing(publishing(0, HashStore(), server.url(":hunter2@"))) as uplink:
        assert uplink.connect()
        assert discover() == []
        uplink.drop()
        assert uplink.connect()
        assert capsys.readouterr().err.count("to watch this run") == 1
        (tmp_path / "runtime").mkdir()
        speak(uplink)
        assert [found.run_id for found in discover()] == [uplink.run]


def test_where_only_other_ranks_have_the_variable_they_follow_rank_0(server: RedisServer) -> None:
    training = HashStore()
    first, second = hosting(0, training), publishing(1, training, server.url(":hunter2@"))
    assert first.connect()
    assert second.connect()
    second.put_rank(rank_frame(1, 1, columns([], {}), run_id=second.run))
    (announced,) = discover()
    assert announced.url.startswith("tcp://")
    with closing(connect(parse_target(announced.url))) as watcher:
        until = time.monotonic() + 60
        while watcher.get_many([rank_key(first.run, 1)]) == [None]:
            assert time.monotonic() < until
    second.close()
    first.close()


@pytest.fixture
def ddp() -> Iterator[Any]:
    """A model of one rank, in a process group of this process's own."""
    if dist.is_initialized():
        pytest.skip("this process has a process group already")
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    dist.destroy_process_group()


def trained(ddp: Any, capsys: pytest.CaptureFixture[str]) -> str:
    """Attach, train, detach, as the environment says; what was said, in one line."""
    monitor = ddpmon.attach(ddp, name="x")
    enabled = monitor.enabled
    said, until = "", time.monotonic() + 60
    while not said and time.monotonic() < until:
        ddp(torch.ones(2, 4)).sum().backward()
        said = capsys.readouterr().err
    monitor.detach()
    for thread in threading.enumerate():
        if thread.name == PUBLISHER:
            thread.join(60)
    said += capsys.readouterr().err
    assert said.startswith("ddpmon: ")
    assert said.count("\n") == 1
    assert "hunter2" not in said
    assert enabled == ("unwatched" not in said), "only a store that may come yet is waited for"
    return said


@pytest.mark.parametrize(
    ("url", "ttl", "words"),
    [
        ("memcached://u:hunter2@h", "", "'memcached://u@h' is not a store that ranks can publish to"),
        ("redis://u:hunter2@h:port", "", "is not an address"),
        ("redis://u:hunter2@h", "5", "DDPMON_TTL_S='5' is not a number"),
    ],
)
def test_a_wrong_setting_is_one_line_and_training_goes_on_unwatched(
    ddp: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], url: str, ttl: str, words: str
) -> None:
    monkeypatch.setenv("DDPMON_STORE", url)
    monkeypatch.setenv("DDPMON_TTL_S", ttl)
    said = trained(ddp, capsys)
    assert words in said
    assert "training goes on unwatched" in said


def test_without_redis_py_it_is_said_how_to_get_it(
    ddp: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DDPMON_STORE", "redis://u:hunter2@h")
    monkeypatch.setitem(sys.modules, "redis", None)
    assert "pip install redis" in trained(ddp, capsys)


def test_a_server_that_is_not_there_yet_is_said_once_and_tried_again(
    ddp: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind((HOME, 0))
        url = f"redis://u:hunter2@{HOME}:{taken.getsockname()[1]}"
        monkeypatch.setenv("DDPMON_STORE", url)
        said = trained(ddp, capsys)
    assert f"no store at {url.replace(':hunter2', '')}: " in said
    assert "training goes on, and the store is tried again" in said


@pytest.mark.parametrize(
    ("options", "login", "words"),
    [
        (
            ("user default off", "user w on >hunter2 %R~ddpmon/* +getrange +zrange +pttl +select"),
            "w:hunter2@",
            "NOPERM",
        ),
        (("cluster-enabled yes",), "", "is a Redis Cluster, and ddpmon needs a single server: CLUSTERDOWN"),
        (("maxmemory 1kb",), "", "is full: OOM command not allowed"),
    ],
    ids=["reader", "cluster", "full"],
)
def test_what_a_server_refuses_is_said_once_and_training_goes_on(
    ddp: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    login: str,
    words: str,
) -> None:
    with redis_server(tmp_path / "refusing", *options) as refusing:
        monkeypatch.setenv("DDPMON_STORE", refusing.url(login))
        said = trained(ddp, capsys)
        assert words in said
        assert "training goes on, and the store is tried again" in said
        assert discover() == [], "nobody is told to watch a run that is not there"
