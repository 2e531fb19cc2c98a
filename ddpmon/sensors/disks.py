"""The file systems that matter to a run, and the devices under them."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ddpmon.machine import Disk
from ddpmon.parts import wire_text
from ddpmon.sensors.reading import NotYet, Rate, read_file

_ESCAPE = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """One line of mountinfo. `root` is the folder within the file system that is mounted on `point`."""

    device: str
    root: str
    point: str
    kind: str
    source: str
    options: str


def mounts(path: str) -> list[Mount]:
    """What a mountinfo file lists, in its order.

    Raises:
        OSError: it cannot be read.
    """
    lines = (line.partition(" - ") for line in read_file(path).splitlines())
    pairs = [(here.split(" "), there.split(" ")) for here, _, there in lines]
    return [
        Mount(here[2], _plain(here[3]), _plain(here[4]), there[0], _plain(there[1]), there[-1])
        for here, there in pairs
        if len(here) > 4 and len(there) > 1
    ]


def _plain(text: str) -> str:
    """A mountinfo field without its octal escapes."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)


class FolderSensor:
    """Reads the file system under one folder. A server that is gone may block the reading without end.

    Args:
        use: what the run needs the folder for.
        folder: it may come to be later; until then the nearest folder above it counts.
    """

    def __init__(self, use: str, folder: str) -> None:
        self._use, self._folder = use, folder
        self._device: DeviceSensor | None = None

    def read(self) -> Disk:
        """The figures now; a wait without requests is None.

        Raises:
            OSError: it cannot be read.
        """
        path = Path(self._folder).resolve()
        while not path.exists():
            path = path.parent
        space = os.statvfs(path)
        mount, numbers = _place(path)
        if self._device is None or self._device.numbers != numbers:
            self._device = DeviceSensor(numbers)
        busy, read_wait, write_wait = self._device.read()
        return Disk(
            path=wire_text(mount),
            uses=[wire_text(self._use)],
            total=space.f_blocks * space.f_frsize or None,
            free=space.f_bavail * space.f_frsize if space.f_blocks else None,
            device=self._device.name,
            busy_pct=busy,
            read_wait_ms=read_wait,
            write_wait_ms=write_wait,
        )


class DeviceSensor:
    """Reads a block device.

    Attributes:
        numbers: its major and minor number, as "8:1".
        name: that of the whole disk, or of what several disks form; None where there is no device.
    """

    def __init__(self, numbers: str) -> None:
        self.numbers = numbers
        folder = _device(numbers)
        self.name = wire_text(folder.name) if folder else None
        self._stat = f"{folder}/stat" if folder else None
        self._busy = Rate()
        self._before: list[int] | None = None

    def read(self) -> tuple[float | None, float | None, float | None]:
        """Percent busy, and the mean ms that a read and a write took, since the reading before."""
        if self._stat is None:
            return None, None, None
        now = [int(field) for field in read_file(self._stat).split()]
        before, self._before = self._before or now, now
        busy = None
        with suppress(NotYet):
            busy = min(100.0, self._busy(now[9]) / 10)
        return busy, _mean(before, now, 0), _mean(before, now, 4)


def _mean(before: list[int], now: list[int], at: int) -> float | None:
    """Ms a request, from the count at `at` and the time three fields on; None without requests."""
    count = now[at] - before[at]
    return max(0, now[at + 3] - before[at + 3]) / count if count > 0 else None


def _place(path: Path) -> tuple[str, str]:
    """The mount point above a path, and the numbers of its device."""
    above = {str(path), *map(str, path.parents)}
    found = [mount for mount in mounts("/proc/self/mountinfo") if mount.point in above]
    if not found:
        return str(path), ""
    mount = max(reversed(found), key=lambda mount: len(mount.point))  # of several on one point the last covers the rest
    if mount.device.startswith("0:") and mount.source.startswith("/dev/"):  # such as btrfs
        with suppress(OSError):
            number = Path(mount.source).stat().st_rdev
            return mount.point, f"{os.major(number)}:{os.minor(number)}"
    return mount.point, mount.device


def _device(numbers: str) -> Path | None:
    """A device's folder: of a partition the disk, of a mapping what it maps as long as that is one."""
    folder = Path("/sys/dev/block", numbers)
    if not numbers or not folder.exists():
        return None
    folder = folder.resolve()
    for _ in range(8):
        below = list((folder / "slaves").iterdir()) if (folder / "slaves").is_dir() else []
        if (folder / "partition").exists():
            folder = folder.parent
        elif len(below) == 1:
            folder = below[0].resolve()
        else:
            break
    return folder
