"""Which processes of a host belong to the run."""

from __future__ import annotations

from collections.abc import Mapping

from ddpmon.machine import Process


def owner_of(process: Process, pids: Mapping[int, int]) -> int | None:
    """The rank that this process is, or descends from as its DataLoader workers do; None for anybody else's.

    Args:
        process: one of the host's.
        pids: process number -> rank, of the ranks on that host.
    """
    return next((pids[pid] for pid in (process.pid, *process.parents) if pid in pids), None)
