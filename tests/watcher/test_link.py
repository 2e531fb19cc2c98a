"""The way to a run over links that are slow, or that refuse now and then."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from ddpmon.store.tcp_client import TcpClient
from ddpmon.watcher.observer import Observer
from tests.external_runs import RANKS, MadeRun
from tests.store.half_open import Gate
from tests.store.served import HOME, begin, end, serve


@pytest.fixture
def port() -> Iterator[int]:
    """A store with a run whose ranks have spoken."""
    store, found = serve()
    MadeRun(store).speak()
    yield found
    store.close()


@pytest.mark.parametrize(("path", "questions"), [("", 8), ("/made-run", 6)])
def test_the_first_picture_takes_few_round_trips(port: int, path: str, questions: int) -> None:
    with closing(Gate(port)) as gate, closing(Observer(f"tcp://{HOME}:{gate.port}{path}")) as observer:
        picture = observer.tick()
        assert picture.coverage is not None
        assert picture.coverage.reporting == RANKS
        assert gate.questions <= questions, "the greeting, the run, the histories, the ranks, the hosts"
        assert observer.tick().link.state == "live"


def test_keys_that_are_not_there_after_all_are_asked_for(port: int) -> None:
    with closing(TcpClient(HOME, port, timeout_s=60.0)) as client:
        client.expect("ddpmon/made-run/")
        found = client.get_many(["ddpmon/made-run/rank/0", "ddpmon/made-run/rank/9"])
        assert found[0]
        assert found[1] is None


def test_a_port_that_refuses_once_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    held = socket.socket()
    held.bind((HOME, 0))
    free = held.getsockname()[1]

    def begin_meanwhile(_seconds: float) -> None:
        held.close()
        assert begin(HOME, free) == free

    monkeypatch.setattr("ddpmon.store.tcp_client.sleep", begin_meanwhile)
    TcpClient(HOME, free, timeout_s=60.0).close()
    end(free)
