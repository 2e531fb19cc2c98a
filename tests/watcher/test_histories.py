"""What the ranks remember comes behind the first picture of many ranks, and no verdict comes before it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from ddpmon.codec import encode
from ddpmon.run.model import Run
from ddpmon.schema import HistoryFrame
from ddpmon.store.base import history_key, rank_key
from ddpmon.store.server_bounds import Bounds
from ddpmon.store.signed import CheckedStore, Checks
from ddpmon.store.tcp_client import TcpClient
from ddpmon.watcher import feed as feeding
from ddpmon.watcher.feed import Feed
from tests.made_frames import RUN_ID, columns, rank_frame, run_info
from tests.store.served import DESCRIPTORS, HOME, begin, end

RANKS, STEPS, SEEN = 6, 200, 8  # a watcher that comes at step 200 sees the last 8 in frames


def values(steps: range) -> dict[str, list[float]]:
    return {"duration": [100.0] * len(steps), "exposed": [5.0] * len(steps), "loss": [9.0 - s / 100 for s in steps]}


@pytest.fixture
def store() -> Iterator[TcpClient]:
    """One with the frames and the histories of a run at step 200."""
    port = begin(HOME, bounds=Bounds(1024, DESCRIPTORS))
    client = TcpClient(HOME, port)
    newest, recent, older = range(STEPS - SEEN, STEPS), range(STEPS - 40, STEPS), range(0, STEPS - 40, 2)
    for rank in range(RANKS):
        client.put(rank_key(RUN_ID, rank), encode(rank_frame(rank, 1, columns(newest, values(newest)))))
        past = columns(older, values(older), stride=2)
        history = HistoryFrame(run_id=RUN_ID, rank=rank, recent=columns(recent, values(recent)), older=past)
        client.put(history_key(RUN_ID, rank), encode(history))
    yield client
    client.close()
    end(port)


def read(store: TcpClient, feed: Feed) -> None:
    feed.read(CheckedStore(store, Checks(None)), told_ages=False)


def everything(run: Run) -> list[np.ndarray]:
    steps = np.arange(STEPS)
    return [run.series.points, *run.rings.takes(("duration", "work", "loss"), steps)]


def test_of_many_ranks_the_newest_frames_come_first_and_the_past_makes_the_same_run(
    store: TcpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Feed(run_info(RANKS))
    read(store, whole)
    monkeypatch.setattr(feeding, "_HISTORIES_FIRST", 2)
    monkeypatch.setattr(feeding, "_HISTORIES_S", 0.0)
    feed, unread = Feed(run_info(RANKS)), []
    for _ in range(4):
        read(store, feed)
        unread.append((feed.unread_histories, feed.is_complete, bool(feed.run.latest.known.all())))
        assert feed.run.series.newest == (-1 if feed.unread_histories else STEPS - 1)
    assert unread == [(6, False, True), (4, False, True), (2, False, True), (0, True, True)]
    for late, first in zip(everything(feed.run), everything(whole.run), strict=True):
        np.testing.assert_array_equal(late, first)


def test_a_rank_that_restarts_before_its_history_is_read_does_not_get_the_past_of_another_process(
    store: TcpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeding, "_HISTORIES_FIRST", 2)
    feed, first = Feed(run_info(RANKS)), range(SEEN)
    read(store, feed)
    feed.run.add_rank(rank_frame(3, 1, columns(first, values(first)), pid=77), feed.read_at)
    read(store, feed)
    assert feed.unread_histories == 0
    assert feed.run.rings.last.tolist() == [STEPS - 1] * 3 + [SEEN - 1] + [STEPS - 1] * 2
