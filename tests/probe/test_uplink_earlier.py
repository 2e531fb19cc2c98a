"""What rank 0 frees of earlier runs in the training's own store: whoever can write there can name any, and many."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

pytest.importorskip("torch")
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from ddpmon.codec import encode
from ddpmon.parts import MAX_RANKS
from ddpmon.store.base import RUNS_KEY, Store, rank_key, run_key
from ddpmon.store.connect import list_runs
from ddpmon.store.signed import Signer, signed
from ddpmon.store.tcp_client import TcpClient
from tests.made_frames import run_info
from tests.probe.lone_uplink import lone_uplink
from tests.probe.probe_ranks import private_runs


@pytest.fixture
def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TCPStore]:
    """The server of a training's own store, through which frames are to go."""
    monkeypatch.setenv("DDPMON_STORE", "rendezvous")
    monkeypatch.delenv("DDPMON_TOKEN", raising=False)
    with private_runs(tmp_path):
        yield TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False, timeout=timedelta(seconds=60))


@pytest.fixture
def store(training: TCPStore) -> Iterator[TcpClient]:
    """That store, as somebody else reaches it."""
    with closing(TcpClient("127.0.0.1", training.port)) as found:
        yield found


def write(store: Store, run: str, ranks: int = 1) -> None:
    """Publish an earlier run, of which rank 0 has said something."""
    store.put(rank_key(run, 0), b"said")
    store.put(run_key(run), encode(run_info(ranks, run_id=run)))


def begun(training: TCPStore, store: TcpClient) -> str:
    """Let a run begin there; its id, once all that it has put has arrived."""
    with closing(lone_uplink("next", training)) as uplink:
        assert uplink.connect()
        deadline = time.monotonic() + 60
        while list_runs(store)[-1:] != [uplink.run]:
            assert time.monotonic() < deadline
    return uplink.run


def kept(store: TcpClient, runs: Sequence[str]) -> list[str]:
    """Those of the runs that still hold what was said."""
    values = store.get_many([rank_key(run, 0) for run in runs])
    return [run for run, value in zip(runs, values, strict=True) if value is not None]


def test_of_very_many_earlier_runs_only_the_newest_are_looked_at(training: TCPStore, store: TcpClient) -> None:
    runs = [f"run-{number}" for number in range(300)]
    for run in runs:
        write(store, run)
    store.put(RUNS_KEY, "\n".join(runs).encode())
    assert kept(store, runs) == runs
    own = begun(training, store)
    assert kept(store, runs) == runs[:-64]
    assert list_runs(store) == [*runs[-63:], own]


def test_a_list_that_no_store_of_ours_would_hold_is_not_believed(training: TCPStore, store: TcpClient) -> None:
    runs = ["run-0", "x" * 300, "run/0", "\x1b[2J"]
    for run in runs:
        write(store, run)
    store.put(RUNS_KEY, "\n".join(runs).encode())
    own = begun(training, store)
    (value,) = store.get_many([RUNS_KEY])
    assert value == f"run-0\n{own}".encode(), "the others are nobody's ids"
    store.put(RUNS_KEY, b"run\n" * (1 << 19))
    assert list_runs(store) == []
    own = begun(training, store)
    assert list_runs(store) == [own]


def test_a_run_that_is_said_to_be_huge_costs_no_more_than_a_large_one(training: TCPStore, store: TcpClient) -> None:
    for run in ("huge", "huger"):
        write(store, run, MAX_RANKS)
    store.put(RUNS_KEY, b"huge\nhuger")
    assert list_runs(store) == ["huge", "huger"]
    begun(training, store)
    assert kept(store, ["huge", "huger"]) == ["huge"]
    assert training.num_keys() < 100_000


def test_with_a_token_only_runs_that_are_signed_are_freed(
    training: TCPStore, store: TcpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DDPMON_TOKEN", "a secret")
    write(signed(store, Signer("a secret")), "ours")
    write(signed(store, Signer("another")), "forged")
    write(store, "unsigned")
    store.put(RUNS_KEY, b"ours\nforged\nunsigned")
    assert kept(store, ["ours", "forged", "unsigned"]) == ["ours", "forged", "unsigned"]
    begun(training, store)
    assert kept(store, ["ours", "forged", "unsigned"]) == ["forged", "unsigned"]
