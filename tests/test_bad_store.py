"""What a watcher says of a store in which something is wrong; every store is a real one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

pytest.importorskip("torch")
from ddpmon.commands.status_json import status_object
from ddpmon.observe import Observer
from ddpmon.snapshot import Snapshot
from ddpmon.store.base import rank_key, run_key
from ddpmon.store.signed import Signer
from tests.made_frames import RUN_ID
from tests.made_store import MadeStore, delete_keys


@pytest.fixture(autouse=True)
def _no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DDPMON_TOKEN", raising=False)


@pytest.fixture
def store() -> Iterator[MadeStore]:
    made = MadeStore()
    yield made
    made.close()


@pytest.fixture
def observer(store: MadeStore) -> Iterator[Observer]:
    watcher = Observer(store.url)
    yield watcher
    watcher.close()


def until(observer: Observer, what: Callable[[Snapshot], bool]) -> Snapshot:
    """Tick until it is so."""
    deadline = time.monotonic() + 60
    while not what(snapshot := observer.tick()):
        assert time.monotonic() < deadline, snapshot.link
        time.sleep(0.05)
    return snapshot


def step_of(snapshot: Snapshot, rank: int) -> int:
    return -1 if snapshot.ranks is None else int(snapshot.ranks.step[rank])


def at_step(observer: Observer, rank: int, step: int) -> Snapshot:
    """Tick until this rank is there."""
    return until(observer, lambda snapshot: step_of(snapshot, rank) == step)


def reporting(snapshot: Snapshot) -> int:
    return -1 if snapshot.coverage is None else snapshot.coverage.reporting


def test_a_rank_whose_frames_are_deleted_is_silent_and_the_others_are_seen(
    store: MadeStore, observer: Observer
) -> None:
    store.begin()
    assert reporting(observer.tick()) == 2
    delete_keys(store.port, rank_key(RUN_ID, 1))
    for seq in (2, 3):
        store.speak(seq, 0)
        seen = at_step(observer, 0, 2 * seq + 1)
        assert (seen.link.state, step_of(seen, 1)) == ("live", 3)
    deadline = time.monotonic() + 60
    seq = 3
    while reporting(seen) != 1:
        assert time.monotonic() < deadline
        seq += 1
        store.speak(seq, 0)
        seen = observer.tick()
        time.sleep(0.2)
    assert any("rank 1 has not reported" in finding.summary for finding in seen.findings)
    store.speak(seq + 1)
    assert reporting(at_step(observer, 1, 2 * seq + 3)) == 2


def test_a_description_of_another_run_is_refused(store: MadeStore, observer: Observer) -> None:
    store.describe("other-run", key=run_key(RUN_ID))
    store.name(RUN_ID)
    store.speak(1)
    seen = observer.tick()
    assert (seen.link.state, seen.run) == ("waiting", None)
    assert seen.link.message == (
        f"ddpmon/{RUN_ID}/run: it describes another run, 'other-run': somebody has written over it"
    )
    store.describe()
    store.settle()
    assert until(observer, lambda snapshot: snapshot.link.state == "live").run is not None


@pytest.mark.parametrize("hosts", [[0, 1, 2], [1, 1]])
def test_a_description_with_hosts_that_cannot_be_is_refused(
    store: MadeStore, observer: Observer, hosts: list[int]
) -> None:
    store.describe(node_keys=hosts)
    store.name(RUN_ID)
    seen = observer.tick()
    assert (seen.link.state, seen.run) == ("waiting", None)
    assert f"{len(hosts)} hosts for 2 ranks" in seen.link.message


def degraded(snapshot: Snapshot) -> str:
    return " ".join(finding.summary for finding in snapshot.findings if finding.kind == "monitor_degraded")


def test_a_frame_that_cannot_be_read_is_counted_once_however_often_it_is_seen(
    store: MadeStore, observer: Observer
) -> None:
    store.begin()
    store.hold(rank_key(RUN_ID, 1), b"\xc0 no frame")
    for _ in range(5):
        seen = observer.tick()
    assert reporting(seen) == 1
    assert "1 frame rejected within the last minute" in degraded(seen)
    assert [notice[:6] for notice in seen.notices] == ["once: "]
    store.hold(rank_key(RUN_ID, 1), b"\xc0 another")
    assert "2 frames rejected" in degraded(observer.tick())
    store.speak(2)
    assert reporting(observer.tick()) == 2


def test_frames_that_are_not_believed_are_told_to_scripts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDPMON_TOKEN", "right")
    with closing(MadeStore(token="right")) as store, closing(Observer(store.url)) as observer:
        store.begin()
        stranger = Signer("wrong")
        for _ in range(2):
            store.hold(rank_key(RUN_ID, 1), stranger.seal(rank_key(RUN_ID, 1), b"forged"))
            seen = observer.tick()
        told = status_object(seen)
    assert told["coverage"]["reporting"] == 1
    assert told["notices"] == ["2 frames dropped: not signed with this DDPMON_TOKEN"]
    (finding,) = [each for each in told["findings"] if each["kind"] == "monitor_degraded"]
    assert "2 frames not believed within the last minute" in finding["summary"]
    assert finding["evidence"]["refused_frames"] == 2
