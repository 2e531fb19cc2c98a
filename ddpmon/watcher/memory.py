"""Keeps little memory that is free: what a watcher needs for a moment goes back to the system."""

from __future__ import annotations

import ctypes
from contextlib import suppress

# glibc's malloc.h. Blocks of 2 MiB or more are mapped by themselves, so that they go back as soon as they are free; by
# default glibc keeps ever larger ones, up to 32 MiB. Smaller ones are kept, since fresh pages take time. With one arena
# the reading thread fills what the drawing thread has freed.
_M_MMAP_THRESHOLD, _LARGE_BYTES = -3, 2 << 20
_M_ARENA_MAX, _ARENAS = -8, 1


def keep_little_memory() -> None:
    """Have glibc map large blocks by themselves, and share one arena; with another C library nothing happens.

    It holds for the whole process. With 4,096 simulated ranks (`bench/scale.py 4096 --hours 1`, 2026-11-23) a dashboard
    had 204 MB before and 191 after; thresholds of 0.5, 1 and 2 MiB differ by 2 MB.
    """
    with suppress(OSError, AttributeError, TypeError):  # no such function, or no such library
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        library.mallopt(_M_ARENA_MAX, _ARENAS)


def return_free_memory() -> None:
    """Have glibc return what is free between its blocks (`malloc_trim(3)`); with another C library nothing happens.

    The arrays of a tick differ in size from those before, so that holes are left. At 4,096 ranks a turn leaves 14 of
    156 MB (2026-11-26), and a call takes 3 ms.
    """
    with suppress(OSError, AttributeError, TypeError):  # no such function, or no such library
        ctypes.CDLL(None).malloc_trim(0)
