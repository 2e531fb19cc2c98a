"""Rank 0 hosts the store: when it is stopped or killed, the other ranks do not notice because of the monitor."""

from __future__ import annotations

import json
import os
import signal
from contextlib import closing
from pathlib import Path

import psutil
import pytest

pytest.importorskip("torch")
from ddpmon.store.base import rank_key
from ddpmon.store.connect import connect, parse_target
from ddpmon.store.discovery import discover
from tests.probe.probe_pair import two_ranks, until
from tests.ranks import Process


def stop(folder: Path, process: Process, publishing: int) -> None:
    """Stop the host, and tell the other rank, with the store's port."""
    until(folder, lambda: have_published(publishing))
    port = parse_target(discover()[0].url).port
    process.send_signal(signal.SIGSTOP)
    until(folder, lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
    (folder / "stopped.tmp").write_text(str(port))
    (folder / "stopped.tmp").replace(folder / "stopped")


def have_published(ranks: int) -> bool:
    """Whether so many ranks' frames are in the store: the address has then been handed over."""
    for run in discover():
        with closing(connect(parse_target(run.url))) as store:
            return None not in store.get_many([rank_key(run.run_id, rank) for rank in range(ranks)])
    return False


@pytest.mark.parametrize(
    ("scene", "publishing"), [("host_stops_before_the_other_joins", 1), ("host_stops_while_the_other_publishes", 2)]
)
def test_a_rank_ends_although_the_host_of_the_store_is_stopped(tmp_path: Path, scene: str, publishing: int) -> None:
    with two_ranks(tmp_path, "scenes_host", scene) as (host, other):
        until(tmp_path, (tmp_path / "ready.1").exists)
        stop(tmp_path, host, publishing)
        until(tmp_path, lambda: other.poll() is not None)
        assert other.returncode == 0, (tmp_path / "log.1").read_text()
        assert json.loads((tmp_path / f"{scene}.1.json").read_text()) == {"left": True}
        assert psutil.Process(host.pid).status() == psutil.STATUS_STOPPED


def end_of_rank_1(folder: Path, **environment: str) -> dict[str, object]:
    folder.mkdir()
    with two_ranks(folder, "scenes_host", "host_is_killed", **environment) as (host, other):
        until(folder, lambda: all((folder / f"ready.{rank}").exists() for rank in range(2)))
        if environment["DDPMON"] == "1":
            until(folder, lambda: have_published(2))
        os.kill(host.pid, signal.SIGKILL)
        until(folder, lambda: other.poll() is not None)
        assert other.returncode == 0, (folder / "log.1").read_text()
        said = (folder / "log.1").read_text(errors="replace")
        assert "ddpmon" not in said
        notes: dict[str, object] = json.loads((folder / "host_is_killed.1.json").read_text())
        return notes


def test_a_killed_rank_0_fails_the_others_as_it_would_without_the_monitor(tmp_path: Path) -> None:
    without = end_of_rank_1(tmp_path / "without", DDPMON="0")
    watched = end_of_rank_1(tmp_path / "watched", DDPMON="1")
    assert watched == without
    assert without["failed"]
