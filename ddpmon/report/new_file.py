"""Files that a user asks for: named after a run and never written over another, or replaced once they are whole."""

from __future__ import annotations

import itertools
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ddpmon.snapshot import RunView

_LONGEST_NAME = 80


def stem_of(what: str, run: RunView) -> str:
    """The name of a file without its ending: `report-my-run-step-1200`; a run may call itself anything."""
    name = re.sub(r"[^\w.-]+", "-", run.name, flags=re.ASCII)[:_LONGEST_NAME].strip(".-") or "run"
    return f"{what}-{name}-step-{run.step if run.step is not None else 0}"


def write_new(stem: str, suffix: str, text: str) -> Path:
    """Write a new file into the current folder; if there is one of that name, a number is added. Returns its path.

    Raises:
        OSError: it cannot be written.
    """
    for number in itertools.count(1):
        path = Path(f"{stem}{'' if number == 1 else f'-{number}'}{suffix}").absolute()
        try:
            with path.open("x", encoding="utf-8", errors="replace", newline="") as file:
                file.write(text)
        except FileExistsError:
            continue
        return path
    raise AssertionError("unreachable")


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file to write, which takes the place of `path` once it is whole; after an error nothing has changed.

    What is no regular file, such as a pipe, is written itself.

    Raises:
        OSError: it cannot be written.
    """
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    path = path.resolve()  # of a link, the file that it leads to
    part = path.with_name(f".ddpmon-{os.getpid()}.part")
    try:
        with _new(part, path) as file:
            yield file
        if path.exists():
            shutil.copymode(path, part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _new(part: Path, path: Path) -> BinaryIO:
    try:
        return part.open("xb")
    except OSError as error:  # the user has not asked for `part`
        raise OSError(error.errno, error.strerror, str(path)) from error
