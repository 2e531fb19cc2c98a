"""Whether a process still lives: by its number and its start, since a number is used again."""

from __future__ import annotations

import os


def started(pid: int) -> float | None:
    """When the process started, in clock ticks since boot; None when there is none, or only its zombie."""
    try:
        file = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
        try:
            fields = os.read(file, 4096).rpartition(b")")[2].split()
        finally:
            os.close(file)
        return None if fields[0] in (b"Z", b"X") else float(fields[19])
    except (OSError, ValueError, IndexError):
        return None


def lives(pid: int, since: float | None) -> bool:
    """Whether the process `pid` that started at `since` lives.

    Where it was not known when it started, because there is no /proc, any process of that number counts.
    """
    if since is not None:
        return started(pid) == since
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is another user's by now
        return True
    return True
