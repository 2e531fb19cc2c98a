"""The accounts of docs/attach.md on a server with TLS: ranks and watchers of one user on one host."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("torch")
import torch

from ddpmon.commands.ls import ls
from ddpmon.commands.status import status
from ddpmon.probe.external_store import ExternalStore, uplink_of
from ddpmon.probe.identity import Identity
from ddpmon.probe.uplink import Handover
from ddpmon.schema import RunInfo
from ddpmon.store.discovery import discover
from ddpmon.store.redis_url import parse_redis
from tests.made_frames import columns, rank_frame, run_info
from tests.ranks import ROOT
from tests.store.redis_server import HOME, RedisServer, needs_redis, redis_server
from tests.store.test_redis import certificate_for

pytestmark = [
    needs_redis,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make certificates with"),
]
PASSWORDS = ("ADMIN_PASSWORD", "WATCHERS_PASSWORD", "RANKS_PASSWORD")


def accounts() -> list[str]:
    """The lines of the document as a server's configuration, with the ranks under a name of their own."""
    text = (ROOT / "docs/attach.md").read_text()
    lines = [f"user {line}" for line in re.findall(r"^ACL SETUSER (.*)$", text, re.M)]
    assert len(lines) == len(PASSWORDS)
    return ["user default off", *(re.sub(r"user default +reset", "user ranks reset", line) for line in lines)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RedisServer, Path]]:
    folder = tmp_path_factory.mktemp("accounts")
    certificate, key = certificate_for(f"IP:{HOME}", folder)
    with redis_server(folder / "redis", *accounts(), tls=(certificate, key)) as found:
        yield found, certificate


@pytest.fixture
def runs(
    server: tuple[RedisServer, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[str]:
    """Two runs that rank 0 of each has published with the ranks' account; the lines that they said."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    redis, certificate = server
    url = redis.url("ranks:RANKS_PASSWORD@", f"?ca={certificate}", scheme="rediss")
    me = Identity(0, 1, 0, 0, (0,), "here", os.getpid(), torch.device("cpu"), None, "gloo")
    with ExitStack() as stack:
        for name in ("r1", "r2"):
            external = ExternalStore(parse_redis(url)[0], 600)
            handover = Handover(None, "address")
            uplink = uplink_of(me, name, handover, partial(_described, name), external)
            stack.callback(uplink.close)
            assert uplink.connect()
            uplink.put_rank(rank_frame(0, 1, columns([], {}), run_id=uplink.run))
        watchers = redis.url("watchers:WATCHERS_PASSWORD@", f"?ca={certificate}", scheme="rediss")
        monkeypatch.setenv("DDPMON_STORE", watchers)
        yield capsys.readouterr().err


def _described(name: str, run: str) -> RunInfo:
    return run_info(1, run_id=run, name=name)


def test_a_store_without_runs_is_named(
    server: tuple[RedisServer, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    redis, certificate = server
    empty = redis.url("watchers:WATCHERS_PASSWORD@", f"/1?ca={certificate}", scheme="rediss")
    monkeypatch.setenv("DDPMON_STORE", empty)
    assert ls(None, None, as_json=False, brief=False) == 3
    said = capsys.readouterr().err.splitlines()
    assert said == ["ddpmon: no run in the store of DDPMON_STORE", "ddpmon: no run on this host"]


@pytest.mark.usefixtures("runs")
def test_watchers_on_rank_0s_host_use_their_own_login(capsys: pytest.CaptureFixture[str]) -> None:
    assert ls(None, None, as_json=True, brief=False) == 0
    listed = json.loads(capsys.readouterr().out)["runs"]
    assert [(run["name"], run["trouble"]) for run in listed] == [("r2", ""), ("r1", "")]
    assert status("r2", True, None) == 0
    seen = json.loads(capsys.readouterr().out)
    assert seen["run"]["name"] == "r2"
    assert "@" not in seen["run"]["source"]


def test_what_a_run_says_of_itself_holds_no_login(
    runs: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = [*(found.url for found in discover()), runs]
    assert len(told) == 3
    assert not any(secret in text for text in told for secret in ("ranks@", "watchers@", *PASSWORDS))
    said = runs.splitlines()
    assert len(said) == 2
    assert said[0].endswith("(DDPMON_STORE holds the login)")
    monkeypatch.delenv("DDPMON_STORE")
    assert status("r2", False, None) == 3
    assert "set DDPMON_STORE to this address with your user and password" in capsys.readouterr().err
