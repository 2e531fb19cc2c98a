"""Words for who holds or takes something."""

from __future__ import annotations

from ddpmon.machine import Process


def named(process: Process) -> str:
    """Pid 8123 (bob, python train.py), as far as it is visible."""
    known = [part for part in (process.user, process.command) if part]
    return f"pid {process.pid}" + (f" ({', '.join(known)[:80]})" if known else "")
