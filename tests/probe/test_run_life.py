"""What a restarted attempt of an elastic run tells of those before it, however they ended and wherever they were."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("torch")
from ddpmon.codec import decode
from ddpmon.report.status_json import status_object
from ddpmon.schema import RunInfo
from ddpmon.store.base import run_key
from ddpmon.store.connect import connect, parse_target
from ddpmon.store.discovery import discover, left_over
from ddpmon.store.liveness import lives
from ddpmon.watcher.observer import Observer
from tests.probe.first_attempt import ENDED
from tests.probe.lone_uplink import lone_uplink
from tests.probe.probe_ranks import private_runs
from tests.ranks import start
from tests.store.redis_server import needs_redis, redis_server


@pytest.fixture(autouse=True)
def _launched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in {"RUN_ID": "job", "MAX_RESTARTS": "3", "RESTART_COUNT": "0"}.items():
        monkeypatch.setenv(f"TORCHELASTIC_{name}", value)
    with private_runs(tmp_path):
        yield


def first_attempt(folder: Path, *how: str) -> None:
    """Run it to its end: killed, or with "leave" as an exception ends rank 0."""
    log = folder / "first.log"
    process = start("tests.probe.first_attempt", how, log)
    try:
        while not how and "published" not in log.read_text():
            assert process.poll() is None, log.read_text()
            time.sleep(0.02)
        if not how:
            process.send_signal(signal.SIGKILL)
        process.wait()
    finally:
        process.end()


def second_attempt(monkeypatch: pytest.MonkeyPatch, restart: str = "1") -> RunInfo:
    """What the run says of itself after a restart, as a watcher of the store reads it."""
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", restart)
    with closing(lone_uplink("elastic")) as uplink:
        assert uplink.connect()
        (found,) = [run for run in discover() if run.run_id == uplink.run]
        with closing(connect(parse_target(found.url))) as store:
            while (data := store.get_many([run_key(uplink.run)])[0]) is None:  # a put is not waited for
                pass
        with closing(Observer(None)) as observer:
            seen = status_object(observer.tick())
            assert seen["run"]["id"] == uplink.run
            assert seen["run"]["restart"] == int(restart)
            assert [attempt["step"] for attempt in seen["run"]["attempts"]] == [
                attempt.step for attempt in decode("run", data, RunInfo).attempts
            ]
            assert len(seen["notices"]) == 1 + len(seen["run"]["attempts"])
    return decode("run", data, RunInfo)


@pytest.mark.parametrize("how", [(), ("leave",)], ids=["killed", "exception"])
def test_how_the_attempt_before_ended_is_told_by_the_next_one(
    how: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first_attempt(tmp_path, *how)
    before = left_over("job", "elastic")
    assert before is not None
    info = second_attempt(monkeypatch)
    assert (info.restart, info.max_restarts, info.launch) == (1, 3, "job")
    (attempt,) = info.attempts
    assert attempt.run_id == before.run_id
    assert (attempt.step, attempt.ended_at) == (42, ENDED)
    assert [(each.rank, each.reason) for each in attempt.failed] == [(0, "RuntimeError: Connection closed by peer")]
    assert attempt.vanished == [1]
    assert not lives(before.store_pid, before.store_started), "its store has been read and is ended"


def test_between_two_attempts_the_run_is_restarting(tmp_path: Path) -> None:
    first_attempt(tmp_path)
    (run,) = discover()
    with closing(Observer(run.url)) as observer:
        assert observer.tick().link.state == "live"
        os.kill(run.store_pid, signal.SIGKILL)
        while (seen := observer.tick()).link.state != "gone":
            time.sleep(0.02)
    assert status_object(seen)["run"]["state"] == "restarting"
    how = "rank 1 disappeared without a message, rank 0 ended with an error"
    assert seen.link.message == f"restarting, attempt 2 of 4: {how}; the launcher still runs"


def test_a_run_of_another_job_is_no_attempt_of_this_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first_attempt(tmp_path)
    (other,) = discover()
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "another")
    info = second_attempt(monkeypatch)
    assert (info.restart, info.attempts) == (1, [])
    assert other.run_id != info.run_id


def test_the_last_attempt_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "3")
    first_attempt(tmp_path, "leave")
    assert discover() == []


def test_a_failure_that_the_process_outlives_leaves_no_store(tmp_path: Path) -> None:
    process = start("tests.probe.tries_again", [], tmp_path / "log", {"TMPDIR": str(tmp_path)})
    try:
        assert process.wait() == 0, (tmp_path / "log").read_text()
    finally:
        process.end()


def test_a_launch_whose_name_is_no_text_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "job\udcff")
    assert second_attempt(monkeypatch).launch == "job?"


@needs_redis
def test_attempts_in_redis_are_told_of_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with redis_server(tmp_path / "redis", "requirepass hunter2") as server:
        monkeypatch.setenv("DDPMON_STORE", server.url(":hunter2@"))
        first_attempt(tmp_path)
        assert left_over("job", "elastic") is not None
        info = second_attempt(monkeypatch)
        assert [attempt.vanished for attempt in info.attempts] == [[1]]
        assert os.environ["DDPMON_STORE"] not in str(info)
