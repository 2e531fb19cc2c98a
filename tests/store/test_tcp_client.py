"""The client of a TCPStore against torch's own servers, and against whatever else may answer."""

from __future__ import annotations

import gc
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import TypeVar

import psutil
import pytest

pytest.importorskip("torch")
from ddpmon.store.base import MOST_VALUE_BYTES, TOO_LONG, StoreSilent, StoreUnavailable
from ddpmon.store.tcp_client import TcpClient
from ddpmon.store.tcp_wire import COUNT, READY
from tests.made_store import delete_keys
from tests.store.half_open import KNOCK, Gate, impostor, visited
from tests.store.redis_server import needs_redis, redis_server
from tests.store.torch_servers import HOME, Farm, TorchServer, farm

SHORT_S = 0.3
T = TypeVar("T")
Visitor = socket.socket


@pytest.fixture(scope="module")
def servers() -> Iterator[Farm]:
    with farm() as found:
        yield found


@pytest.fixture(params=["libuv", "plain"])
def server(servers: Farm, request: pytest.FixtureRequest) -> Iterator[TorchServer]:
    found = servers.serve(request.param)
    yield found
    found.kill()


@pytest.fixture
def client(server: TorchServer) -> Iterator[TcpClient]:
    with closing(patient(server.port)) as found:
        yield found


def patient(port: int) -> TcpClient:
    """A client for a machine that is busy."""
    return TcpClient(HOME, port, timeout_s=60.0)


def once_it_answers(ask: Callable[[], T]) -> T:
    """Ask again and again, of a client with a short limit on a machine that may be busy."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return ask()
        except StoreSilent:
            assert time.monotonic() < deadline


def refused(port: int, timeout_s: float = 10.0) -> str:
    """The one sentence with which a read of two keys ends."""
    with pytest.raises(StoreUnavailable) as caught, closing(TcpClient(HOME, port, timeout_s=timeout_s)) as client:
        client.get_many(["a", "b"])
    assert len(str(caught.value).splitlines()) == 1
    assert f"{HOME}:{port}" in str(caught.value)
    said = str(caught.value).partition(": ")[0]
    assert isinstance(caught.value, StoreSilent) == ("does not answer" in said or "closes connections" in said)
    return str(caught.value)


def put_for_ever(client: TcpClient, value: bytes) -> None:
    """A put is not answered, so that it may be noticed late that nobody takes it."""
    for _ in count():
        client.put("heavy", value)


def test_what_torch_puts_is_read_and_what_is_put_torch_reads(client: TcpClient) -> None:
    assert client.get_many(["greeting"]) == [b"hello"]
    client.put("question", b"hello")
    deadline = time.monotonic() + 60
    while client.get_many(["answer"]) != [b"hello, too"]:
        assert time.monotonic() < deadline


def test_thousands_of_values_come_back_in_order(client: TcpClient) -> None:
    keys = [f"many/{number}" for number in range(2500)]
    for key in keys:
        client.put(key, key.encode() * 50)
    assert client.get_many([*keys, "none"]) == [*(key.encode() * 50 for key in keys), None]
    assert client.get_many(list(reversed(keys))) == [key.encode() * 50 for key in reversed(keys)]


def test_what_is_missing_or_empty_is_none_until_it_comes(client: TcpClient) -> None:
    client.put("empty", b"")
    client.put("full", b"x")
    assert client.get_many(["missing", "empty", "full", "later"]) == [None, None, b"x", None]
    client.put("later", b"now")
    assert client.get_many(["missing", "empty", "full", "later"]) == [None, None, b"x", b"now"]
    assert client.get_many([]) == []


def test_missing_keys_among_thousands_take_three_questions(server: TorchServer, client: TcpClient) -> None:
    keys = [f"sparse/{number}" for number in range(1000)]
    for key in keys[:-9]:
        client.put(key, b"1")
    assert client.get_many(keys[:1]) == [b"1"]
    with closing(Gate(server.port)) as gate, closing(patient(gate.port)) as other:
        assert other.get_many(keys) == [b"1"] * 991 + [None] * 9
        assert gate.questions == 1 + 3, "the greeting, all keys, each key, the values"


def test_a_key_that_was_deleted_is_absent_and_the_others_are_read(server: TorchServer, client: TcpClient) -> None:
    keys = [f"doomed/{number}" for number in range(40)]
    for key in keys:
        client.put(key, key.encode())
    assert None not in client.get_many(keys)
    delete_keys(server.port, keys[7], keys[-1])
    left = [key.encode() for key in keys[:-1]]
    assert client.get_many(keys) == [*left[:7], None, *left[8:], None]
    client.put(keys[7], b"again")
    assert client.get_many(keys) == [*left[:7], b"again", *left[8:], None]


def test_a_value_that_no_frame_can_be_is_passed_over(client: TcpClient) -> None:
    longest = os.urandom(MOST_VALUE_BYTES)
    client.put("longest", longest)
    client.put("longer", longest + b"x")
    client.put("long", bytes(5 << 20))
    client.put("short", b"x")
    assert client.get_many(["short", "longest", "longer", "long"]) == [b"x", longest, TOO_LONG, TOO_LONG]


def test_more_than_all_frames_could_be_is_refused_and_the_rest_can_be_read(client: TcpClient) -> None:
    keys = [f"heap/{number}" for number in range(40)]
    for key in keys:
        client.put(key, bytes(1 << 20))
    with pytest.raises(StoreUnavailable, match=f"the store at tcp://{HOME}:.* holds far more data for this run than"):
        client.get_many(keys)
    assert client.get_many(keys[:2]) == [bytes(1 << 20)] * 2


def test_a_server_that_was_merely_stopped_is_taken_up_again(server: TorchServer) -> None:
    with closing(once_it_answers(lambda: TcpClient(HOME, server.port, timeout_s=SHORT_S))) as client:
        server.stop()
        for _ in range(3):
            with pytest.raises(StoreSilent, match=f"^the store at tcp://{HOME}:{server.port} does not answer$"):
                client.get_many(["greeting"])
        server.go_on()
        assert once_it_answers(lambda: client.get_many(["greeting", "none"])) == [b"hello", None]
        once_it_answers(lambda: client.put("more", b"1"))
        assert once_it_answers(lambda: client.get_many(["more"])) == [b"1"]


def test_a_server_that_takes_nothing_holds_nobody_who_puts(server: TorchServer) -> None:
    with closing(once_it_answers(lambda: TcpClient(HOME, server.port, timeout_s=SHORT_S))) as client:
        server.stop()
        with pytest.raises(StoreSilent, match="does not answer"):
            put_for_ever(client, bytes(1 << 20))
        server.go_on()
        once_it_answers(lambda: client.put("light", b"1"))
        assert once_it_answers(lambda: client.get_many(["light", "greeting"])) == [b"1", b"hello"]


def test_a_server_that_dies_is_said_by_every_operation(server: TorchServer, client: TcpClient) -> None:
    gone = f"^the store at tcp://{HOME}:{server.port} does not answer: ."
    with closing(patient(server.port)) as writer:
        server.kill()
        with pytest.raises(StoreUnavailable, match=gone):
            put_for_ever(writer, b"v")
        with pytest.raises(StoreUnavailable, match=f"{gone}.*refused"):
            writer.put("k", b"v")
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=f"{gone}.*refused"):
            client.get_many(["greeting"])


def test_another_server_at_the_same_address_is_taken_up(servers: Farm) -> None:
    first, second = servers.serve("libuv"), servers.serve("plain")
    with closing(Gate(first.port)) as gate, closing(patient(gate.port)) as client:
        client.put("first", b"1")
        assert client.get_many(["first", "greeting"]) == [b"1", b"hello"]
        gate.lead_to(second.port)
        assert client.get_many(["first", "greeting"]) == [None, b"hello"]


def test_it_leaves_no_descriptor_and_starts_no_thread(server: TorchServer) -> None:
    me = psutil.Process()
    before = me.num_fds(), me.num_threads()
    clients = [patient(server.port) for _ in range(3)]
    assert (me.num_fds(), me.num_threads()) == (before[0] + 3, before[1])
    for client in clients:
        client.close()
        client.close()
    assert (me.num_fds(), me.num_threads()) == before


def test_a_program_that_lists_its_objects_breaks_no_connection(client: TcpClient) -> None:
    """As those do that look for a leak: what such a list holds lives longer than a function that made it."""
    ended, listed = Event(), list[list[object]]()

    def list_objects() -> None:
        while not ended.is_set():
            listed[:] = [gc.get_objects()]

    lister = Thread(target=list_objects)
    lister.start()
    try:
        value = b"v" * 400_000
        for _ in range(10):
            client.put("heavy", value)
            assert client.get_many(["heavy"]) == [value]
    finally:
        ended.set()
        lister.join()


def test_a_forked_child_that_closes_what_it_inherited_does_no_harm(client: TcpClient) -> None:
    client.put("before", b"1")
    if (child := os.fork()) == 0:
        client.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert client.get_many(["before", "greeting"]) == [b"1", b"hello"]


def test_nobody_listens() -> None:
    with socket.socket() as held:  # bound, so that nobody else takes the port
        held.bind((HOME, 0))
        assert refused(held.getsockname()[1]).startswith("no store at")
    for host in ("no-such-host.invalid", "a..b", "x" * 300):
        with pytest.raises(StoreUnavailable, match=f"^no store at {host[:40]}.*:29480: ."):
            TcpClient(host, 29480)


def answer_to(visitor: Visitor, *answers: bytes) -> None:
    """Answer each question with the next of these, and then nothing more."""
    for answer in answers:
        visitor.recv(1 << 16)
        visitor.sendall(answer)
    visitor.recv(1 << 16)


@pytest.mark.parametrize("size", [1 << 63, (1 << 64) - 1, 4_000_000_000, 33 << 20])
def test_a_length_beyond_all_frames_is_refused_before_it_is_read(size: int) -> None:
    with impostor(lambda visitor: answer_to(visitor, READY, COUNT.pack(size))) as port:
        assert "holds far more data for this run than frames need" in refused(port)


def test_values_that_trickle_hold_nobody() -> None:
    def trickle(visitor: Visitor) -> None:
        for answer in (READY, COUNT.pack(1 << 20)):
            visitor.recv(1 << 16)
            visitor.sendall(answer)
        while True:
            visitor.sendall(b"x")
            time.sleep(0.01)

    with impostor(trickle) as port:
        assert refused(port, SHORT_S) == f"the store at tcp://{HOME}:{port} does not answer"


def test_long_values_without_end_hold_nobody() -> None:
    def pour(visitor: Visitor) -> None:
        answer_to(visitor, READY, COUNT.pack(30 << 20) + bytes(1 << 20))

    with impostor(pour) as port:
        assert refused(port, SHORT_S) == f"the store at tcp://{HOME}:{port} does not answer"


def test_fewer_values_than_were_asked_for_are_waited_for_in_vain() -> None:
    with impostor(lambda visitor: answer_to(visitor, READY, COUNT.pack(1) + b"x")) as port:
        assert refused(port, SHORT_S) == f"the store at tcp://{HOME}:{port} does not answer"


def test_more_values_than_were_asked_for_are_nobodys() -> None:
    value = COUNT.pack(1) + b"x"
    with (
        impostor(lambda visitor: answer_to(visitor, READY, value * 3)) as port,
        closing(patient(port)) as client,
    ):
        for _ in range(3):
            assert client.get_many(["a", "b"]) == [b"x", b"x"]


@pytest.mark.parametrize("answers", [(), (READY,), (READY, b"\x05"), (READY, COUNT.pack(9) + b"early")])
def test_a_connection_that_ends_early_is_said(answers: tuple[bytes, ...]) -> None:
    def hang_up(visitor: Visitor) -> None:
        for answer in answers:
            visitor.recv(1 << 16)
            visitor.sendall(answer)
        if len(answers) < 2:  # else the second question has been read, and is answered in part
            visitor.recv(1 << 16)

    with impostor(hang_up) as port, pytest.raises(StoreUnavailable) as caught, closing(patient(port)) as client:
        client.get_many(["a", "b"])
    assert not isinstance(caught.value, StoreSilent)


def test_noise_in_place_of_an_answer_is_quoted() -> None:
    with impostor(lambda visitor: answer_to(visitor, b"\x1b[2J\xff")) as port:
        assert refused(port).endswith(r"it says '\x1b' where a key was asked for")


@pytest.mark.parametrize("greets", [b"SSH-2.0-OpenSSH_9.6\r\n", b"dmonx", b"dmo\n", b"\0"])
def test_another_kind_of_server_is_quoted(greets: bytes) -> None:
    with impostor(lambda _: None, greets=greets) as port:
        what = f"it says {greets.strip().decode('latin-1')!a}"
        assert refused(port) == f"{HOME}:{port} answers, but not as a ddpmon store (torch 2.6 to 2.15): {what}"


def test_one_that_closes_connections_at_once_may_be_full() -> None:
    with impostor(lambda _: None, greets=b"") as port:
        said = f"the process at {HOME}:{port} closes connections at once: it may be full, or no ddpmon store"
        assert refused(port) == said


def test_a_store_that_was_met_and_closes_connections_is_a_store_still() -> None:
    let = [True]

    def admit(visitor: Visitor) -> None:
        with visitor:
            visitor.recv(100)
            visitor.sendall(KNOCK if let[0] else b"")
            let[0] = False

    with (
        visited(admit) as port,
        closing(patient(port)) as client,
        pytest.raises(StoreUnavailable, match=f"^the store at tcp://{HOME}:{port} does not answer: ."),
    ):
        client.get_many(["a"])


def test_a_web_server_is_no_store() -> None:
    def serve(visitor: Visitor) -> None:
        visitor.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with impostor(serve, greets=b"") as port:
        assert "it says 'HTTP/1.1 400 Bad Request'" in refused(port)


@needs_redis
def test_a_redis_server_is_no_store(tmp_path: Path) -> None:
    with redis_server(tmp_path) as redis:
        assert refused(redis.port, SHORT_S) == (
            f"the process at {HOME}:{redis.port} does not answer: a store that is stopped or disconnected, or no store "
            f"of torch 2.6 to 2.15"
        )
