"""A run in a real store of this process, put there frame by frame, for what a watcher makes of it."""

from __future__ import annotations

import socket
import time
from typing import Any

from ddpmon.codec import encode
from ddpmon.schema import RankFrame, RunInfo
from ddpmon.store.base import RUNS_KEY, rank_key, run_key
from ddpmon.store.signed import Signer, signed
from ddpmon.store.tcp_wire import DELETE_KEY, INT64, greeting, packed_key
from tests.made_frames import RUN_ID, columns, rank_frame, run_info
from tests.store.served import serve

HOME = "127.0.0.1"


def delete_keys(port: int, *keys: str) -> None:
    """What anybody can do who reaches the port."""
    with socket.create_connection((HOME, port)) as stranger:
        stranger.sendall(greeting(b"none") + b"".join(bytes((DELETE_KEY,)) + packed_key(key) for key in keys))
        expected = b"none" + INT64.pack(1) * len(keys)
        assert stranger.recv(len(expected), socket.MSG_WAITALL) == expected


class MadeStore:
    """A TCPStore with one run.

    Args:
        ranks: of the run.
        token: what its frames are signed with.
        address: where the store listens.

    Attributes:
        host: the store, unsigned.
        url: its address.
    """

    def __init__(self, ranks: int = 2, token: str | None = None, address: str = HOME) -> None:
        self.ranks = ranks
        self.host, self.port = serve(address)
        self.url = f"tcp://{address}:{self.port}"
        self._store = signed(self.host, None if token is None else Signer(token))

    def name(self, *run_ids: str) -> None:
        """Say which runs the store holds."""
        self.hold(RUNS_KEY, "\n".join(run_ids).encode())

    def describe(self, run_id: str = RUN_ID, key: str | None = None, **changes: Any) -> RunInfo:
        """Describe the run, under the key of its id or another one."""
        info = run_info(self.ranks, run_id=run_id, started_at=time.time(), **changes)
        self._store.put(key or run_key(run_id), encode(info))
        return info

    def speak(self, seq: int, *ranks: int, run_id: str = RUN_ID, **changes: Any) -> None:
        """The frames of these ranks, or of all, each with two steps."""
        for rank in ranks or range(self.ranks):
            steps = columns([2 * seq, 2 * seq + 1], {"duration": [100.0] * 2, "exposed": [5.0] * 2})
            frame: RankFrame = rank_frame(rank, seq, steps, run_id=run_id, sent_at=time.time(), **changes)
            self._store.put(rank_key(run_id, rank), encode(frame))
        self.settle()

    def begin(self) -> None:
        """A whole run."""
        self.describe()
        self.name(RUN_ID)
        self.speak(1)

    def hold(self, key: str, value: bytes) -> None:
        """Put what stands there as it is."""
        self.host.put(key, value)
        self.settle()

    def settle(self) -> None:
        """Wait until the server has taken in what was put: another client may be served first."""
        self.host.get_many([RUNS_KEY])

    def close(self) -> None:
        """End it."""
        self.host.close()
