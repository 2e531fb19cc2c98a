"""The embedded store: what is put is read, and whatever goes wrong is one sentence."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import psutil
import pytest

pytest.importorskip("torch")
from ddpmon.store.base import StoreUnavailable
from ddpmon.store.tcp import FIRST_PORT, TcpStore, bind, serve
from tests.made_store import delete_keys
from tests.store.half_open import Gate
from tests.store.store_server import server

HOME = "127.0.0.1"


@pytest.fixture(scope="module")
def hosted() -> tuple[TcpStore, int]:
    return serve(HOME)


@pytest.fixture
def store(hosted: tuple[TcpStore, int]) -> Iterator[TcpStore]:
    client = TcpStore(HOME, hosted[1])
    yield client
    client.close()


def unavailable(host: str, port: int) -> str:
    with pytest.raises(StoreUnavailable) as caught:
        TcpStore(host, port, timeout_s=1.0).get_many(["k"])
    assert len(str(caught.value).splitlines()) == 1
    assert f"{host}:{port}" in str(caught.value)
    return str(caught.value)


def hold(writer: TcpStore, key: str, value: bytes) -> None:
    """Put and wait until the server has it: a put alone is fire and forget, and another client may be served first."""
    writer.put(key, value)
    assert writer.get_many([key]) == [value]


def test_what_one_puts_another_reads(hosted: tuple[TcpStore, int], store: TcpStore) -> None:
    hold(hosted[0], "both/ways", bytes(range(256)))
    assert store.get_many(["both/ways"]) == [bytes(range(256))]
    hold(store, "both/ways", b"changed")
    assert hosted[0].get_many(["both/ways"]) == [b"changed"]


def test_missing_and_empty_are_none(store: TcpStore) -> None:
    store.put("empty", b"")
    store.put("full", b"x")
    assert store.get_many(["missing", "empty", "full", "missing too"]) == [None, None, b"x", None]
    assert store.get_many([]) == []


def test_a_key_that_was_missing_is_seen_when_it_comes(hosted: tuple[TcpStore, int], store: TcpStore) -> None:
    assert store.get_many(["later"]) == [None]
    hold(hosted[0], "later", b"now")
    assert store.get_many(["later"]) == [b"now"]


def test_thousands_of_keys_come_back_in_order(store: TcpStore) -> None:
    keys = [f"many/{number}" for number in range(2500)]
    for key in keys:
        store.put(key, key.encode())
    assert store.get_many([*keys, "none"]) == [*(key.encode() for key in keys), None]


def test_a_large_value_passes_whole(store: TcpStore) -> None:
    value = os.urandom(1 << 20)
    store.put("large", value)
    assert store.get_many(["large"]) == [value]


def test_a_port_that_is_taken_is_passed_over() -> None:
    with closing(bind(HOME)) as first, closing(bind(HOME)) as second:
        ports = [first.getsockname()[1], second.getsockname()[1]]
        assert ports == sorted(ports)
        assert FIRST_PORT <= ports[0] < ports[1]
        taken = ports[1]
        third, port = serve(HOME, taken)
        third.close()
        assert port > taken


def test_the_last_ports_taken_any_free_one_will_do() -> None:
    with closing(bind(HOME, 65535)) as last, closing(bind(HOME, 65535)) as other:
        assert 0 < other.getsockname()[1] != last.getsockname()[1]


def test_an_address_of_another_machine_cannot_be_bound() -> None:
    with pytest.raises(OSError, match=r"."):
        bind("192.0.2.1")


def test_nobody_listens() -> None:
    with socket.socket() as held:  # bound, so that nobody else takes the port
        held.bind((HOME, 0))
        assert unavailable(HOME, held.getsockname()[1]).startswith("no store at")


def test_a_host_that_does_not_exist() -> None:
    assert unavailable("no-such-host.invalid", 29480).startswith("no store at")


@contextmanager
def hanging_up() -> Iterator[int]:
    def accept() -> None:
        while True:
            try:
                listener.accept()[0].close()
            except OSError:
                return

    with closing(bind(HOME)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def test_something_that_hangs_up() -> None:
    with hanging_up() as port:
        unavailable(HOME, port)


def test_garbage_does_not_bring_the_server_down(hosted: tuple[TcpStore, int], store: TcpStore) -> None:
    hold(store, "solid", b"rock")
    for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 4096, b"\0" * 4096, b"", b"\x05" + b"\xff" * 8):
        with socket.create_connection((HOME, hosted[1])) as visitor:
            visitor.sendall(garbage)
    assert store.get_many(["solid"]) == [b"rock"]
    assert TcpStore(HOME, hosted[1]).get_many(["solid"]) == [b"rock"]


def test_a_server_that_dies_is_said_by_every_operation() -> None:
    with server() as host:
        client = TcpStore(HOME, host.port)
        assert client.get_many(["greeting"]) == [b"hello"]
        host.kill()
        with pytest.raises(StoreUnavailable, match=f"the store at {HOME}:{host.port} does not answer: ."):
            client.get_many(["greeting"])
        with pytest.raises(StoreUnavailable, match=f"the store at {HOME}:{host.port} has gone: ."):
            put_until_noticed(client)
        client.close()


def put_until_noticed(client: TcpStore) -> None:
    """`put` is fire and forget: the first one after the death may still go into the socket."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        client.put("k", b"v")


def test_a_forked_child_does_not_keep_the_port_of_a_server_that_has_died() -> None:
    with server("fork") as host:
        child = psutil.Process(host.child)
        try:
            TcpStore(HOME, host.port).close()
            host.kill()
            assert child.is_running()
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((HOME, host.port))
        finally:
            child.kill()


def test_a_key_that_was_deleted_is_absent_and_the_others_are_read(hosted: tuple[TcpStore, int]) -> None:
    keys = [f"doomed/{number}" for number in range(40)]
    client = TcpStore(HOME, hosted[1], timeout_s=0.5)
    for key in keys:
        hosted[0].put(key, key.encode())
    hold(hosted[0], keys[-1], b"last")
    assert None not in client.get_many(keys)
    delete_keys(hosted[1], keys[7], keys[-1])
    left = [key.encode() for key in keys[:-1]]
    assert client.get_many(keys) == [*left[:7], None, *left[8:], None]
    hold(hosted[0], keys[7], b"again")
    assert client.get_many(keys) == [*left[:7], b"again", *left[8:], None]
    client.close()


def test_a_missing_key_among_thousands_takes_few_questions(hosted: tuple[TcpStore, int]) -> None:
    keys = [f"sparse/{number}" for number in range(2000)]
    for key in keys[:-1]:
        hosted[0].put(key, b"1")
    hold(hosted[0], keys[0], b"1")
    with closing(Gate(hosted[1])) as gate:
        client = TcpStore(HOME, gate.port)
        opened = gate.answers
        assert client.get_many(keys) == [b"1"] * 1999 + [None]
        assert gate.answers - opened < 500
        client.close()
