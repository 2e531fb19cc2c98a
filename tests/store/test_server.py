"""The store server: what it answers, and what nobody can make it hold, whatever is sent to it."""

from __future__ import annotations

import contextlib
import random
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta

import pytest

from ddpmon.schema import MAX_FRAME_BYTES
from ddpmon.store.server import FIRST_PORT, bind
from ddpmon.store.server_bounds import KEY_BYTES, LIST_KEYS, VALUE_BYTES, WAITED_KEYS, Bounds
from ddpmon.store.signed import Signer
from ddpmon.store.tcp_wire import (
    ADD,
    CHECK,
    COUNT,
    DELETE_KEY,
    END_KEY,
    GET,
    GETNUMKEYS,
    INT64,
    MULTI_GET,
    NOT_READY,
    PING,
    READY,
    SET,
    VALIDATE,
    WAIT,
    packed,
    packed_key,
    query_of_keys,
)
from tests.store.served import HOME, SECRET, begin, end
from tests.store.store_clients import PATIENCE_S, Client, closed, names, set_query

LARGEST = 1 << 20


def bounds(descriptors: int = 4096, stored: int = 4 << 20, held: int = 4 << 20) -> Bounds:
    small = Bounds(1, descriptors)
    small.stored_bytes, small.held_bytes = stored, held
    return small


@pytest.fixture
def port() -> Iterator[int]:
    """A server with 24 connections, 4 MiB of values, and 4 MiB of what it holds for connections."""
    found = begin(bounds=bounds(descriptors=40))
    yield found
    end(found)


@pytest.fixture
def client(port: int) -> Client:
    return Client(port)


def test_torchs_own_client_is_served(port: int) -> None:
    torch = pytest.importorskip("torch.distributed")
    for libuv in (True, False):
        store, other = (
            torch.TCPStore(HOME, port, None, False, timedelta(seconds=60), False, use_libuv=libuv) for _ in range(2)
        )
        store.set("ddpmon/a", "1")
        assert (store.get("ddpmon/a"), other.get("ddpmon/a")) == (b"1", b"1")
        assert (store.check(["ddpmon/a"]), store.check(["ddpmon/a", "ddpmon/b"])) == (True, False)
        assert (store.add("ddpmon/n", 5), other.add("ddpmon/n", -7), store.get("ddpmon/n")) == (5, -2, b"-2")
        assert (store.num_keys(), store.delete_key("ddpmon/n"), store.delete_key("ddpmon/n")) == (2, True, False)
        assert store.multi_get(["ddpmon/a"] * 3) == [b"1"] * 3
        threading.Timer(0.2, other.set, ("ddpmon/later", "now")).start()
        assert store.get("ddpmon/later") == b"now"
        with pytest.raises(torch.DistStoreError):
            store.wait(["ddpmon/never"], timedelta(seconds=0.1))
        assert store.get("ddpmon/a") == b"1", "it has taken back its wait"
        assert store.delete_key("ddpmon/later")


def test_queries_may_come_in_any_pieces(client: Client) -> None:
    chance = random.Random(7)
    keys, large = names(50), chance.randbytes(LARGEST)
    said = [set_query(key, key.encode()) for key in keys] + [set_query("ddpmon/large", large)]
    said += [query_of_keys(CHECK, keys), query_of_keys(CHECK, [*keys, "ddpmon/none"])]
    said += [query_of_keys(MULTI_GET, keys), bytes((PING,)) + b"ping", bytes((GETNUMKEYS,))]
    heard = READY + NOT_READY + b"".join(packed(key.encode()) for key in keys) + b"ping" + INT64.pack(51)
    stream = b"".join(said)
    for size in (1, 3, 17, 4096, len(stream)):
        small = (
            stream if size > 100 else stream.replace(set_query("ddpmon/large", large), set_query("ddpmon/large", b""))
        )
        for start in range(0, len(small), size):
            client.say(small[start : start + size])
        assert client.hear(len(heard)) == heard
    assert client.get("ddpmon/large") == [large]


def test_what_a_store_takes_grows_with_the_run_and_has_an_end() -> None:
    usual, huge = Bounds(4096, 1 << 17), Bounds(131_072, 1 << 17)
    assert (usual.connections, usual.stored_bytes) == (17_408, 544 << 20)
    assert (huge.connections, huge.stored_bytes) == (20_000, 1 << 30)


def test_who_sends_queries_without_end_does_not_keep_the_others_waiting(port: int, client: Client) -> None:
    greedy = Client(port)
    drain = threading.Thread(target=greedy.hear, args=(8 * 100_000,), daemon=True)
    drain.start()
    greedy.say(bytes((GETNUMKEYS,)) * 100_000)
    client.put("ddpmon/a", b"1")
    assert client.get("ddpmon/a") == [b"1"]
    drain.join(PATIENCE_S)
    assert not drain.is_alive(), "every query is answered in the end"


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff" * 100,
        struct.pack("<BI", VALIDATE, 1234),
        set_query("ddpmon/a", b"before a greeting"),
        bytes((PING,)) + b"ping",
    ],
)
def test_who_does_not_greet_like_a_client_is_closed(port: int, said: bytes) -> None:
    client = Client(port, greets=False)
    client.say(said)
    assert client.is_closed()


@pytest.mark.parametrize(
    "said",
    [
        bytes((200,)),
        set_query("torch/a", b"not ddpmon's"),
        bytes((SET,)) + packed(b"ddpmon/without a slash") + packed(b"1"),
        bytes((SET,)) + COUNT.pack(KEY_BYTES + 1),
        bytes((SET,)) + packed_key("ddpmon/a") + COUNT.pack(VALUE_BYTES + 1),
        bytes((SET,)) + packed_key("ddpmon/a") + COUNT.pack((1 << 64) - 1),
        bytes((MULTI_GET,)) + COUNT.pack(LIST_KEYS + 1),
        bytes((CHECK,)) + COUNT.pack(1 << 63) + COUNT.pack(1 << 63),
        query_of_keys(MULTI_GET, ["ddpmon/none"]),
        bytes((GET,)) + packed_key("ddpmon/none"),
        set_query("ddpmon/n", b"no number") + bytes((ADD,)) + packed_key("ddpmon/n") + INT64.pack(1),
        bytes((ADD,)) + packed_key("torch/n") + INT64.pack(1),
        query_of_keys(WAIT, names(WAITED_KEYS + 1)),
        query_of_keys(WAIT, names(1)) + query_of_keys(WAIT, names(1)),
        bytes((SET,)) + packed(END_KEY) + packed(b""),
        bytes((SET,)) + packed(END_KEY) + packed(SECRET[:-1]),
        bytes((SET,)) + packed(END_KEY) + packed(SECRET[:-1] + b"x"),
    ],
)
def test_nonsense_closes_its_connection_and_no_other(
    port: int, client: Client, said: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    assert closed(port, said)
    client.put("ddpmon/solid", b"rock")
    assert client.get("ddpmon/solid") == [b"rock"]
    assert capfd.readouterr() == ("", "")


def test_noise_closes_its_connection_and_no_other(port: int, client: Client) -> None:
    chance = random.Random(11)
    for _ in range(300):
        noisy = Client(port, greets=chance.random() < 0.8)
        begun = chance.choice((b"", bytes((chance.randrange(14),))))
        with contextlib.suppress(ConnectionError):
            noisy.say(begun + chance.randbytes(chance.choice((1, 9, 500))))
        noisy.close()
    client.put("ddpmon/solid", b"rock")
    assert client.get("ddpmon/solid") == [b"rock"]


def test_the_largest_frame_fits_with_its_signature(client: Client) -> None:
    assert len(Signer("secret").seal("key", bytes(MAX_FRAME_BYTES))) <= VALUE_BYTES
    client.put("ddpmon/a", bytes(VALUE_BYTES))
    assert client.get("ddpmon/a") == [bytes(VALUE_BYTES)]


def test_all_values_together_are_bounded_and_those_that_are_there_may_change(port: int, client: Client) -> None:
    client.put("ddpmon/frame", b"x" * 1000)
    assert client.count() == 1
    assert closed(port, *(set_query(key, bytes(LARGEST)) for key in names(10)))
    assert client.count() == 4, "three of them fit into 4 MiB with what they cost"
    client.put("ddpmon/frame", b"y" * 1000)
    assert client.get("ddpmon/frame") == [b"y" * 1000]
    client.say(bytes((DELETE_KEY,)) + packed_key(names(1)[0]))
    assert client.hear(8) == INT64.pack(1)
    client.put("ddpmon/frame", bytes(LARGEST))
    assert client.get("ddpmon/frame") == [bytes(LARGEST)]


def test_empty_values_are_bounded_too(port: int, client: Client) -> None:
    assert closed(port, *(set_query(key, b"") for key in names(20_000)))
    assert client.count() < 4 * LARGEST / 200


def test_unread_answers_are_bounded_and_those_who_read_are_served(port: int, client: Client) -> None:
    client.put("ddpmon/large", bytes(LARGEST))
    assert client.count() == 1
    deaf = [Client(port) for _ in range(20)]
    for each in deaf:
        each.say(query_of_keys(MULTI_GET, ["ddpmon/large"] * 1000))
    client.put("ddpmon/small", b"1")
    assert client.get("ddpmon/small", "ddpmon/large") == [b"1", bytes(LARGEST)]
    assert sum(gives_up(each) for each in deaf) >= 16, "4 MiB are 4 answers; those that have waited longest are closed"


def test_keys_that_are_waited_for_are_bounded_and_nobody_else_is_closed_for_them() -> None:
    port = begin(bounds=bounds(descriptors=40, held=200_000))
    friend = Client(port)
    friend.say(set_query("ddpmon/begun", b"1")[:-1])
    waiters = [Client(port) for _ in range(20)]
    for number, each in enumerate(waiters):
        each.say(query_of_keys(WAIT, [f"{number}/{place}/{'x' * 900}" for place in range(WAITED_KEYS)]))
    assert waiters[0].is_closed()
    friend.say(b"1")
    assert friend.get("ddpmon/begun") == [b"1"]
    end(port)


def gives_up(deaf: Client) -> bool:
    """Whether the server has closed it after less than it has asked for."""
    total = 0
    deaf.door.settimeout(0.5)
    try:
        while (size := len(deaf.door.recv(1 << 20))) > 0:
            total += size
            if total > 20 * LARGEST:
                return False
    except OSError:
        pass
    return total < 20 * LARGEST


def test_unfinished_queries_are_bounded(port: int, client: Client) -> None:
    begun = [Client(port) for _ in range(20)]
    for each in begun:
        with contextlib.suppress(ConnectionError):
            each.say(set_query("ddpmon/large", bytes(LARGEST))[:-1])
    client.put("ddpmon/a", b"1")
    assert client.get("ddpmon/a") == [b"1"]
    assert sum(each.is_closed() for each in begun[:16]) == 16


@pytest.mark.parametrize("said", [None, b"", set_query("ddpmon/a", b"1")[:-1], query_of_keys(CHECK, names(9))[:-1]])
def test_who_owes_something_for_too_long_is_closed(
    monkeypatch: pytest.MonkeyPatch, port: int, said: bytes | None
) -> None:
    monkeypatch.setattr("ddpmon.store.server.OWING_S", 0.1)
    slow = Client(port, greets=said is not None)
    if said == b"":
        time.sleep(2.5)  # two looks for those who owe something
        assert slow.count() == 0, "who has greeted and asks nothing owes nothing"
        return
    slow.say(said or b"")
    assert slow.is_closed()


def test_who_does_not_take_an_answer_for_too_long_is_closed(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    client, deaf = Client(port), Client(port)
    client.put("ddpmon/large", bytes(LARGEST))
    assert client.count() == 1
    monkeypatch.setattr("ddpmon.store.server.OWING_S", 0.1)
    deaf.say(query_of_keys(MULTI_GET, ["ddpmon/large"] * 1000))
    time.sleep(2.5)  # two looks for those who owe something
    assert gives_up(deaf)
    assert client.count() == 1


def test_a_newcomer_is_closed_while_there_is_no_room_and_gets_that_of_an_idle_one_later(
    monkeypatch: pytest.MonkeyPatch, port: int
) -> None:
    here = [Client(port) for _ in range(24)]
    assert Client(port, greets=False).is_closed()
    assert [each.count() for each in here] == [0] * 24
    monkeypatch.setattr("ddpmon.store.server.IDLE_S", 0.5)
    deadline = time.monotonic() + PATIENCE_S
    while True:  # the first one asks on and on, the others are idle
        assert here[0].count() == 0
        newcomer = Client(port, greets=False)
        newcomer.door.settimeout(0.05)
        try:
            if newcomer.door.recv(1) == b"":
                assert time.monotonic() < deadline
        except TimeoutError:
            break
    assert here[1].is_closed()
    assert here[0].count() == 0


def test_a_connection_that_ends_leaves_room(port: int, client: Client) -> None:
    for _ in range(100):
        Client(port).close()
        client.count()
    assert Client(port).count() == 0


def test_the_secret_ends_it(port: int, client: Client) -> None:
    end(port)
    assert client.is_closed()


def test_who_is_connected_at_the_end_can_read_once_more_and_the_port_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddpmon.store.server._HAS_READ_S", 0.0)
    port = begin(first_port=0, bounds=bounds(), last_read_s=PATIENCE_S)
    watcher, late = Client(port), Client(port)
    watcher.count()
    end(port)
    assert watcher.count() == 0
    assert watcher.is_closed(), "it has read"
    with closing(bind(HOME, port)) as next_run:
        assert next_run.getsockname()[1] == port
    assert late.count() == 0, "it reads less often"


def test_a_port_that_is_taken_is_passed_over() -> None:
    with closing(bind(HOME)) as first, closing(bind(HOME)) as second:
        ports = [first.getsockname()[1], second.getsockname()[1]]
        assert ports == sorted(ports)
        assert FIRST_PORT <= ports[0] < ports[1]


def test_the_last_ports_taken_any_free_one_will_do() -> None:
    with closing(bind(HOME, 65535)) as last, closing(bind(HOME, 65535)) as other:
        assert 0 < other.getsockname()[1] != last.getsockname()[1]


def test_an_address_of_another_machine_cannot_be_bound() -> None:
    with pytest.raises(OSError, match=r"."):
        bind("192.0.2.1")
