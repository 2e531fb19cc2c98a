"""Runs in an external store: the same pictures, and a memory of those that are over, which is said to be one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ddpmon.codec import encode
from ddpmon.commands.status_text import status_lines
from ddpmon.report.status_json import status_object
from ddpmon.snapshot import Snapshot
from ddpmon.store.base import RUNS_KEY, Store, TargetError, rank_key, run_key
from ddpmon.store.redis import RedisStore
from ddpmon.store.redis_url import parse_redis
from ddpmon.store.signed import FORGED, REPLAYED, UNSIGNED, SignedStore, Signer
from ddpmon.watcher.observer import Observer
from tests.external_runs import LATE, RANKS, MadeRun
from tests.live import watch_until
from tests.made_frames import rank_frame
from tests.store.redis_server import RedisServer, needs_redis, redis_server

pytestmark = needs_redis
TOKEN = "a token of the run"
FINISHED = ("finished",) * RANKS


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("engine"), "requirepass hunter2") as found:
        yield found


@pytest.fixture(autouse=True)
def _nothing_around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name in ("DDPMON_STORE", "DDPMON_TOKEN", "DDPMON_TTL_S"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def url(server: RedisServer) -> str:
    """An empty database."""
    target = server.url(":hunter2@", tail="/1")
    with closing(opened(target)) as store:
        store._send("FLUSHDB")
        store.get_many(["all is gone"])
    return target


def opened(url: str, ttl_s: int = 3600) -> RedisStore:
    return RedisStore(parse_redis(url)[0], timeout_s=20.0, ttl_s=ttl_s)


def looked(url: str | None) -> Snapshot:
    """One look, as `ddpmon status` does."""
    with closing(Observer(url)) as observer:
        return observer.tick()


def picture(snapshot: Snapshot) -> dict[str, Any]:
    """What is judged and shown, without what differs between two looks."""
    seen = status_object(snapshot)
    del seen["time"], seen["run"]["source"], seen["run"]["elapsed_s"], seen["coverage"]["oldest_age_s"]
    del seen["run"]["configuration"]["started_at"]  # the two runs are published one after the other
    for part in (*seen["ranks"], *seen["nodes"]):
        del part["age_s"]
    return seen


def test_the_same_pictures_as_from_a_runs_own_store(url: str) -> None:
    pytest.importorskip("torch")
    from tests.store.served import serve

    own, port = serve("127.0.0.1")
    with closing(own), closing(opened(url)) as engine:
        for store in (own, engine):
            MadeRun(store).speak()
            store.get_many(["all has come"])
        expected, seen = picture(looked(f"tcp://127.0.0.1:{port}")), picture(looked(url))
    assert seen == expected
    (straggler,) = (finding for finding in seen["findings"] if finding["kind"] == "straggler")
    assert (straggler["ranks"], straggler["phase"]) == ([LATE], "forward")
    assert seen["run"]["state"] == "running"
    assert seen["link"] == {"state": "live", "message": ""}


@pytest.mark.parametrize(
    ("states", "state", "words"),
    [
        (FINISHED, "finished", "the run ended "),
        (("finished", "failed", "finished", "finished"), "failed", "rank 1 ended with an error"),
    ],
)
def test_a_run_that_has_ended_is_shown_as_a_memory(
    url: str, states: tuple[str, ...], state: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from ddpmon.commands.status import status

    with closing(opened(url)) as store:
        run = MadeRun(store)
        run.speak()
        run.speak(states)
    snapshot = looked(url)
    assert snapshot.run is not None
    assert (snapshot.link.state, snapshot.run.state) == ("gone", state)
    assert words in snapshot.link.message
    assert "as the store keeps it" in snapshot.link.message
    assert [finding.kind for finding in snapshot.findings if finding.kind in ("rank_lost", "monitor_degraded")] == []
    assert "hunter2" not in str(status_object(snapshot)) + "\n".join(status_lines(snapshot))
    assert status(url, False, None) == 0
    printed = capsys.readouterr().out
    assert "not live: " in printed
    assert words in printed


def test_a_run_that_vanished_is_lost_since_its_own_last_word_whatever_its_clock_says(url: str) -> None:
    with closing(opened(url, ttl_s=3600)) as store:
        MadeRun(store).speak(sent_at=time.time() + 500)
        store.put("ddpmon/made-run/ttl", b"5400")  # as if all had been put half an hour ago
    snapshot = looked(url)
    assert snapshot.run is not None
    assert snapshot.ranks is not None
    assert (snapshot.link.state, snapshot.run.state) == ("gone", "lost")
    assert "every rank disappeared without a message, the last 30 min ago" in snapshot.link.message
    assert set(snapshot.ranks.state) == {"lost"}
    assert 1800 <= min(snapshot.ranks.age_s) < 2000
    assert 1800 <= (snapshot.nodes[0].age_s or 0) < 2000
    (lost,) = (finding for finding in snapshot.findings if finding.kind == "rank_lost")
    assert lost.ranks == tuple(range(RANKS))


def test_a_run_that_is_alive_is_live_whatever_its_clock_says(url: str) -> None:
    with closing(opened(url)) as store:
        MadeRun(store).speak(sent_at=time.time() - 7200, host="elsewhere")
    snapshot = looked(url)
    assert snapshot.run is not None
    assert (snapshot.link.state, snapshot.run.state) == ("live", "running")


def test_one_silent_rank_of_a_living_run_is_lost_at_the_first_look(url: str) -> None:
    with closing(opened(url, ttl_s=3600)) as young, closing(opened(url, ttl_s=3000)) as old:
        MadeRun(old).speak()
        _settle(old)
        run = MadeRun(young)
        run.store.put(rank_key("made-run", 1), b"")
        run.speak(("running", "", "running", "running"))
        _settle(young)
        MadeRun.speak(_only(old, run), ("", "running", "", ""))
        _settle(old)
        young.put("ddpmon/made-run/ttl", b"3600")
    snapshot = looked(url)
    assert snapshot.ranks is not None
    assert snapshot.link.state == "live"
    assert snapshot.ranks.state[1] == "lost"
    assert [finding.ranks for finding in snapshot.findings if finding.kind == "rank_lost"] == [(1,)]


def _settle(store: Store) -> None:
    """Wait until the server has done what was put through this connection, and before what another one puts."""
    store.get_many([RUNS_KEY])


def _only(store: Store, run: MadeRun) -> MadeRun:
    """The same run through another connection."""
    other = object.__new__(MadeRun)
    other.store, other.info, other.job, other.seq = store, run.info, run.job, run.seq
    return other


def test_the_newest_run_is_taken_any_can_be_asked_for_and_a_new_one_is_followed(url: str) -> None:
    with closing(opened(url)) as store, closing(Observer(url)) as observer:
        first, second = MadeRun(store, "first"), MadeRun(store, "second")
        first.speak()
        second.speak()
        assert name(watch_until(observer, lambda s: s.run is not None)) == "second"
        assert name(looked(f"{url}?run=first")) == "first"
        nothing = looked(f"{url}?run=third")
        assert (nothing.run, nothing.link.state) == (None, "waiting")
        assert "does not hold run third" in nothing.link.message
        MadeRun(store, "third").speak()
        second.speak()
        assert name(observer.tick()) == "second", "a run that lives is not left"
        second.speak(FINISHED)
        third = watch_until(observer, lambda s: name(s) == "third")
        assert third.link.message.startswith("another run has started here: third")


def name(snapshot: Snapshot) -> str:
    return "" if snapshot.run is None else snapshot.run.name


def test_a_run_is_found_through_the_environment(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(opened(url)) as store:
        MadeRun(store, "there").speak()
    assert looked(None).run is None
    monkeypatch.setenv("DDPMON_STORE", url)
    assert name(looked(None)) == "there"
    monkeypatch.setenv("DDPMON_STORE", "redis://:hunter2@h/x")
    with pytest.raises(TargetError) as caught:
        Observer(None)
    assert "hunter2" not in str(caught.value)


def test_a_server_that_is_lost_and_comes_back_empty_is_told_and_taken_up_again(tmp_path: Path) -> None:
    with redis_server(tmp_path / "own") as server, closing(Observer(server.url())) as observer:
        store = opened(server.url())
        run = MadeRun(store)
        run.speak()
        before = watch_until(observer, lambda s: s.link.state == "live" and s.coverage is not None)
        server.kill()
        silent = watch_until(observer, lambda s: s.link.state == "silent")
        assert "the run does not depend on it" in silent.link.message
        assert silent.run is not None
        assert silent.run.state == "running", "the ranks are not to blame"
        store.close()
        server.start()
        empty = watch_until(observer, lambda s: "no ddpmon run" in s.link.message)
        assert empty.link.state == "silent"
        store = opened(server.url())
        again = MadeRun(store)
        again.speak(seq=run.seq + 1)
        after = watch_until(observer, lambda s: s.link.state == "live")
        store.close()
    assert after.run is not None
    assert before.run is not None
    assert (after.run.id, after.run.state, after.link.message) == (before.run.id, "running", "")


def signed_run(url: str, token: str = TOKEN, run_id: str = "made-run") -> MadeRun:
    return MadeRun(SignedStore(opened(url), Signer(token)), run_id)


def test_signed_runs_are_believed_and_others_are_not(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    signed_run(url).speak()
    unchecked = looked(url)
    assert (unchecked.link.state, len(unchecked.notices)) == ("live", 1)
    assert "no DDPMON_TOKEN" in unchecked.notices[0]
    monkeypatch.setenv("DDPMON_TOKEN", TOKEN)
    believed = looked(url)
    assert (believed.link.state, believed.notices) == ("live", ())
    monkeypatch.setenv("DDPMON_TOKEN", "wrong")
    nothing = looked(url)
    assert nothing.run is None
    assert FORGED in nothing.link.message
    monkeypatch.setenv("DDPMON_TOKEN", TOKEN)
    MadeRun(opened(url), "forged").speak()
    passing = looked(url)
    assert name(passing) == "made-run", "a run that is not signed is passed over"
    assert passing.notices == ("1 newer run is not signed with this DDPMON_TOKEN",)
    assert UNSIGNED in looked(f"{url}?run=forged").link.message


def test_forged_frames_never_reach_the_picture_and_are_counted(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDPMON_TOKEN", TOKEN)
    run, intruder = signed_run(url), opened(url)
    run.speak()
    first = intruder.get_many([rank_key("made-run", 0)])[0] or b""
    with closing(Observer(url)) as observer:
        watch_until(observer, lambda s: s.coverage is not None and s.coverage.reporting == RANKS)
        run.speak()
        evil = encode(rank_frame(1, 9_999, run.job.columns(1, 0, 9), host="evil-host", run_id="made-run"))
        wrong = Signer("wrong").seal(rank_key("made-run", 2), evil)
        seen = [observer.tick()]
        intruder.put(rank_key("made-run", 1), evil)
        intruder.put(rank_key("made-run", 2), wrong)
        intruder.put(rank_key("made-run", 0), first)
        intruder.put(rank_key("made-run", 3), first)
        intruder.get_many(["all has come"])
        seen += [observer.tick() for _ in range(4)]
        dropped = set(seen[-1].notices)
        run.speak(FINISHED)
        last = watch_until(observer, lambda s: s.link.state == "gone")
    assert dropped == {f"1 frame dropped: {UNSIGNED}", f"2 frames dropped: {FORGED}", f"1 frame dropped: {REPLAYED}"}
    for snapshot in (*seen, last):
        assert "evil-host" not in str(status_object(snapshot))
    assert last.run is not None
    assert last.run.state == "finished"


def test_a_rank_without_the_token_is_not_shown(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDPMON_TOKEN", TOKEN)
    run = signed_run(url)
    run.speak(("running", "running", "", "running"))
    MadeRun.speak(_only(opened(url), run), ("", "", "running", ""))
    snapshot = looked(url)
    assert snapshot.ranks is not None
    assert snapshot.coverage is not None
    assert (snapshot.coverage.reporting, snapshot.ranks.state[2]) == (3, "unknown")
    assert any(notice.endswith(UNSIGNED) for notice in snapshot.notices)


def test_a_run_is_kept_for_as_long_as_was_said_and_then_gone(url: str) -> None:
    with closing(opened(url, ttl_s=1)) as store:
        MadeRun(store).speak()
    deadline = time.monotonic() + 60
    while "no ddpmon run" not in looked(url).link.message:
        assert time.monotonic() < deadline
    with closing(opened(url)) as store:
        assert store.get_many([run_key("made-run")]) == [None]
