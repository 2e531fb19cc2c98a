"""Runs made from frames, published as ranks publish them: into a store of their own or an external one."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from typing import Any

from ddpmon.codec import encode
from ddpmon.schema import HistoryFrame, NodeFrame, RunInfo, StepColumns
from ddpmon.store.base import RUNS_KEY, Store, history_key, node_key, rank_key, run_key
from tests.made_frames import MadeJob, healthy_phases, rank_frame, run_info

RANKS, STEPS, LATE = 4, 200, 2
HOST = socket.gethostname()


def slow_job() -> MadeJob:
    """Rank 2 loses 40 ms a step in forward from step 50 on."""
    phases = healthy_phases(RANKS, STEPS)
    phases["forward"][LATE, 50:] += 40.0
    return MadeJob(phases)


class MadeRun:
    """A run of four ranks in a store, as far as its frames go.

    Args:
        store: where it is published.
        run_id: its id.
    """

    def __init__(self, store: Store, run_id: str = "made-run") -> None:
        self.store = store
        self.info: RunInfo = run_info(RANKS, run_id=run_id, name=run_id, started_at=time.time() - 60, host=HOST)
        self.job = slow_job()
        self.seq = 0
        for rank in range(RANKS):
            store.put(rank_key(run_id, rank), b"")
            store.put(history_key(run_id, rank), b"")
        store.put(node_key(run_id, 0), b"")
        store.put(run_key(run_id), encode(self.info))
        store.put(RUNS_KEY, run_id.encode())

    def speak(self, states: Sequence[str] = ("running",) * RANKS, seq: int | None = None, **changes: Any) -> None:
        """Every rank says where it is; a rank whose state is "" says nothing."""
        self.seq = self.seq + 1 if seq is None else seq
        run_id = self.info.run_id
        for rank, state in enumerate(states):
            if state:
                steps = self.job.columns(rank, STEPS - 20, STEPS)
                values = {"run_id": run_id, "state": state, "host": HOST, "sent_at": time.time(), **changes}
                self.store.put(rank_key(run_id, rank), encode(rank_frame(rank, self.seq, steps, **values)))
                past = self.job.columns(rank, 0, STEPS)
                history = HistoryFrame(run_id=run_id, rank=rank, recent=past, older=StepColumns())
                self.store.put(history_key(run_id, rank), encode(history))
        node = NodeFrame(run_id=run_id, node=0, seq=self.seq, sent_at=time.time(), host=HOST)
        self.store.put(node_key(run_id, 0), encode(node))
