"""A rank whose training fails, and that lives on: what it has started for that is gone, so nothing is announced."""

from __future__ import annotations

import threading

import torch
import torch.distributed as dist
from torch.distributed import HashStore  # type: ignore[attr-defined]
from torch.nn.parallel import DistributedDataParallel

import ddpmon
from ddpmon.probe.publisher import PUBLISHER
from ddpmon.store.discovery import discover


def main() -> None:
    """Fail once, catch that, and see what is left."""
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    model = DistributedDataParallel(torch.nn.Linear(2, 1))
    try:
        with ddpmon.attach(model):
            while not discover():
                pass
            raise RuntimeError("this attempt has failed")
    except RuntimeError:
        pass
    for thread in threading.enumerate():
        if thread.name == PUBLISHER:
            thread.join()
    assert discover() == [], "its store is left behind"
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
