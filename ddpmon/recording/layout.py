"""The tables of a recording, and how its file is opened. docs/recording.md describes them for users."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from urllib.parse import quote

from ddpmon.version import __version__

# Of the tables; a file of a newer one is not read. 2: `alerts` has `finding_id`; 3: advice has parts; 4: `steps` has
# `allreduce_ms`.
VERSION = 4
SQLITE = b"SQLite format 3\0"  # the head of every file of SQLite's
APPLICATION = 0x64646D6E  # "ddmn", in the head of the file
STEP_BITS = 50  # of the number of a row in `steps` and `job`: step * world size + rank; above it the epoch
QUANTITIES = ("duration", "input", "forward", "backward", "optimizer", "exposed", "barrier", "marked", "gc")
COLUMNS = (*(f"{name}_ms" for name in QUANTITIES), "loss", "samples")  # of `steps`, as `ddpmon diagnose` names them
ALLREDUCE = "allreduce_ms"  # of `steps` as well: known in the steps that a rank has sampled
JOB_COLUMNS = ("loss", "loss_low", "loss_high", "throughput", "step_ms")

_TABLES = f"""
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT);
CREATE TABLE runs (
    run INTEGER PRIMARY KEY, run_id TEXT, name TEXT, world_size INTEGER, backend TEXT, device TEXT, host TEXT,
    started_at REAL, first_at REAL, last_at REAL, state TEXT, source TEXT, description BLOB);
CREATE TABLE ranks (
    run INTEGER, rank INTEGER, host TEXT, node INTEGER, local_rank INTEGER, pid INTEGER, gpu TEXT, state TEXT,
    step INTEGER, restarts INTEGER, seen_at REAL, PRIMARY KEY (run, rank)) WITHOUT ROWID;
CREATE TABLE hosts (
    id INTEGER PRIMARY KEY, run INTEGER, node INTEGER, host TEXT, at REAL, step INTEGER, cpu_pct REAL, load_1m REAL,
    memory_used INTEGER, memory_total INTEGER, gpu_utilization_pct REAL, gpu_power_w REAL, gpu_memory_used INTEGER);
CREATE TABLE steps (
    id INTEGER PRIMARY KEY, run INTEGER, life INTEGER, step INTEGER, rank INTEGER,
    {", ".join(f"{name} REAL" for name in (*COLUMNS, ALLREDUCE))});
CREATE TABLE job (
    id INTEGER PRIMARY KEY, run INTEGER, life INTEGER, step INTEGER, at REAL,
    {", ".join(f"{name} REAL" for name in JOB_COLUMNS)});
CREATE TABLE alerts (
    id INTEGER PRIMARY KEY, run INTEGER, kind TEXT, severity TEXT, worst TEXT, summary TEXT, ranks TEXT, nodes TEXT,
    phase TEXT, cause TEXT, since_step INTEGER, cleared_at_step INTEGER, cost_pct REAL, evidence TEXT, advice TEXT,
    first_at REAL, first_step INTEGER, last_at REAL, last_step INTEGER, ended_at REAL, finding_id INTEGER);
CREATE TABLE chunks (
    chunk INTEGER PRIMARY KEY, run INTEGER, life INTEGER, kind TEXT, t REAL, wall REAL, step INTEGER, key BLOB);
CREATE TABLE looks (look INTEGER PRIMARY KEY, chunk INTEGER, t REAL, wall REAL, step INTEGER, findings INTEGER);
CREATE TABLE frames (look INTEGER PRIMARY KEY, data BLOB);
CREATE INDEX looks_of_chunk ON looks (chunk);
"""


class RecordingError(ValueError):
    """A file that cannot be read as a recording, or not be written; the message says in a sentence why."""


def create(path: Path | None) -> sqlite3.Connection:
    """A new recording, in a new file, or in memory for None.

    Raises:
        RecordingError: the file is there already, or cannot be made.
    """
    if path is not None:
        _claim(path)
    try:
        book = sqlite3.connect(":memory:" if path is None else path, isolation_level=None, check_same_thread=False)
        book.execute(f"PRAGMA application_id = {APPLICATION}")
        book.execute(f"PRAGMA user_version = {VERSION}")
        book.execute("PRAGMA journal_mode = WAL")  # where that cannot be, as on NFS, it stays as it was
        book.execute("PRAGMA synchronous = NORMAL")
        book.execute("PRAGMA journal_size_limit = 16777216")
        book.execute("BEGIN")
        for statement in filter(str.strip, _TABLES.split(";")):
            book.execute(statement)
        book.executemany("INSERT INTO about VALUES (?, ?)", [("ddpmon", __version__), ("created_at", f"{time.time()}")])
        book.execute("COMMIT")
    except sqlite3.Error as error:
        raise RecordingError(f"{path} cannot be recorded to: {error}") from None
    return book


def _claim(path: Path) -> None:
    """Make the file, so that of two recorders that are started at once only one gets it."""
    try:
        path.open("xb").close()
    except FileExistsError:
        raise RecordingError(f"{path} exists already: a recording is never overwritten; name another file") from None
    except OSError as error:
        raise RecordingError(f"{path} cannot be written: {error.strerror or error}") from None


def open_to_read(path: Path) -> sqlite3.Connection:
    """A recording that is there, which is never written.

    Raises:
        RecordingError: it is none, of a newer ddpmon, or cannot be read at all.
    """
    try:
        with path.open("rb") as file:
            head = file.read(100)
    except OSError as error:
        raise RecordingError(f"{path} cannot be read: {error.strerror or error}") from None
    if not head.startswith(SQLITE):
        what = "it is empty" if not head else "it is no SQLite database"
        raise RecordingError(f"{path} is not a recording of ddpmon: {what}")
    if len(head) < 100:
        raise RecordingError(f"{path} is cut off after {len(head)} bytes: nothing of the recording is left")
    if head[68:72] != APPLICATION.to_bytes(4, "big"):
        raise RecordingError(f"{path} is a SQLite database of another program, not a recording of ddpmon")
    version = int.from_bytes(head[60:64], "big")
    if version > VERSION:
        raise RecordingError(
            f"{path} was recorded by a newer ddpmon (version {version} of its tables, this one reads up to {VERSION})"
        )
    return _opened(path)


def _opened(path: Path) -> sqlite3.Connection:
    """The file, with what its journal has; without that where the folder cannot be written or the file is damaged.

    SQLite refuses a file that is shorter than its head says, but where the schema may be written: nothing is.
    """
    reason: sqlite3.Error | None = None
    for mode, statement in (
        ("", "SELECT 1"),
        ("&immutable=1", "SELECT 1"),
        ("&immutable=1", "PRAGMA writable_schema=1"),
    ):
        try:
            uri = f"file:{quote(str(path.absolute()))}?mode=ro{mode}"
            book = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=5.0)
            book.execute(statement)
            book.execute("PRAGMA trusted_schema = OFF")
            (others,) = book.execute("SELECT count(*) FROM sqlite_master WHERE type IN ('view', 'trigger')").fetchone()
            book.execute("SELECT count(*) FROM runs").fetchone()
        except sqlite3.Error as error:
            reason = reason or error
        else:
            if others:
                raise RecordingError(f"{path} has views or triggers, which no recording of ddpmon has: it is not read")
            return book
    raise RecordingError(f"{path} is a damaged recording, and nothing of it can be read: {reason}")
