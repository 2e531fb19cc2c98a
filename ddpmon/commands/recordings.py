"""A TARGET that is a recording: a file, not a run."""

from __future__ import annotations

from pathlib import Path

from ddpmon.recording.layout import SQLITE

SUFFIX = ".ddpmon"


def recording_at(target: str | None) -> Path | None:
    """The file that TARGET names, if it is called like a recording or is a SQLite database; else None.

    Whether it can be read is seen when it is opened.
    """
    if not target or "://" in target:
        return None
    path = Path(target)
    try:
        if not path.is_file():
            return path if target.endswith(SUFFIX) else None
        if target.endswith(SUFFIX):
            return path
        with path.open("rb") as file:
            return path if file.read(len(SQLITE)) == SQLITE else None
    except (OSError, ValueError):  # no permission, or no name of a file
        return path if target.endswith(SUFFIX) else None
