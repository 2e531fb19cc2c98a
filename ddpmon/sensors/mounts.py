"""What is mounted where."""

from __future__ import annotations

import re
from typing import NamedTuple

from ddpmon.sensors.reading import read_file

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
