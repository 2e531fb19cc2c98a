"""The private folder of this user's files on this host: opened once, checked, and used by its descriptor alone.

The folder above it may belong to another user, who could put a link in its place between a check and a use of its path.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType

KEEP_S = 24 * 3600.0  # how long what a killed process left is kept
_OURS = re.compile(r"[0-9a-f]{24}\.(?:json|tmp|dead|turn|sock)")  # what `stem` and its callers name files
_WAITING = 128  # connections that nobody has accepted; the kernel keeps what they have sent
_REMEDY = (
    "have it removed, set TMPDIR to a folder of your own for runs and watchers, or watch the address that the run "
    "prints: ddpmon watch tcp://HOST:PORT"
)


class Folder:
    """A private folder that is open, for a `with` block; files that ddpmon did not name are never removed.

    Args:
        path: where it is.
        make: whether to make it where it is missing.

    Raises:
        OSError: it is not there, or is a link.
        PermissionError: it belongs to another user, or is open to others.
    """

    def __init__(self, path: Path, *, make: bool = False) -> None:
        self.path = path
        if make:
            with suppress(FileExistsError):
                path.mkdir(mode=0o700)
        self._handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        if trouble := _trouble(os.fstat(self._handle)):
            os.close(self._handle)
            raise PermissionError(f"{path} {trouble}")

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._handle)

    def names(self, suffix: str) -> list[str]:
        """The files of ours that end so; none where the folder cannot be listed."""
        with suppress(OSError), os.scandir(self._handle) as entries:
            return sorted(each.name for each in entries if _OURS.fullmatch(each.name) and each.name.endswith(suffix))
        return []

    def open(self, name: str, flags: int) -> int:
        """A descriptor of a file, which is no link; a new one is for this user alone.

        Raises:
            OSError: it cannot be opened.
        """
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=self._handle)

    def inode(self, name: str) -> int:
        """Which file has this name.

        Raises:
            OSError: none has.
        """
        return self._stat(name).st_ino

    def rename(self, name: str, new: str) -> None:
        """Give a file another name, as of now.

        Raises:
            OSError: it is not there.
        """
        self.touch(name)
        os.rename(name, new, src_dir_fd=self._handle, dst_dir_fd=self._handle)

    def listen(self, name: str) -> socket.socket:
        """A socket at which processes of this user are heard: SOCK_SEQPACKET, non-blocking.

        Raises:
            OSError: it cannot be made.
        """
        server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        try:
            server.bind(self._address(name))
            server.listen(_WAITING)
        except OSError:
            server.close()
            raise
        return server

    def reach(self, name: str) -> socket.socket:
        """A non-blocking connection to such a socket.

        Raises:
            OSError: nobody listens there, or too many wait.
        """
        client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        try:
            client.connect(self._address(name))
        except OSError:
            client.close()
            raise
        return client

    def _address(self, name: str) -> str:
        """A socket's path by the open folder: short enough for any, and nobody can put a link in its way."""
        return f"/proc/self/fd/{self._handle}/{name}"

    def remove(self, name: str) -> None:
        """Remove a file of ours, if it is there. Never raises."""
        with suppress(OSError):
            if _OURS.fullmatch(name):
                os.unlink(name, dir_fd=self._handle)

    def is_stale(self, name: str) -> bool:
        """Whether the file has been there for a day, and nobody has touched it."""
        return (self.age_s(name) or 0.0) > KEEP_S

    def age_s(self, name: str) -> float | None:
        """Seconds since the file was written or touched; None where it is not there."""
        with suppress(OSError):
            return time.time() - self._stat(name).st_mtime
        return None

    def touch(self, name: str) -> None:
        """Let a file be as of now.

        Raises:
            OSError: it is not there.
        """
        os.utime(name, dir_fd=self._handle, follow_symlinks=False)

    def _stat(self, name: str) -> os.stat_result:
        return os.stat(name, dir_fd=self._handle, follow_symlinks=False)


def stem(text: str) -> str:
    """A file name for what may hold any characters, without its suffix."""
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=12).hexdigest()


def folders() -> list[Path]:
    """Where the private folder may be: under an XDG_RUNTIME_DIR of this user's own, else in the temporary folder."""
    found, user = list[Path](), os.geteuid()
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    with suppress(OSError):  # there is none
        if runtime.is_absolute() and runtime.stat().st_uid == user:
            found.append(runtime / "ddpmon")
    with suppress(OSError):  # no folder of this host takes temporary files: read-only, or full
        found.append(Path(tempfile.gettempdir()) / f"ddpmon-{user}")
    return found


def existing_folders() -> Iterator[Folder]:
    """The private folders that there are, each open until the next one is asked for. Never raises."""
    for path in folders():
        with suppress(OSError), Folder(path) as folder:
            yield folder


def usable_folder() -> Folder | None:
    """The first private folder that can be used, made if need be; None when none can. Never raises."""
    for path in folders():
        with suppress(OSError):
            return Folder(path, make=True)
    return None


def squatted() -> str:
    """Why a folder where runs would be announced cannot be used, and what to do; "" where each can or is not there."""
    for path in folders():
        with suppress(OSError):
            if trouble := _trouble(path.lstat()):
                return f"{path} {trouble}, so no run is announced there: {_REMEDY}"
    return ""


def _trouble(found: os.stat_result) -> str:
    """Why this is no private folder, as the rest of a sentence; "" if it is one."""
    if found.st_uid != os.geteuid():
        return f"belongs to another user (uid {found.st_uid})"
    if not stat.S_ISDIR(found.st_mode):
        return "is no folder"
    return f"is open to others (mode {stat.S_IMODE(found.st_mode):o})" if found.st_mode & 0o077 else ""
