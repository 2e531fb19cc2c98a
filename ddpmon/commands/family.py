"""Which run on this host a command has started: that whose rank 0 is one of its processes."""

from __future__ import annotations

import psutil

from ddpmon.store.discovery import Announcement, discover


def announced_by(command: int) -> Announcement | None:
    """The run whose rank 0 is this process or one below it; None before there is one on this host."""
    family = _family(command)
    return next((run for run in discover() if run.pid in family), None)


def _family(command: int) -> set[int]:
    try:
        return {command, *(child.pid for child in psutil.Process(command).children(True))}
    except psutil.Error:
        return set()
