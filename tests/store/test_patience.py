"""A server that listens and says nothing, or no longer: the watcher says so, and leaves little behind."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psutil
import pytest

pytest.importorskip("torch")
from ddpmon.store.base import StoreSilent, StoreUnavailable
from ddpmon.store.connect import Target, connect
from ddpmon.watcher import link
from ddpmon.watcher.observer import Observer
from tests.commands.served_runs import host_with_runs
from tests.store.half_open import HOME, Gate, only_polite

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
        connect_in_vain(port)  # torch is loaded now
        threads, files = ME.num_threads(), ME.num_fds()
        for _ in range(5):
            assert connect_in_vain(port).startswith(f"the process at {HOME}:{port} does not answer: a store")
        assert holds(lambda: ME.num_threads() <= threads and ME.num_fds() <= files)


def test_a_server_that_falls_silent_while_it_is_opened_is_not_opened_without_end() -> None:
    with only_polite() as port:
        connect_in_vain(port)
        threads = ME.num_threads()
        said = {connect_in_vain(port)}

        def is_full() -> bool:
            said.add(answer := connect_in_vain(port))
            return FULL in answer

        assert holds(is_full)
        assert f"the store at tcp://{HOME}:{port} does not answer" in said
        assert FULL in connect_in_vain(port)
        assert ME.num_threads() <= threads + 8
    assert holds(lambda: ME.num_threads() < threads), "the threads end with their connections"
    with pytest.raises(StoreUnavailable, match="no store at"):
        connect(Target(HOME, port), timeout_s=0.4)


def test_a_connection_that_was_lost_without_a_word_is_replaced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(link, "_HALF_OPEN_S", 0.0)
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
