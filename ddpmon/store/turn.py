"""One at a time on this host: a turn that a process takes, and that ends with it however it dies."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path

from ddpmon.store.discovery import KEEP_DEAD_S, private_folder, stem

_SUFFIX = ".turn"


class Turn:
    """A lock on a file in the private folder, of the kind that a forked child does not inherit.

    Args:
        name: what is taken turns at.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._path: Path | None = None
        self._handle = -1

    def take(self) -> bool:
        """Take the turn, if nobody else has it; does not wait.

        Raises:
            OSError: no private folder can be used.
        """
        if self._handle < 0:
            folder = private_folder()
            if folder is None:
                raise OSError("no private folder can be used")
            self._path = folder / f"{stem(self._name)}{_SUFFIX}"
            self._handle = _lock(self._path)
            if self._handle >= 0:
                _clear_away(folder, self._path)
        return self._handle >= 0

    def give(self) -> None:
        """Give the turn back. Never raises."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            with suppress(OSError):
                if self._path is not None:
                    self._path.unlink(missing_ok=True)
                os.close(handle)


def _lock(path: Path) -> int:
    """An open file with the lock on it, or -1 if somebody else holds it.

    Raises:
        OSError: the file cannot be opened.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(handle).st_ino == path.stat().st_ino:  # else its holder has just given it back
            return handle
    except OSError:
        pass
    os.close(handle)
    return -1


def _clear_away(folder: Path, own: Path) -> None:
    """Remove what processes that were killed have left; a lock that can be had is nobody's."""
    for path in folder.glob(f"*{_SUFFIX}"):
        with suppress(OSError):
            if path != own and time.time() - path.lstat().st_mtime > KEEP_DEAD_S and (handle := _lock(path)) >= 0:
                path.unlink(missing_ok=True)
                os.close(handle)
