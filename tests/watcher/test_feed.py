"""What a watcher asks a store for at once: never more than one answer may bring."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ddpmon.schema import MAX_FRAME_BYTES, encode
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
    feed.read_histories(checked)
    feed.read(checked, set(), told_ages=False)
    feed.read(checked, set(), told_ages=False)
    assert feed.run.latest.known.all()
    assert feed.run.rejected.total() == 2 * RANKS
