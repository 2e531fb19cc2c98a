"""Rank 0 has started the store: when both are stopped, the other rank does not notice because of the monitor.

When rank 0 is killed, it does not either, and what was said last can be read for a while.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import msgspec
import psutil
import pytest

pytest.importorskip("torch")
from ddpmon.commands.listing import runs_here
from ddpmon.commands.target import here
from ddpmon.snapshot import Snapshot
from ddpmon.store.base import rank_key
from ddpmon.store.connect import connect, parse_target
from ddpmon.store.discovery import Announcement, discover, has_rank_0, past_runs
from ddpmon.watcher.observer import Observer
from tests.live import watch_until
from tests.probe.lone_uplink import lone_uplink
from tests.probe.probe_pair import two_ranks, until
from tests.probe.probe_ranks import private_runs
from tests.ranks import Process


@contextmanager
def stopped(folder: Path, process: Process, publishing: int) -> Iterator[None]:
    """Stop rank 0 and the store, and tell the other rank, with the store's port."""
    until(folder, lambda: have_published(publishing))
    run = discover()[0]
    process.send_signal(signal.SIGSTOP)
    os.kill(run.store_pid, signal.SIGSTOP)
    try:
        for pid in (process.pid, run.store_pid):
            until(folder, partial(is_stopped, pid))
        (folder / "stopped.tmp").write_text(str(parse_target(run.url).port))
        (folder / "stopped.tmp").replace(folder / "stopped")
        yield
    finally:
        os.kill(run.store_pid, signal.SIGKILL)


def is_stopped(pid: int) -> bool:
    return psutil.Process(pid).status() == psutil.STATUS_STOPPED


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
        with stopped(tmp_path, host, publishing):
            until(tmp_path, lambda: other.poll() is not None)
            assert other.returncode == 0, (tmp_path / "log.1").read_text()
            assert json.loads((tmp_path / f"{scene}.1.json").read_text()) == {"left": True}
            assert is_stopped(host.pid)


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


def test_a_killed_rank_0_is_named_by_a_store_that_outlives_it(tmp_path: Path) -> None:
    with two_ranks(tmp_path, "scenes_host", "host_is_killed") as (host, other):
        until(tmp_path, lambda: all((tmp_path / f"ready.{rank}").exists() for rank in range(2)))
        until(tmp_path, lambda: have_published(2))
        run = discover()[0]
        os.kill(host.pid, signal.SIGKILL)
        until(tmp_path, lambda: other.poll() is not None)
        (found,) = discover()
        assert (found.run_id, found.url, has_rank_0(found)) == (run.run_id, run.url, False)
        (listed,) = runs_here()
        assert listed.state == "lost"
        with closing(Observer(None)) as watcher:
            watch_until(watcher, lambda seen: lost(seen) == [(0,)], log=tmp_path / "log.1")
            ended = watch_until(watcher, lambda seen: seen.link.state == "gone", log=tmp_path / "log.1")
            assert "rank 0 ended without a message (pid" in ended.link.message
            assert runs_here(), "its end is known before its store has ended"
        os.kill(run.store_pid, signal.SIGTERM)  # instead of a minute
        until(tmp_path, lambda: discover() == [])
        assert run.run_id in {past.id for past in past_runs()}


def lost(seen: Snapshot) -> list[tuple[int, ...]]:
    """Of which ranks it is said that they are lost."""
    return [tuple(finding.ranks) for finding in seen.findings if finding.kind == "rank_lost"]


def test_a_new_run_is_found_before_one_whose_rank_0_was_killed(tmp_path: Path) -> None:
    with private_runs(tmp_path), closing(lone_uplink("new")) as new, closing(lone_uplink("old")) as old:
        assert new.connect()
        assert old.connect()  # later: of two that live it comes first
        assert [run.name for run in discover()] == ["old", "new"]
        file = next(path for path in tmp_path.glob("ddpmon/*.json") if b'"old"' in path.read_bytes())
        announced = msgspec.json.decode(file.read_bytes(), type=Announcement)
        file.write_bytes(msgspec.json.encode(msgspec.structs.replace(announced, pid_started=1.0)))  # as if it had died
        assert [run.name for run in discover()] == ["new", "old"]
        assert here(None) is None, "it is no choice between two"
        assert here("old") == f"{announced.url}/{announced.run_id}"
        os.kill(announced.store_pid, signal.SIGKILL)
        until(tmp_path, lambda: [run.name for run in discover()] == ["new"])
