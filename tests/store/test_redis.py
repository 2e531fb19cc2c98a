"""A real Redis server as the store: the same three operations, many runs that expire, users, TLS, and trouble."""

from __future__ import annotations

import resource
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ddpmon.codec import decode
from ddpmon.schema import MAX_FRAME_BYTES, FrameError, RankFrame
from ddpmon.store.base import RUNS_KEY, StoreSilent, StoreUnavailable, TargetError, rank_key, run_key
from ddpmon.store.connect import connect, list_runs, parse_target
from ddpmon.store.redis import DEFAULT_TTL_S, RedisStore, ttl_of_environment
from ddpmon.store.redis_url import parse_redis
from tests.store.redis_server import HOME, RedisServer, needs_redis, redis_server

pytestmark = needs_redis
USERS = (
    "user default off",
    "user ranks on >rank-pass ~ddpmon/* +set +getrange +zadd +zrem +zrange +expire +pttl +select",
    "user watchers on >watch-pass %R~ddpmon/* +getrange +zrange +pttl +select",
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as found:
        yield found


@pytest.fixture
def store(server: RedisServer) -> Iterator[RedisStore]:
    found = opened(server.url())
    yield found
    found.close()


def opened(url: str, timeout_s: float = 20.0, ttl_s: int = 1000) -> RedisStore:
    return RedisStore(parse_redis(url)[0], timeout_s=timeout_s, ttl_s=ttl_s)


def within(what: Callable[[], object], deadline_s: float = 60.0) -> None:
    until = time.monotonic() + deadline_s
    while not what():
        assert time.monotonic() < until
        time.sleep(0.02)


def refused(url: str, timeout_s: float = 20.0) -> str:
    with pytest.raises(StoreUnavailable) as caught:
        opened(url, timeout_s).get_many([RUNS_KEY])
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert f"{HOME}:" in message
    assert not any(secret in message for secret in ("rank-pass", "watch-pass", "wrong-pass", "long-pass"))
    return message


def test_what_one_puts_another_reads(server: RedisServer, store: RedisStore) -> None:
    value = bytes(range(256))
    store.put("ddpmon/a/rank/0", value)
    store.put("ddpmon/a/rank/1", b"")
    assert store.get_many(["ddpmon/a/rank/0", "ddpmon/a/rank/1", "ddpmon/a/rank/2"]) == [value, None, None]
    with closing(connect(parse_target(server.url()))) as watcher:
        assert watcher.get_many(["ddpmon/a/rank/0"]) == [value]
        assert watcher.get_many([]) == []


def test_thousands_of_keys_come_back_in_order(store: RedisStore) -> None:
    keys = [rank_key("many", number) for number in range(2500)]
    for key in keys:
        store.put(key, key.encode())
    assert store.get_many([*keys, "none"]) == [*(key.encode() for key in keys), None]
    assert set(store.ages([*keys, rank_key("many", 2500)])) == {None}, "nobody has said how long the run is kept"


def test_what_was_put_last_arrives_although_the_connection_is_closed_at_once(server: RedisServer) -> None:
    for turn in range(5):
        writer = opened(server.url())
        for number in range(200):
            writer.put("ddpmon/last/rank/0", b"%d %d %s" % (turn, number, b"x" * 5000))
        writer.close()
        writer.close()
        with closing(opened(server.url())) as reader:
            (value,) = reader.get_many(["ddpmon/last/rank/0"])
            assert value is not None
            assert value.startswith(b"%d 199 " % turn)


def test_databases_are_apart(server: RedisServer) -> None:
    with closing(opened(server.url(tail="/1"))) as one, closing(opened(server.url(tail="/2"))) as two:
        one.put("ddpmon/x/run", b"1")
        assert (one.get_many(["ddpmon/x/run"]), two.get_many(["ddpmon/x/run"])) == ([b"1"], [None])
    assert "refuses" in refused(server.url(tail="/4000"))


def start_run(store: RedisStore, run_id: str) -> None:
    store.put(run_key(run_id), run_id.encode())
    store.put(RUNS_KEY, run_id.encode())
    store.put(rank_key(run_id, 0), b"frame")


def test_many_runs_are_listed_and_expire(server: RedisServer) -> None:
    url = server.url(tail="/5")
    with closing(opened(url)) as long, closing(opened(url, ttl_s=1)) as short:
        assert list_runs(long) == []
        for run_id, store in (("first", long), ("brief", short), ("third", long)):
            start_run(store, run_id)
        assert list_runs(long) == ["first", "brief", "third"]
        start_run(long, "first")
        assert list_runs(long) == ["first", "brief", "third"], "a run that is refreshed keeps its place"
        within(lambda: list_runs(long) == ["first", "third"])
        within(lambda: long.get_many([run_key("brief"), rank_key("brief", 0)]) == [None, None])
        start_run(long, "fourth")
        assert long._ask("ZRANGE", RUNS_KEY, 0, -1) == [b"first", b"third", b"fourth"], "and its name is cleared away"
        left = [long._ask_each([("TTL", key)])[0] for key in (RUNS_KEY, *run_keys("first"))]
        assert all(0 < seconds <= 366 * 24 * 3600 for seconds in left), "every key expires"
        assert max(left[1:]) <= 1000


def test_a_run_whose_clock_was_set_back_is_newer_than_those_that_it_finds(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(opened(server.url(tail="/9"))) as before, closing(opened(server.url(tail="/9"))) as after:
        start_run(before, "before")
        monkeypatch.setattr("ddpmon.store.redis.time", lambda: time.time() - 7200)
        start_run(after, "after")
        assert list_runs(before) == ["before", "after"]


def run_keys(run_id: str) -> list[str]:
    return [run_key(run_id), rank_key(run_id, 0), f"ddpmon/{run_id}/ttl"]


def test_a_key_that_is_put_again_lives_on_and_its_age_is_the_servers_word(server: RedisServer) -> None:
    with closing(opened(server.url(tail="/6"), ttl_s=3)) as store:
        start_run(store, "aging")
        (young,) = store.ages([rank_key("aging", 0)])
        assert young is not None
        within(lambda: (store.ages([rank_key("aging", 0)])[0] or 0.0) > 1.0)
        store.put(rank_key("aging", 0), b"again")
        put, kept, missing, foreign = store.ages(
            [rank_key("aging", 0), run_key("aging"), rank_key("aging", 1), "foreign"]
        )
        assert put is not None
        assert kept is not None
        assert put < kept
        assert (missing, foreign) == (None, None)


def test_names_of_runs_that_are_none_are_passed_over(server: RedisServer) -> None:
    with closing(opened(server.url(tail="/7"))) as store:
        start_run(store, "good")
        for name in (b"\xff\xfe", b"a/b", b"line\nbreak", b"\x1b[31m", b"x" * 300, b""):
            store._send("ZADD", RUNS_KEY, 9e12, name)
            store._send("SET", b"ddpmon/%s/run" % name, b"x")
        assert list_runs(store) == ["good"]


def test_keys_that_hold_something_else_are_missing(server: RedisServer) -> None:
    with closing(opened(server.url(tail="/8"))) as store:
        store._send("RPUSH", rank_key("odd", 0), b"a", b"b")
        store.put(rank_key("odd", 1), b"frame")
        assert store.get_many([rank_key("odd", 0), rank_key("odd", 1)]) == [None, b"frame"]
        store._send("SET", RUNS_KEY, b"no set")
        with pytest.raises(StoreUnavailable, match="refuses: WRONGTYPE"):
            store.get_many([RUNS_KEY])


def test_of_a_value_that_is_too_large_no_more_is_read_than_is_needed_to_refuse_it(
    server: RedisServer, store: RedisStore
) -> None:
    keys = [rank_key("hostile", rank) for rank in range(3)]
    for key in keys:
        store.put(key, b"frame")
    program = "import sys, redis; redis.Redis(port=int(sys.argv[1])).setrange(sys.argv[2], 300 << 20, b'x')"
    subprocess.run([sys.executable, "-c", program, str(server.port), keys[1]], check=True)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    first, large, last = store.get_many(keys)
    assert (first, last) == (b"frame", b"frame")
    assert large is not None
    assert MAX_FRAME_BYTES < len(large) < 2 * MAX_FRAME_BYTES
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10
    with pytest.raises(FrameError):
        decode(keys[1], large, RankFrame)


def test_a_server_that_holds_far_more_than_frames_take_is_refused(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [rank_key("full", rank) for rank in range(600)]
    for key in keys:
        store.put(key, b"x" * 2048)
    assert store.get_many(keys) == [b"x" * 2048] * 600
    monkeypatch.setattr("ddpmon.store.redis._MOST_AT_ONCE", 1 << 20)
    monkeypatch.setattr("ddpmon.store.redis._MOST_A_KEY", 1024)
    with pytest.raises(StoreUnavailable, match="holds far more data for this run than frames need"):
        store.get_many(keys)


def test_users_may_do_what_they_are_allowed_and_passwords_stay_secret(tmp_path: Path) -> None:
    with redis_server(tmp_path / "acl", *USERS) as guarded:
        with closing(opened(guarded.url("ranks:rank-pass@"))) as ranks:
            start_run(ranks, "mine")
            with closing(connect(parse_target(guarded.url("watchers:watch-pass@")))) as watcher:
                assert list_runs(watcher) == ["mine"]
                assert watcher.get_many(run_keys("mine")[:2]) == [b"mine", b"frame"]
                assert watcher.ages([run_key("mine")])[0] is not None
        with closing(opened(guarded.url("watchers:watch-pass@"))) as intruder:
            intruder.put(run_key("mine"), b"overwritten")
            with pytest.raises(StoreUnavailable, match=r"NOPERM .*has no permissions to run the 'set' command"):
                intruder.get_many([run_key("mine")])
        assert "refuses the login" in refused(guarded.url("ranks:wrong-pass@"))
        assert "refuses the login" in refused(guarded.url("nobody:rank-pass@"))
        assert "set DDPMON_STORE to this address with your user and password" in refused(guarded.url())


def test_a_cluster_and_a_replica_are_called_that(tmp_path: Path) -> None:
    with redis_server(tmp_path / "cluster", "cluster-enabled yes") as cluster:
        assert "is a Redis Cluster, and ddpmon needs a single server: CLUSTERDOWN" in refused(cluster.url())
    with redis_server(tmp_path / "replica", f"replicaof {HOME} 1") as replica:
        store = opened(replica.url())
        store.put(run_key("r"), b"x")
        with pytest.raises(StoreUnavailable, match="is a replica that cannot be written to"):
            store.get_many([run_key("r")])


def test_a_watcher_takes_the_password_of_its_own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        redis_server(tmp_path / "pw", "requirepass long-pass") as guarded,
        closing(opened(guarded.url(":long-pass@"))) as ranks,
    ):
        start_run(ranks, "mine")
        assert list_runs(ranks) == ["mine"]
        monkeypatch.setenv("DDPMON_STORE", guarded.url(":long-pass@"))
        with closing(connect(parse_target(guarded.url()))) as watcher:
            assert list_runs(watcher) == ["mine"]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make certificates with")
def test_tls_with_a_certificate_that_is_checked(tmp_path: Path) -> None:
    certificate, key = certificate_for(f"IP:{HOME}", tmp_path)
    with redis_server(tmp_path / "tls", tls=(certificate, key)) as guarded:
        url = guarded.url(scheme="rediss", tail=f"?ca={certificate}")
        with closing(opened(url)) as ranks, closing(connect(parse_target(url))) as watcher:
            for number in range(100):
                ranks.put(rank_key("tls", number), b"x" * 20_000)
            assert ranks.get_many([rank_key("tls", 99)]) == [b"x" * 20_000]
            assert watcher.get_many([rank_key("tls", number) for number in range(100)]) == [b"x" * 20_000] * 100
        said = refused(guarded.url(scheme="rediss"))
        assert "CERTIFICATE_VERIFY_FAILED" in said
        assert said.endswith("; name the authority that signed it: ?ca=FILE")
        assert refused(guarded.url()).endswith("; a port with TLS needs rediss://")
        with pytest.raises(StoreUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
            opened(f"rediss://localhost:{guarded.port}?ca={certificate}")  # a name that it is not made out for
        assert refused(guarded.url())


def certificate_for(name: str, folder: Path) -> tuple[Path, Path]:
    certificate, key = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=ddpmon", "-addext", f"subjectAltName={name}"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    return certificate, key


def test_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind((HOME, 0))
        assert refused(f"redis://{HOME}:{taken.getsockname()[1]}").startswith("no store at redis://")


def test_something_that_answers_and_is_no_redis(server: RedisServer) -> None:
    del server
    with socket.create_server((HOME, 0)) as listener:
        command = [sys.executable, "-c", ANSWER, str(listener.fileno())]
        with subprocess.Popen(command, pass_fds=[listener.fileno()]) as web:
            try:
                assert refused(f"redis://{HOME}:{listener.getsockname()[1]}", timeout_s=5)
            finally:
                web.kill()


ANSWER = """
import socket, sys
listener = socket.socket(fileno=int(sys.argv[1]))
while True:
    visitor = listener.accept()[0]
    visitor.sendall(b"HTTP/1.1 400 Bad\\x1b[31m Request\\r\\n\\r\\n")
    visitor.close()
"""


def test_a_server_that_is_stopped_is_silent_and_holds_nobody_up(tmp_path: Path) -> None:
    with redis_server(tmp_path / "stopped") as stopped:
        writer, watcher = opened(stopped.url(), timeout_s=0.5), connect(parse_target(stopped.url()), timeout_s=0.5)
        writer.put("ddpmon/r/rank/0", b"1")
        within(lambda: watcher.get_many(["ddpmon/r/rank/0"]) == [b"1"])
        stopped.freeze()
        with pytest.raises(StoreSilent, match="does not answer"):
            within(lambda: writer.put("ddpmon/r/rank/0", b"2"))
        with pytest.raises(StoreSilent):
            watcher.get_many(["ddpmon/r/rank/0"])
        with pytest.raises(StoreSilent):
            opened(stopped.url(), timeout_s=0.5)
        with pytest.raises(StoreUnavailable):
            writer.put("ddpmon/r/rank/0", b"3")
        stopped.thaw()
        within(lambda: answers(watcher.get_many, ["ddpmon/r/rank/0"]) == [b"2"])
        writer.close()
        watcher.close()


def test_a_server_that_stops_in_the_middle_of_an_answer_is_silent_and_then_gone() -> None:
    with socket.create_server((HOME, 0)) as listener:
        threading.Thread(target=answer_by_half, args=[listener], daemon=True).start()
        store = opened(f"redis://{HOME}:{listener.getsockname()[1]}", timeout_s=0.5)
        with pytest.raises(StoreSilent):
            store.get_many(["ddpmon/r/rank/0"])
        with pytest.raises(StoreUnavailable, match="abandoned") as told:
            store.get_many(["ddpmon/r/rank/0"])
        assert not isinstance(told.value, StoreSilent), "so that it is opened again"
        store.close()


def answer_by_half(listener: socket.socket) -> None:
    """Answer whatever comes first as redis-py expects it, and a read with half of a value."""
    visitor = listener.accept()[0]
    while data := visitor.recv(4096):
        half = b"GETRANGE" in data
        visitor.sendall(b"$100\r\nhalf" if half else b"+OK\r\n" * data.count(b"*"))


def answers(call: Callable[[list[str]], object], keys: list[str]) -> object:
    try:
        return call(keys)
    except StoreUnavailable:
        return None


def test_a_server_that_is_killed_is_said_by_every_operation(tmp_path: Path) -> None:
    with redis_server(tmp_path / "killed", durable=True) as killed:
        writer, reader = opened(killed.url()), opened(killed.url())
        writer.put("ddpmon/r/rank/0", b"1")
        within(lambda: reader.get_many(["ddpmon/r/rank/0"]) == [b"1"])
        killed.kill()
        with pytest.raises(StoreUnavailable, match=f"the store at redis://{HOME}:{killed.port} does not answer: ."):
            within(lambda: writer.put("ddpmon/r/rank/0", b"2"))
        with pytest.raises(StoreUnavailable, match=r"does not answer: ."):
            reader.get_many(["ddpmon/r/rank/0"])
        writer.close()
        reader.close()
        killed.start()
        with closing(opened(killed.url())) as again:
            assert again.get_many(["ddpmon/r/rank/0"]) in ([b"1"], [b"2"])


def test_a_server_that_has_no_room_says_so(tmp_path: Path) -> None:
    limits = ("maxmemory 3mb", "maxmemory-policy noeviction")
    with (
        redis_server(tmp_path / "full", *limits) as full,
        closing(opened(full.url())) as store,
        pytest.raises(StoreUnavailable, match=r"is full: OOM .*maxmemory.*lower DDPMON_TTL_S"),
    ):
        fill(store)


def fill(store: RedisStore) -> None:
    for number in range(2000):
        store.put(f"ddpmon/r/rank/{number}", b"x" * 50_000)


def test_how_long_runs_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DDPMON_TTL_S", raising=False)
    assert ttl_of_environment() == DEFAULT_TTL_S
    monkeypatch.setenv("DDPMON_TTL_S", "3600")
    assert ttl_of_environment() == 3600
    for wrong in ("1", "-5", "1e9", "99999999", "x" * 500, "3600.5", " "):
        monkeypatch.setenv("DDPMON_TTL_S", wrong)
        with pytest.raises(TargetError, match="is not a number of seconds from 60"):
            ttl_of_environment()
