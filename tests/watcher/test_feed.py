"""What a watcher asks a store for at once: never more than one answer may bring."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pytest

from ddpmon.codec import encode
from ddpmon.schema import MAX_FRAME_BYTES, StepColumns
from ddpmon.store.base import history_key, host_key, rank_key
from ddpmon.store.server_bounds import Bounds
from ddpmon.store.signed import CheckedStore, Checks
from ddpmon.store.tcp_client import TcpClient
from ddpmon.watcher.feed import Feed
from tests.made_frames import RUN_ID, columns, rank_frame, run_info
from tests.store.served import DESCRIPTORS, HOME, begin, end

RANKS = 40  # whose longest frames together are more than a client reads of one answer


@pytest.fixture
def store() -> Iterator[TcpClient]:
    """One with room for many long frames."""
    port = begin(HOME, bounds=Bounds(1024, DESCRIPTORS))
    client = TcpClient(HOME, port)
    yield client
    client.close()
    end(port)


def test_host_frames_and_histories_may_all_be_as_long_as_frames_can_be(store: TcpClient) -> None:
    steps = columns([1], {"duration": [100.0], "exposed": [5.0]})
    for rank in range(RANKS):
        store.put(rank_key(RUN_ID, rank), encode(rank_frame(rank, 1, steps, writer=rank)))
        store.put(host_key(RUN_ID, rank), b"\xc1" * MAX_FRAME_BYTES)
        store.put(history_key(RUN_ID, rank), b"\xc1" * MAX_FRAME_BYTES)
    feed, checked = Feed(run_info(RANKS)), CheckedStore(store, Checks(None))
    feed.read(checked, told_ages=False)
    feed.read(checked, told_ages=False)
    assert feed.run.latest.known.all()
    assert feed.run.rejected.total() == 2 * RANKS


def test_a_writer_that_vanishes_does_not_shift_the_turns_of_the_others(
    store: TcpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ddpmon.watcher.feed.RANKS_AT_ONCE", 4)  # so that ten ranks are many
    for rank in range(10):
        store.put(rank_key(RUN_ID, rank), encode(rank_frame(rank, 1, StepColumns(), writer=2 * (rank // 2))))
    asked: list[set[str]] = []
    plain = store.get_many

    def noted(keys: Sequence[str]) -> list[bytes | None]:
        asked[-1].update(keys)
        return plain(keys)

    monkeypatch.setattr(store, "get_many", noted)
    monkeypatch.setattr("ddpmon.watcher.pace.process_time", lambda: 0.0)  # cheap, though ticks come without a pause
    feed, checked = Feed(run_info(10)), CheckedStore(store, Checks(None))
    for tick in range(10):
        if tick == 3:
            for rank in (2, 3):  # they publish by themselves from now on
                store.put(rank_key(RUN_ID, rank), encode(rank_frame(rank, 2, StepColumns(), writer=-1)))
        asked.append(set())
        feed.read(checked, 2, told_ages=False)
    for writer in (0, 4, 6, 8):
        key = host_key(RUN_ID, writer)
        assert [key in keys for keys in asked[2:]] in ([True, False] * 4, [False, True] * 4)
    assert host_key(RUN_ID, 2) not in asked[-1]


def test_a_rank_whose_writer_has_died_is_not_waited_for_until_its_turn(
    store: TcpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ddpmon.watcher.feed.RANKS_AT_ONCE", 4)  # so that ten ranks are many
    for rank in range(10):
        store.put(rank_key(RUN_ID, rank), encode(rank_frame(rank, 1, StepColumns(), writer=0)))
    feed, checked = Feed(run_info(10)), CheckedStore(store, Checks(None))
    feed.read(checked, told_ages=False)
    feed.read(checked, told_ages=False)
    for rank in range(10):
        store.put(rank_key(RUN_ID, rank), encode(rank_frame(rank, 2, StepColumns(), writer=0)))
    feed.run.latest.heard_at[:] = time.monotonic()
    feed.run.latest.heard_at[7] -= 2.0
    feed.read(checked, told_ages=False)
    assert not feed.is_complete, "this tick lies between two turns"
    assert feed.run.latest.seq.tolist() == [2, 1, 1, 1, 1, 1, 1, 2, 1, 1]
