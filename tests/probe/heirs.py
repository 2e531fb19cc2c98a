"""One rank's machine without a training around it: says what comes of its turns, and when it has read its host.

Its run is not known before the first line on stdin; the second line stops it.

heirs.py LOCAL_RANK
"""

from __future__ import annotations

import os
import sys
import time

import torch

from ddpmon.probe import host_sampler as probe_machine
from ddpmon.probe.host_sampler import HostSampler
from ddpmon.probe.identity import Identity
from ddpmon.store.host_lease import HostLease


class SaidLease(HostLease):
    """Says when it is refused, with the seconds since the run was known."""

    def take(self) -> bool:
        """Take the turn, if nobody else has it."""
        taken = super().take()
        if not taken:
            print(f"refused {time.monotonic() - known_at:.3f}", flush=True)
        return taken


setattr(probe_machine, "HostLease", SaidLease)  # noqa: B010 (it is imported there)
local_rank, known, known_at = int(sys.argv[1]), "", 0.0
me = Identity(local_rank, 3, local_rank, 0, (0,), "host", os.getpid(), torch.device("cpu"), None, "gloo")
machine = HostSampler(me, lambda: known, {}, {})
machine.start()
while machine.process is None:  # by then it has asked for its run once
    time.sleep(0.05)
assert machine.sample() is None, "the run is not known yet"
print("waiting", flush=True)
sys.stdin.readline()
known_at = time.monotonic()
known = "run"
while (sample := machine.sample()) is None or sample.figures.cpu_pct is None:
    time.sleep(0.05)
print("sampling", flush=True)
sys.stdin.readline()
machine.stop()
sys.stdin.read()
