"""Ranks that multiprocessing starts: 0 stays, 1 returns, 2 raises, and none detaches.

children.py FOLDER METHOD PORT. The test has the rendezvous store: a process with a thread of torch's may not fork.
"""

from __future__ import annotations

import os
import sys

import torch.distributed as dist
from torch.multiprocessing.spawn import start_processes

import ddpmon
from tests.probe.probe_stage import toy, train, wait_for


def work(rank: int, port: int) -> None:
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="3", LOCAL_WORLD_SIZE="3")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), TORCHELASTIC_USE_AGENT_STORE="True")
    dist.init_process_group("gloo")
    ddp = toy()
    ddpmon.attach(ddp, name="children")
    train(ddp)
    wait_for("release" if rank == 0 else "on")
    if rank == 2:
        raise ValueError("a child's own")


if __name__ == "__main__":
    try:
        raise KeyError("what a forked child is born with")
    except KeyError:
        ranks = start_processes(work, (int(sys.argv[3]),), 3, join=False, start_method=sys.argv[2])
    for process in ranks.processes:
        process.join()
