"""Files that a user asks for: named after a run and never written over another, or replaced once they are whole."""

from __future__ import annotations

import itertools
import os
import re
import secrets
import shutil
import tempfile
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

    Where no file can be made beside an existing one or put in its place, such as of a file that is mounted alone, the
    whole content is copied into the existing file; only a disk that is full by then can leave a part of it. What is no
    regular file, such as a pipe, is written as it comes.

    Raises:
        OSError: it cannot be written; the words say why and what to do.
    """
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    path = path.resolve()  # of a link, the file that it leads to
    part = _new_part(path)
    try:
        with part.open("wb") as file:
            yield file
        _put(part, path)
    finally:
        part.unlink(missing_ok=True)


def _new_part(path: Path) -> Path:
    """A new file beside `path`; one among the temporary files where none can be made there, and `path` can be written.

    Raises:
        OSError: neither.
    """
    part = path.with_name(f".ddpmon-{os.getpid()}-{secrets.token_hex(4)}.part")
    try:
        part.open("xb").close()
    except OSError as error:
        if not os.access(path, os.W_OK):
            raise _told(error, path, "no file can be made in") from error
        number, name = tempfile.mkstemp(prefix="ddpmon-", suffix=".part")
        os.close(number)
        return Path(name)
    return part


def _put(part: Path, path: Path) -> None:
    """Move a whole file to `path`, with the mode of what is there; copy it into what cannot be replaced.

    Raises:
        OSError: neither can be done.
    """
    try:
        if path.exists():
            shutil.copymode(path, part)
        part.replace(path)
    except OSError as error:
        if not os.access(path, os.W_OK):
            raise _told(error, path, "no file can be replaced in") from error
        with part.open("rb") as whole, path.open("wb") as file:
            shutil.copyfileobj(whole, file)


def _told(error: OSError, path: Path, what: str) -> OSError:
    """The same error of the file that the user has asked for, with what to do: its temporary file nobody knows."""
    words = f"{what} the folder {path.parent} ({error.strerror}); give a file in a folder that you can write to"
    return OSError(error.errno, words, str(path))
