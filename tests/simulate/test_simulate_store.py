"""Simulated runs in a store that is there already: beside others, and found again after that store has lost them."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from ddpmon.codec import decode
from ddpmon.commands.read_once import look_once
from ddpmon.schema import RunInfo
from ddpmon.store.base import RUNS_KEY, StoreUnavailable, rank_key, run_key
from ddpmon.store.connect import connect, list_runs, parse_target
from ddpmon.store.discovery import discover
from tests.store.redis_server import RedisServer, needs_redis, redis_server


@pytest.fixture(autouse=True)
def _private(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name in ("DDPMON_STORE", "DDPMON_TOKEN", "DDPMON_TTL_S"):
        monkeypatch.delenv(name, raising=False)


@contextmanager
def simulated(store: str) -> Iterator[str]:
    """Four simulated ranks that publish there, until they are told to end; yields the address that the command says."""
    command = [sys.executable, "-m", "ddpmon.cli", "simulate", "--ranks=4", "--scenario=healthy", f"--store={store}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        try:
            said = run.stdout.readline()
            assert said, run.communicate()[1]
            yield shlex.split(said)[-1]
        finally:
            run.send_signal(signal.SIGINT)
            published, troubles = run.communicate(timeout=200)
        assert (run.returncode, troubles) == (0, "")
        assert "rank frames" in published


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def whole(url: str) -> bool:
    """Whether the newest run there is the simulated one, with all that a watcher needs."""
    try:
        with closing(connect(parse_target(url))) as store:
            for run in list_runs(store)[-1:]:
                info, *frames = store.get_many([run_key(run), *(rank_key(run, rank) for rank in range(4))])
                named = info is not None and decode("run", info, RunInfo).run_id == run
                return run.startswith("simulated-") and named and None not in frames
    except StoreUnavailable:
        pass
    return False


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path / "redis", "requirepass hunter2") as found:
        yield found


@needs_redis
def test_a_simulated_run_is_found_again_in_a_redis_that_has_lost_it(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    redis = pytest.importorskip("redis")
    monkeypatch.setenv("DDPMON_STORE", server.url(":hunter2@"))
    with simulated(server.url(":hunter2@")) as url:
        assert "hunter2" not in url
        until(lambda: whole(url))
        run = look_once(url).run
        assert run is not None
        assert run.name == "simulated-healthy"
        with closing(redis.Redis(port=server.port, password="hunter2")) as other:
            other.delete(RUNS_KEY, run_key(run.id), f"ddpmon/{run.id}/ttl")
            until(lambda: whole(url))
            assert other.ttl(run_key(run.id)) > 3600, "it is kept for as long as other keys"
            assert other.get(f"ddpmon/{run.id}/ttl") is not None
        server.kill()
        server.start()
        until(lambda: whole(url))


def test_beside_a_run_in_its_own_store_both_are_listed_and_that_run_stays_the_newest() -> None:
    pytest.importorskip("torch")
    from tests.probe.lone_uplink import lone_uplink, speak

    with closing(lone_uplink("live")) as live:
        assert live.connect()
        (announced,) = discover()
        store = announced.url
        with simulated(store) as url, closing(connect(parse_target(store))) as watcher:
            own = url.removeprefix(f"{store}/")
            until(lambda: own in list_runs(watcher))
            speak(live)
            until(lambda: list_runs(watcher) == [own, live.run])
            watcher.put(RUNS_KEY, live.run.encode())
            until(lambda: own in list_runs(watcher))
            speak(live)
            until(lambda: list_runs(watcher) == [own, live.run])
