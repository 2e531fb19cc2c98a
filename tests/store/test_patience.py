"""A server that listens and says nothing, or no longer: the watcher says so, and leaves little behind."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import psutil
import pytest

pytest.importorskip("torch")
from ddpmon.store.base import StoreSilent
from ddpmon.store.connect import Target, connect
from ddpmon.store.patience import PatientStore
from ddpmon.watcher.observer import Observer
from tests.commands.served_runs import host_with_runs
from tests.store.half_open import HOME, Gate

ME = psutil.Process()
FULL = "8 connections wait for its answer, and no other is opened"


def connect_in_vain(port: int) -> str:
    with pytest.raises(StoreSilent) as caught:
        connect(Target(HOME, port), timeout_s=0.4)
    return str(caught.value)


def holds(what: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 60
    while not what():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_a_deaf_port_is_told_from_none_and_leaves_no_thread_and_no_socket() -> None:
    with socket.create_server((HOME, 0)) as deaf:
        port = deaf.getsockname()[1]
        threads, files = ME.num_threads(), ME.num_fds()
        for _ in range(5):
            assert connect_in_vain(port).startswith(f"the process at {HOME}:{port} does not answer: a store")
        assert holds(lambda: ME.num_threads() <= threads and ME.num_fds() <= files)


class Stuck:
    """A store that answers only when it is let."""

    def __init__(self) -> None:
        self.let = threading.Event()
        self.seen: list[str] = []

    def put(self, key: str, value: bytes) -> None:
        self.let.wait(60)
        self.seen.append(f"{key}={value.decode()}")

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        return [None for _ in keys]

    def close(self) -> None:
        self.let.set()


def test_what_was_late_is_finished_once_and_before_anything_else() -> None:
    inner = Stuck()
    store = PatientStore(lambda: inner, "there", patience_s=0.05)
    for value in (b"1", b"2", b"3"):
        with pytest.raises(StoreSilent, match=r"^the store at there does not answer$"):
            store.put("k", value)
    inner.let.set()
    assert holds(lambda: bool(inner.seen))
    assert once_it_answers(store) == [None]
    assert inner.seen == ["k=1"]
    store.close()


def once_it_answers(store: PatientStore) -> list[bytes | None]:
    """A read, on a machine that may be busy."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return store.get_many(["k"])
        except StoreSilent:
            assert time.monotonic() < deadline


def test_a_store_that_never_opens_is_not_opened_without_end() -> None:
    inner, threads = Stuck(), ME.num_threads()

    def opener() -> Stuck:
        inner.let.wait(60)
        return inner

    def sentence() -> str:
        with pytest.raises(StoreSilent) as caught:
            PatientStore(opener, "nowhere", patience_s=0.01)
        return str(caught.value)

    assert sentence() == "the store at nowhere does not answer"
    said = {sentence() for _ in range(20)}
    assert len([each for each in said if FULL in each]) == 1
    assert ME.num_threads() <= threads + 8
    inner.let.set()
    assert holds(lambda: ME.num_threads() <= threads), "the threads end with what they wait for"
    PatientStore(opener, "nowhere", patience_s=60.0).close()


def test_a_connection_that_was_lost_without_a_word_is_replaced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "here"))
    with host_with_runs(tmp_path / "there", "vision") as urls:
        gate = Gate(int(urls[0].rsplit(":", 1)[1]))
        with closing(gate), closing(Observer(f"tcp://{HOME}:{gate.port}")) as observer:
            assert holds(lambda: observer.tick().link.state == "live")
            gate.lose()
            silent = observer.tick()
            assert (silent.link.state, silent.run is not None) == ("silent", True)
            assert "ddpmon keeps trying" in silent.link.message
            assert holds(lambda: observer.tick().link.state == "live")
