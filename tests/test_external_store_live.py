"""A real training that publishes to a real Redis server: stopped, restarted empty, and watched after its ranks died."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("torch")
from ddpmon.report.status_json import status_object
from ddpmon.snapshot import Snapshot
from ddpmon.store.discovery import discover
from ddpmon.store.redis import RedisStore
from ddpmon.store.redis_url import parse_redis
from ddpmon.watcher.observer import Observer
from tests.live import TINY, live_run, step_of, watch_until
from tests.store.redis_server import needs_redis, redis_server

pytestmark = needs_redis


def is_live(snapshot: Snapshot) -> bool:
    return snapshot.link.state == "live" and snapshot.coverage is not None and snapshot.coverage.reporting == 2


def test_a_run_in_an_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with redis_server(tmp_path / "redis", "requirepass hunter2") as server:
        monkeypatch.setenv("DDPMON_STORE", server.url(":hunter2@"))
        monkeypatch.setenv("DDPMON_TOKEN", "a token of this run")
        with live_run(monkeypatch, tmp_path, 2, "--steps=100000", *TINY) as (run, observer):
            first = watch_until(observer, lambda s: is_live(s) and step_of(s) > 5, log=run.log)
            assert first.run is not None
            assert first.run.source == server.url()
            assert first.notices == ()
            assert [found.url for found in discover()] == [f"{server.url()}?run={first.run.id}"]

            server.freeze()
            silent = watch_until(observer, lambda s: s.link.state == "silent", log=run.log)
            assert "does not answer" in silent.link.message
            assert silent.run is not None
            assert silent.run.state == "running"
            server.thaw()
            thawed = watch_until(observer, lambda s: is_live(s) and step_of(s) > step_of(silent), log=run.log)

            server.kill()
            assert observer.tick().link.state == "silent"
            server.start()
            again = watch_until(observer, lambda s: is_live(s) and step_of(s) > step_of(thawed), log=run.log)
            assert again.run is not None
            assert again.run.id == first.run.id
            with closing(RedisStore(parse_redis(server.url(":hunter2@"))[0], timeout_s=20.0)) as store:
                watch_until(observer, lambda _: len(store._ask("KEYS", "*")) >= 7, log=run.log)
                keys = store._ask("KEYS", "*")
                left_s = store._ask_each([("TTL", key) for key in keys])
            assert all(seconds > 0 for seconds in left_s), "every key expires"

        last = watch_until(observer, lambda s: s.link.state == "gone")
        with closing(Observer(server.url())) as observer:
            late = observer.tick()
        log = run.log.read_text()
    for snapshot in (last, late):
        assert snapshot.run is not None
        assert snapshot.link.state == "gone"
        assert snapshot.run.state == "lost"
        assert "disappeared without a message" in snapshot.link.message
        assert snapshot.series is not None
        assert snapshot.series.step[0] == 0, "the whole run is there"
        assert "hunter2" not in str(status_object(snapshot))
    assert step_of(late) >= step_of(again)
    said = [line for line in log.splitlines() if "ddpmon: " in line]
    assert len(said) == 1, said
    assert "hunter2" not in log
