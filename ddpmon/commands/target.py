"""Which run a command without a TARGET means."""

from __future__ import annotations

from ddpmon.store.base import TargetError
from ddpmon.store.discovery import discover


def check_unambiguous(target: str | None) -> None:
    """Accept any TARGET, and none where at most one run is on this host.

    Raises:
        TargetError: there are several runs to choose from; the message lists them.
    """
    runs = discover() if target is None else []
    if len(runs) > 1:
        lines = [f"  {run.url}   {run.name}, {run.world_size} ranks, pid {run.pid}" for run in runs]
        raise TargetError("\n".join(["several runs on this host: name one of these as TARGET", *lines]))
