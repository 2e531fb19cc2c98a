"""One rank's machine without a training around it: says when it has read its host.

heirs.py LOCAL_RANK RUN
"""

from __future__ import annotations

import os
import sys
import time

import torch

from ddpmon.probe.identity import Identity
from ddpmon.probe.machine import Machine

local_rank = int(sys.argv[1])
known = [""]
me = Identity(local_rank, 3, local_rank, 0, (0,), "host", os.getpid(), torch.device("cpu"), None, "gloo")
machine = Machine(me, lambda: known[0], {}, {})
machine.start()
time.sleep(1.5)
assert machine.sample() is None, "the run is not known yet"
known[0] = "run"
print("waiting", flush=True)
while (sample := machine.sample()) is None or sample.figures.cpu_pct is None:
    time.sleep(0.05)
print(f"sampling {sample.figures.memory_total}", flush=True)
sys.stdin.readline()
machine.stop()
sys.stdin.read()
