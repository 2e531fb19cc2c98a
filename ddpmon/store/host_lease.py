"""One process at a time acts for this host: a lease that ends with its process, however the process dies."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from ddpmon.store.discovery import withdraw
from ddpmon.store.private import Folder, stem, usable_folder

_SUFFIX = ".turn"


class HostLease:
    """The right to act for a whole host: a file lock in the private folder, which a forked child does not inherit.

    Args:
        name: what the right is for.
    """

    def __init__(self, name: str) -> None:
        self._file = f"{stem(name)}{_SUFFIX}"
        self._path: Path | None = None
        self._handle = -1

    @property
    def held(self) -> bool:
        """Whether this process has it."""
        return self._handle >= 0

    def take(self) -> bool:
        """Take the lease if no other process has it; does not wait.

        Raises:
            OSError: no private folder can be used.
        """
        if self._handle < 0:
            folder = usable_folder()
            if folder is None:
                raise OSError("no private folder can be used")
            with folder:
                self._path = folder.path / self._file
                self._handle = _lock(folder, self._file)
                if self._handle >= 0:
                    _clear_away(folder, self._file)
        return self._handle >= 0

    def give(self) -> None:
        """Give the lease back. Never raises."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            withdraw(self._path)
            with suppress(OSError):
                os.close(handle)


def _lock(folder: Folder, name: str) -> int:
    """An open file with the lock on it, or -1 if somebody else holds it.

    Raises:
        OSError: the file cannot be opened.
    """
    handle = folder.open(name, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(handle).st_ino == folder.inode(name):  # else its holder has just given it back
            return handle
    except OSError:
        pass
    os.close(handle)
    return -1


def _clear_away(folder: Folder, own: str) -> None:
    """Remove what processes that were killed have left; a lock that can be taken has no owner."""
    for name in folder.names(_SUFFIX):
        with suppress(OSError):
            if name != own and folder.is_stale(name) and (handle := _lock(folder, name)) >= 0:
                folder.remove(name)
                os.close(handle)
