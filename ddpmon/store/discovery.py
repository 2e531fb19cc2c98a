"""The runs on this host: one small private file a run, so that `ddpmon watch` needs no address.

A file lies in `$XDG_RUNTIME_DIR/ddpmon/`, or else in `ddpmon-<uid>/` in the temporary folder. A clean end withdraws
it. The file of a run that was killed is set aside for a day, which is how a watcher learns that the end was not clean.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import stat
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from ddpmon.parts import MAX_RANKS, Count, Text

MAX_FILE_BYTES = 16 << 10
KEEP_DEAD_S = 24 * 3600.0


class Announcement(Struct, frozen=True, kw_only=True):
    """One run on this host.

    Attributes:
        pid: the process that hosts the store.
        pid_started: when that process started, in clock ticks since boot, so that a reused pid does not mislead;
            `announce` fills it in.
        machine: the kernel and pid namespace in which the pid means something; `announce` fills it in.
    """

    run_id: Text
    name: Text
    url: Text
    pid: Count
    host: Text
    world_size: Annotated[int, Meta(ge=1, le=MAX_RANKS)]
    started_at: float
    pid_started: float = 0.0
    machine: Text = ""


_decoder = msgspec.json.Decoder(Announcement)


def announce(announcement: Announcement) -> Path | None:
    """Write the run's file (atomic, mode 0600); None when no private folder can be used. Never raises."""
    for folder in _folders():
        with contextlib.suppress(Exception):
            _make_private(folder)
            return _write(folder, announcement)
    return None


def anybody_finds(path: Path) -> bool:
    """Whether this user's other shells look where `announce` wrote: a job's own TMPDIR is not theirs."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    return path.parent in (Path(runtime) / "ddpmon", Path("/tmp") / f"ddpmon-{os.geteuid()}")


def private_folder() -> Path | None:
    """The folder of this user's files on this host, made if need be; None when none can be used. Never raises."""
    for folder in _folders():
        with contextlib.suppress(Exception):
            _make_private(folder)
            return folder
    return None


def stem(text: str) -> str:
    """A file name for what may hold any characters, without its suffix."""
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=12).hexdigest()


def withdraw(path: Path | None) -> None:
    """Remove what `announce` wrote: the run has ended cleanly. Never raises."""
    if path is not None:
        with contextlib.suppress(OSError):
            path.unlink()


def discover() -> list[Announcement]:
    """The live runs on this host, newest first; clears away what is stale. Never raises."""
    found = [announcement for path in _files("*.json") if (announcement := _live(path))]
    for path in _files("*.dead"):
        if time.time() - _modified(path) > KEEP_DEAD_S:
            withdraw(path)
    return sorted(found, key=lambda announcement: announcement.started_at, reverse=True)


def left_behind(run_id: str) -> bool:
    """Whether the run's file is still there although its process is dead: it did not end cleanly."""
    name = stem(run_id)
    if any(True for _ in _files(f"{name}.dead")):
        return True
    runs = [_read(path) for path in _files(f"{name}.json")]
    return any(run is not None and run.machine == _machine() and not _alive(run) for run in runs)


def _live(path: Path) -> Announcement | None:
    announcement = _read(path)
    if announcement is None:
        withdraw(path)
        return None
    if announcement.machine != _machine():
        if _before_a_reboot(announcement):
            withdraw(path)
        return None  # another container's or host's: not ours to judge
    if _alive(announcement):
        return announcement
    with contextlib.suppress(OSError):
        os.utime(path)
        path.rename(path.with_suffix(".dead"))
    return None


def _folders() -> list[Path]:
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    folders = [Path(runtime) / "ddpmon"] if runtime.startswith("/") else []
    with contextlib.suppress(OSError):  # no folder of this host takes temporary files: read-only, or full
        folders.append(Path(tempfile.gettempdir()) / f"ddpmon-{os.geteuid()}")
    return folders


def _make_private(folder: Path) -> None:
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if not _is_private(folder):
        raise PermissionError(f"{folder} is not private")


def _is_private(folder: Path) -> bool:
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _write(folder: Path, announcement: Announcement) -> Path:
    complete = msgspec.structs.replace(announcement, pid_started=_started(announcement.pid) or 0.0, machine=_machine())
    path = folder / f"{stem(announcement.run_id)}.json"
    handle, temporary = tempfile.mkstemp(dir=folder, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(msgspec.json.encode(complete))
        Path(temporary).replace(path)
        path.with_suffix(".dead").unlink(missing_ok=True)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


def _files(pattern: str) -> Iterator[Path]:
    for folder in _folders():
        if _is_private(folder):
            with contextlib.suppress(OSError):
                yield from sorted(folder.glob(pattern))


def _read(path: Path) -> Announcement | None:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_size > MAX_FILE_BYTES:
                return None
            return _decoder.decode(file.read(MAX_FILE_BYTES + 1))
    except (OSError, ValueError, RecursionError):
        return None


def _alive(announcement: Announcement) -> bool:
    return _started(announcement.pid) == announcement.pid_started


def _started(pid: int) -> float | None:
    """When the process started; None when there is none, or only its zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return None if fields[0] in "ZX" else float(fields[19])
    except (OSError, ValueError, IndexError):
        return None


def _before_a_reboot(run: Announcement) -> bool:
    """Whether its process was on this host, and the host has started anew since."""
    theirs, ours = run.machine.partition("/")[0], _machine().partition("/")[0]
    return bool(theirs and ours) and theirs != ours and run.host == socket.gethostname()


@cache
def _machine() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _modified(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0
