"""What a watcher says of a store in which something is wrong; every store is a real one."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import numpy as np
import pytest

pytest.importorskip("torch")
from ddpmon import __version__
from ddpmon.report.status_json import status_object
from ddpmon.report.verdicts import calm_sentence
from ddpmon.schema import OLDEST_READ, SCHEMA_VERSION
from ddpmon.snapshot import Snapshot
from ddpmon.store.base import rank_key, run_key
from ddpmon.store.signed import Signer
from ddpmon.watcher import link
from ddpmon.watcher.observer import Observer
from tests import ranks
from tests.made_frames import RUN_ID
from tests.made_store import MadeStore, delete_keys
from tests.store.half_open import visited
from tests.store.served import ALONE


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


def told_of(snapshot: Snapshot, rank: int) -> bool:
    """Whether a finding says that the rank is not heard of."""
    kinds = ("monitor_degraded", "rank_lost")
    return any(rank in finding.ranks and finding.kind in kinds for finding in snapshot.findings)


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
    while reporting(seen) != 1 or not told_of(seen, 1):  # a tick that is late itself shows what was said before
        assert time.monotonic() < deadline
        seq += 1
        store.speak(seq, 0)
        seen = observer.tick()
        time.sleep(0.2)
    store.speak(seq + 1)
    assert reporting(at_step(observer, 1, 2 * seq + 3)) == 2


def test_a_description_of_another_run_is_refused(store: MadeStore, observer: Observer) -> None:
    store.describe("other-run", key=run_key(RUN_ID))
    store.name(RUN_ID)
    store.speak(1)
    seen = observer.tick()
    assert (seen.link.state, seen.run) == ("waiting", None)
    assert seen.link.message == (
        f"ddpmon/{RUN_ID}/run: it describes another run, 'other-run': another process has overwritten it"
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
    assert "2 frames refused within the last minute" in finding["summary"]
    assert finding["evidence"]["refused_frames"] == 2


def test_two_jobs_that_write_as_the_same_ranks_are_said_and_neither_is_cleared_away(
    store: MadeStore, observer: Observer
) -> None:
    store.begin()
    assert step_of(observer.tick(), 0) == 3
    for seq in range(2, 9):
        store.speak(seq, pid=seq % 2 + 7, host=f"host{seq % 2}")
        seen = observer.tick()
    assert step_of(seen, 0) == step_of(seen, 1) == 15, "one of them is followed"
    assert seen.ranks is not None
    assert seen.ranks.pid.tolist() == [8, 8]
    assert seen.heat is not None
    assert np.isfinite(seen.heat.values).sum() == 2 * 6, "the steps of all its frames are kept"
    assert degraded(seen) == (
        "two processes publish as ranks 0, 1 (rank 0: pid 8 on host1 and pid 7 on host0): two trainings share one "
        "run, and the figures describe neither"
    )
    assert seen.findings[0].severity == "warning"


def test_ranks_that_start_anew_again_and_again_are_no_two_jobs(store: MadeStore, observer: Observer) -> None:
    store.begin()
    for pid in (7, 8, 7, 8, 7):
        for seq in (1, 2, 3):
            store.speak(seq, pid=pid)
            seen = observer.tick()
        assert seen.ranks is not None
        assert (seen.ranks.pid.tolist(), step_of(seen, 0)) == ([pid, pid], 7)
    assert degraded(seen) == ""


def said_by_status(target: str) -> str:
    """The one sentence with which `ddpmon status` ends, finding no run."""
    done = ranks.run("ddpmon.cli", "status", target)
    assert (done.returncode, done.stdout) == (3, ""), done.stderr
    (line,) = done.stderr.splitlines()
    return line.removeprefix("ddpmon: ")


def said_by_watcher(target: str) -> str:
    """What stands in the dashboard instead of a run; a second look says the same."""
    with closing(Observer(target)) as observer:
        first, second = observer.tick(), observer.tick()
    for seen in (first, second):
        assert (seen.link.state, seen.run) == ("waiting", None)
    assert first.link.message == second.link.message
    return first.link.message


def test_a_wrong_token_is_called_that(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(MadeStore(token="right")) as store:
        store.begin()
        monkeypatch.setenv("DDPMON_TOKEN", "wrong")
        sentence = f"run {RUN_ID} in the store at {store.url} is not signed with this DDPMON_TOKEN"
        assert said_by_watcher(store.url) == said_by_watcher(f"{store.url}/{RUN_ID}") == sentence
        assert said_by_status(store.url) == sentence
        store.name(RUN_ID, "second")
        store.describe("second")
        store.settle()
        assert said_by_watcher(store.url) == (
            f"none of the 2 newest runs in the store at {store.url} can be trusted: "
            f"2 are not signed with this DDPMON_TOKEN"
        )


def test_a_run_without_a_signature_is_called_that(store: MadeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.begin()
    monkeypatch.setenv("DDPMON_TOKEN", "a token")
    assert said_by_watcher(store.url) == (
        f"run {RUN_ID} in the store at {store.url} is not signed, and this watcher has a DDPMON_TOKEN"
    )


def test_a_run_that_is_not_there_is_told_from_those_that_are(store: MadeStore) -> None:
    store.begin()
    sentence = f"the store at {store.url} does not hold run nobodys; it holds {RUN_ID}"
    assert said_by_watcher(f"{store.url}/nobodys") == sentence
    store.name(*(f"run-{number}" for number in range(9)))
    assert said_by_watcher(f"{store.url}/nobodys").endswith("; it holds run-8, run-7, run-6, run-5, run-4 and 4 more")
    assert (
        said_by_watcher(f"{store.url}/run-3") == f"the store at {store.url} lists run run-3, but does not describe it"
    )
    assert (
        said_by_watcher(store.url)
        == f"the store at {store.url} lists 9 runs, but does not describe any of the newest 9"
    )


@pytest.mark.parametrize(("version", "word"), [(OLDEST_READ - 1, "older"), (SCHEMA_VERSION + 1, "newer")])
def test_another_schema_version_is_said_and_its_ranks_are_missing(store: MadeStore, version: int, word: str) -> None:
    store.begin()
    store.describe(schema_version=version, versions={"ddpmon": "0.9.1"})
    store.settle()
    differs = f"schema version {version}, {word} than the {SCHEMA_VERSION} that this ddpmon reads: "
    sentence = f"{differs}use the same ddpmon release in the training and here"
    releases = f"the training has ddpmon 0.9.1, so install that release here (this is ddpmon {__version__})"
    assert said_by_watcher(store.url) == said_by_status(store.url) == f"ddpmon/{RUN_ID}/run: {differs}{releases}"
    store.describe()
    store.speak(2, 0)
    store.speak(2, 1, schema_version=version)
    with closing(Observer(store.url)) as observer:
        seen = observer.tick()
    assert (seen.link.state, reporting(seen)) == ("live", 1)
    assert seen.notices == (f"once: ddpmon/{RUN_ID}/rank/1: {sentence}",)
    (finding,) = [each for each in seen.findings if each.kind == "monitor_degraded"]
    assert (finding.severity, finding.ranks) == ("warning", (1,))
    assert "rank 1 has never reported" in finding.summary
    assert "1 frame rejected" in finding.summary
    assert "only 1 of 2 ranks report now" in finding.summary


def test_ten_thousand_foreign_keys_are_neither_a_run_nor_in_its_way(store: MadeStore, observer: Observer) -> None:
    for number in range(10_000):
        store.host.put(f"ddpmon/foreign/{number}", b"x" * 50)
    store.settle()
    assert observer.tick().link.message == f"the store at {store.url} holds no ddpmon run"
    store.begin()
    seen = observer.tick()
    assert (seen.link.state, reporting(seen), seen.notices) == ("live", 2, ())


@pytest.mark.parametrize("greets", [b"SSH-2.0-OpenSSH_9.6\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x1b[2J\xff"])
def test_another_kind_of_server_is_quoted(greets: bytes) -> None:
    with stranger(greets) as port:
        known = "not as a ddpmon store (torch 2.6 to 2.15)"
        said = f"127.0.0.1:{port} answers, but {known}: it says {greets.strip().decode('latin-1')!a}"
        assert said_by_watcher(f"tcp://127.0.0.1:{port}") == said


def test_a_listener_that_never_answers_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "_REOPEN_S", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        port = deaf.getsockname()[1]
        said = (
            f"the process at 127.0.0.1:{port} does not answer: a store that is stopped or disconnected, or no store of "
            f"torch 2.6 to 2.15"
        )
        assert said_by_watcher(f"tcp://127.0.0.1:{port}") == said
        assert said_by_status(f"tcp://127.0.0.1:{port}") == said


@contextmanager
def stranger(greets: bytes) -> Iterator[int]:
    """A port on which some other server answers."""

    def admit(visitor: socket.socket) -> None:
        with visitor:
            visitor.recv(100)
            visitor.sendall(greets)

    with visited(admit) as port:
        yield port


def test_a_run_that_goes_before_a_rank_was_heard_of_is_not_said_to_have_finished() -> None:
    store = MadeStore(address=ALONE)
    store.describe()
    store.name(RUN_ID)
    for rank in range(store.ranks):
        store.hold(rank_key(RUN_ID, rank), b"")
    with closing(Observer(store.url)) as observer:
        assert until(observer, lambda seen: seen.link.state == "live").run is not None
        store.close()
        seen = until(observer, lambda seen: seen.link.state == "gone")
    assert seen.run is not None
    assert seen.run.state == "lost"
    assert "before any of its ranks reported" in seen.link.message
    assert "before any of its ranks reported" in calm_sentence(seen)
