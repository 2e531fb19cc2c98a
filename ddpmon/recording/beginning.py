"""Where a record begins and ends, and which recording of the same run holds the time before that."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from ddpmon.format import time_of_day
from ddpmon.recording.layout import RecordingError
from ddpmon.recording.reader import Place, Recording

_SUFFIX = ".ddpmon"  # of the files that `ddpmon record` makes
# So many files are looked into, the newest ones: a chosen number. One of 3.5 MB takes 0.6 to 0.8 ms, so that all of
# them take 26 ms at most of the tick in which somebody goes back too far. Measured on two busy cores on 2026-11-25.
_MOST_FILES = 32


def begins_words(recording: Recording, first: Place, folder: Path | None) -> str:
    """Where the record begins, and, of a run that another recording shows before that, the command for it.

    Args:
        recording: what begins.
        first: its first moment.
        folder: where a further recording may be; None: nowhere.
    """
    step, clock = f"step {max(first.step, 0):,}", time_of_day(first.wall)
    longer = None if folder is None else _longer(recording, first, folder)
    if longer is None:
        return f"what was seen here begins at {step}, {clock}"
    return f"ddpmon watch {shlex.quote(longer)} has the run before {clock}; what was seen here begins at {step}"


def ends_words(first: Place, last: Place) -> str:
    """Where the record ends, and when it begins: a time of day may have been meant for the day before."""
    begins, ends = time_of_day(first.wall), time_of_day(last.wall)
    return f"what was seen here ends at step {max(last.step, 0):,}, {ends}; it begins at {begins}"


def _longer(recording: Recording, first: Place, folder: Path) -> str | None:
    """The name of the file in this folder that shows this run from the earliest moment on, if it is before `first`."""
    run = recording.chunks[0].run if recording.chunks else 0
    (run_id,) = next(recording.rows("SELECT run_id FROM runs WHERE run = ?", run), ("",))
    begun = ((wall, path.name) for path in _newest(folder) if (wall := _begun(path, run_id)) is not None)
    wall, name = min(begun, default=(first.wall, ""))
    return name if wall < first.wall else None


def _newest(folder: Path) -> list[Path]:
    files = dict[Path, float]()
    with suppress(OSError):
        for entry in os.scandir(folder):
            if entry.name.endswith(_SUFFIX) and entry.is_file():
                files[Path(entry.path)] = entry.stat().st_mtime
    return sorted(files, key=lambda path: -files[path])[:_MOST_FILES]


def _begun(path: Path, run_id: str) -> float | None:
    """The Unix time of the first moment of this run that the file shows; None if it shows none."""
    try:
        found = Recording(path)
    except RecordingError:
        return None
    with closing(found):
        return min(_walls(found, run_id), default=None)


def _walls(recording: Recording, run_id: str) -> Iterator[float]:
    runs = {run for run, name in recording.rows("SELECT run, run_id FROM runs") if name == run_id}
    yield from (chunk.wall for chunk in recording.chunks if chunk.run in runs)
