"""A rank over Gloo that leaves a dump of torch's flight recorder where the ranks disagree: `... FOLDER`.

In `missing` rank 2 does not join an all-reduce; in `unlike` it calls a broadcast where the others reduce.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

ODD = 2


def main() -> None:
    """Disagree twice, each time in a group of its own."""
    folder = Path(sys.argv[1])
    dist.init_process_group("gloo")
    first, second = dist.new_group([0, 1, 2]), dist.new_group([0, 1, 2])
    odd = dist.get_rank() == ODD
    for group in (first, second):
        dist.all_reduce(torch.ones(3), group=group)
    if not odd:
        _call(lambda: dist.all_reduce(torch.ones(7), group=first))
        _until_pending(1)
    _meet()
    _dump(folder / "missing")
    _call(
        lambda: dist.broadcast(torch.ones(5), 0, group=second) if odd else dist.all_reduce(torch.ones(5), group=second)
    )
    _until_pending(1 if odd else 2)
    _meet()
    _dump(folder / "unlike")
    _meet()  # nobody leaves before all have dumped: a connection that closes ends what is pending
    sys.stdout.flush()
    os._exit(0)


def _call(job: Any) -> None:
    threading.Thread(target=job, daemon=True).start()


def _read() -> bytes:
    return bytes(torch._C._distributed_c10d._dump_fr_trace())  # type: ignore[attr-defined]


def _until_pending(count: int) -> None:
    """Wait until so many collectives are on record as not done."""
    while sum(not entry["retired"] for entry in pickle.loads(_read())["entries"]) < count:
        time.sleep(0.02)


_meetings = 0


def _meet() -> None:
    """Wait for all ranks, by the store alone."""
    global _meetings
    _meetings += 1
    store = dist.distributed_c10d._get_default_store()
    store.add(f"met{_meetings}", 1)
    while store.add(f"met{_meetings}", 0) < dist.get_world_size():
        time.sleep(0.02)


def _dump(folder: Path) -> None:
    (folder / f"nccl_trace_rank_{dist.get_rank()}").write_bytes(_read())


if __name__ == "__main__":
    main()
