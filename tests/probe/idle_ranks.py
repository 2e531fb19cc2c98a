"""Ranks that attach and then wait: rank 0 on a host of its own, the others together on another.

idle_ranks.py FOLDER [PRIVATE]: they end when FOLDER/end is there. With PRIVATE every rank has a folder for temporary
files of its own, as in containers.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist

import ddpmon

folder, rank = Path(sys.argv[1]), int(os.environ["RANK"])
os.environ |= {"GROUP_RANK": str(min(rank, 1)), "GROUP_WORLD_SIZE": "2", "LOCAL_RANK": str(max(0, rank - 1))}
os.environ["DDPMON_HOSTNAME"] = "alpha" if rank == 0 else "beta"
if "PRIVATE" in sys.argv:
    del os.environ["XDG_RUNTIME_DIR"]
    tempfile.tempdir = tempfile.mkdtemp(dir=folder)
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
monitor = ddpmon.attach(model, name="idle")
for _ in range(3):
    model(torch.ones(2, 4)).sum().backward()
while not (folder / "end").exists():
    time.sleep(0.1)
monitor.detach()
time.sleep(2.0)
os._exit(0)  # whoever has lost a peer could not take its process group down
