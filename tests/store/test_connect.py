"""From what a person types to a store that never holds them up."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import TypeVar

import psutil
import pytest

pytest.importorskip("torch")
from ddpmon.store.base import RUNS_KEY, Store, StoreUnavailable, TargetError
from ddpmon.store.connect import Target, connect, list_runs, parse_target
from ddpmon.store.server import bind
from tests.store.served import serve
from tests.store.store_server import own_address, server

HOME = "127.0.0.1"
T = TypeVar("T")


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("tcp://10.0.0.1:29480", Target("10.0.0.1", 29480)),
        ("tcp://node-1.cluster:1", Target("node-1.cluster", 1)),
        ("tcp://[::1]:29480", Target("::1", 29480)),
        ("tcp://h:65535/gpt-20260101-120000-ab12", Target("h", 65535, "gpt-20260101-120000-ab12")),
        ("tcp://h:29480/", Target("h", 29480)),
    ],
)
def test_a_target_is_understood(text: str, target: Target) -> None:
    assert parse_target(text) == target
    assert parse_target(target.url) == Target(target.host, target.port)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("memcached://h:1", "unknown scheme 'memcached'"),
        ("http://h:80/x", "unknown scheme 'http'"),
        ("tcp://", "names no host"),
        ("tcp://:29480", "names no host"),
        ("tcp://h", "names no port"),
        ("tcp://h:", "names no port"),
        ("tcp://h:0", "names no port"),
        ("tcp://h:65536", "is not an address"),
        ("tcp://h:port", "is not an address"),
        ("tcp://h:-1", "is not an address"),
        ("tcp://[::1:29480", "is not an address"),
        ("nowhere", "'nowhere' is not an address: "),
        ("localhost:29480", "lacks its scheme, tcp://localhost:29480: "),
        ("", "'' is not an address: "),
        ("a\0b", "is not an address: "),
        ("x" * 5000, "is not an address: "),
    ],
)
def test_a_target_that_is_not_understood_is_one_sentence_with_the_right_form(text: str, reason: str) -> None:
    with pytest.raises(TargetError, match=reason) as caught:
        parse_target(text)
    assert "tcp://host:port" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_the_runs_of_a_store_newest_last() -> None:
    host, port = serve(HOME)
    with closing(connect(Target(HOME, port))) as store:
        assert list_runs(store) == []
        hold(host, b"first\nsecond\n")
        assert list_runs(store) == ["first", "second"]
        hold(host, b"a\n../b\n--ssh=root@evil.example\n\x1b[2J\n" + b"c" * 257 + b"\n\nlast")
        assert list_runs(store) == ["a", "last"], "what can be no id is left out"
        hold(host, "\n".join(map(str, range(100_000))).encode())
        assert list_runs(store) == [str(number) for number in range(99_000, 100_000)]
        hold(host, b"x" * ((1 << 20) + 1))
        assert list_runs(store) == []
    host.close()


def hold(host: Store, value: bytes) -> None:
    """Put and wait until the server has it: a put alone is fire and forget, and another client may be served first."""
    host.put(RUNS_KEY, value)
    assert host.get_many([RUNS_KEY]) == [value]


def test_nobody_listens_is_said_by_connect() -> None:
    with socket.socket() as held:  # bound, so that nobody else takes the port
        held.bind((HOME, 0))
        port = held.getsockname()[1]
        with pytest.raises(StoreUnavailable, match=f"no store at {HOME}:{port}"):
            connect(Target(HOME, port))


def test_a_listener_that_never_answers_is_said_by_connect() -> None:
    with closing(bind(HOME)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(StoreUnavailable, match=rf"{HOME}:{port}"):
            connect(Target(HOME, port), timeout_s=0.5)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", b"\xff" * 64, b""])
def test_something_that_is_no_store_is_said_by_connect(answer: bytes) -> None:
    with closing(bind(HOME)) as listener:
        threading.Thread(target=reply, args=(listener, answer), daemon=True).start()
        port = listener.getsockname()[1]
        with pytest.raises(StoreUnavailable, match=rf"{HOME}:{port} (does not answer|answers, but|closes connections)"):
            connect(Target(HOME, port), timeout_s=1.0).get_many(["ddpmon/k"])


def reply(listener: socket.socket, answer: bytes) -> None:
    with contextlib.suppress(OSError):
        while True:
            visitor, _ = listener.accept()
            visitor.sendall(answer)
            visitor.shutdown(socket.SHUT_WR)


def test_a_server_that_was_merely_stopped_is_taken_up_again() -> None:
    with server() as host, closing(once_it_answers(lambda: connect(Target(HOME, host.port), timeout_s=0.5))) as store:
        assert once_it_answers(lambda: store.get_many(["ddpmon/greeting"])) == [b"hello"]
        host.signal(signal.SIGSTOP)
        host.wait_until(psutil.STATUS_STOPPED)
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match=f"the store at tcp://{HOME}:{host.port} does not answer"):
                store.get_many(["ddpmon/greeting"])
        host.signal(signal.SIGCONT)
        assert once_it_answers(lambda: store.get_many(["ddpmon/greeting"])) == [b"hello"]
        once_it_answers(lambda: store.put("ddpmon/more", b"1"))
        assert once_it_answers(lambda: store.get_many(["ddpmon/more", "ddpmon/greeting"])) == [b"1", b"hello"]


def once_it_answers(ask: Callable[[], T]) -> T:
    """Ask again and again: a machine that is busy may keep an answer back for longer than the store is waited for."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return ask()
        except StoreUnavailable:
            assert time.monotonic() < deadline


def test_a_server_that_dies_is_said() -> None:
    address = own_address()
    with server(address) as host, closing(connect(Target(address, host.port))) as store:
        host.kill()
        with pytest.raises(StoreUnavailable, match="does not answer: "):
            store.get_many(["ddpmon/greeting"])
