"""The dumps in a folder: one file a rank, each read by a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct, field

from ddpmon.flight.unpickle import MOST_TEXT

MOST_BYTES = 256 << 20  # of a file; 20,000 entries with stacks are about 20 MB
MOST_ANSWER = 64 << 20
LIMIT_S = 120.0  # for one file, in which its CPU time may be 60 s
_NAME = re.compile(r"(.*?)(\d{1,6})(?:\.(?:pkl|pickle|json|bin))?", re.DOTALL)
_PROGRAM = Path(__file__).with_name("unpickle.py")
Text = Annotated[str, Meta(max_length=2 * MOST_TEXT)]
Frame = tuple[Text, int, Text]  # file, line, function


class Entry(Struct, frozen=True):
    """One collective as a rank has recorded it; `number` counts those of its group, from 1, -1 for unknown."""

    pg_id: Text
    group: Text
    purpose: Text
    number: int
    is_p2p: bool
    operation: Text
    state: Text
    retired: bool
    sizes: list[list[int]] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        """Whether it has completed: Gloo only retires what is done, NCCL's state says so."""
        return self.retired or self.state == "completed"


class Members(Struct, frozen=True):
    """Who belongs to a group, as one rank knows it."""

    group: Text
    purpose: Text
    ranks: list[int]


class Dump(Struct, frozen=True):
    """What a rank has recorded; `status` is the number of the last collective entered, by `pg_id`."""

    version: Text
    groups: list[Members]
    status: dict[str, int]
    entries: list[Entry]


@dataclass(frozen=True, slots=True)
class Dumps:
    """What lies in a folder.

    Attributes:
        of: rank -> its dump.
        notes: which files could not be read, and why.
    """

    of: dict[int, Dump]
    notes: tuple[str, ...]


class NoDumpsError(ValueError):
    """There is nothing to read; the message is a sentence."""


def read_folder(folder: Path) -> Dumps:
    """Read all dumps in a folder.

    Raises:
        NoDumpsError: it is no folder, or no file in it is a dump.
    """
    try:
        files = sorted(path for path in folder.iterdir() if path.is_file())
    except OSError as error:
        raise NoDumpsError(f"{folder} cannot be read: {error.strerror or error}") from None
    chosen, notes = _chosen(files)
    if not chosen:
        raise NoDumpsError(f"{folder} has no file whose name ends in a rank, such as nccl_trace_rank_0")
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        read = dict(zip(chosen, pool.map(_read, chosen.values()), strict=True))
    found = {rank: dump for rank, dump in read.items() if isinstance(dump, Dump)}
    notes += [f"{chosen[rank].name} cannot be read: {why}" for rank, why in read.items() if isinstance(why, str)]
    if not found:
        raise NoDumpsError("\n".join([f"no file in {folder} is a dump of torch's flight recorder", *notes[:8]]))
    return Dumps(found, tuple(notes))


def _chosen(files: Sequence[Path]) -> tuple[dict[int, Path], list[str]]:
    """Rank -> file, of the newest dumps where there are several sets; and what was left out."""
    sets: dict[str, dict[int, Path]] = {}
    for path, prefix, rank in _named(files):
        sets.setdefault(prefix, {})[rank] = path
    if not sets:
        return {}, []
    newest = max(sets, key=lambda prefix: max(path.stat().st_mtime for path in sets[prefix].values()))
    others = sorted(prefix for prefix in sets if prefix != newest)
    notes = [f"only the newest files are read, {newest}*, and not {', '.join(others[:4])}*"] if others else []
    return dict(sorted(sets[newest].items())), notes


def _named(files: Sequence[Path]) -> Iterator[tuple[Path, str, int]]:
    for path in files:
        found = _NAME.fullmatch(path.name)
        if found:
            yield path, found[1], int(found[2])


def _read(path: Path) -> Dump | str:
    """The dump, or why there is none."""
    try:
        if path.stat().st_size > MOST_BYTES:
            return f"it is larger than {MOST_BYTES >> 20} MiB"
        code, answer = _answer(path)
        if len(answer) > MOST_ANSWER:
            return f"its reader's answer is larger than {MOST_ANSWER >> 20} MiB"
        if code:
            return answer[:MOST_TEXT].decode("utf-8", "replace") or f"its reader ended with code {code}"
        return msgspec.json.decode(answer, type=Dump)
    except subprocess.TimeoutExpired:
        return f"it took longer than {LIMIT_S:.0f} s"
    except (OSError, ValueError, RecursionError) as error:
        return str(error)


def _answer(path: Path) -> tuple[int, bytes]:
    """The exit code and the answer of the process that reads a file; one that says too much is ended.

    Raises:
        TimeoutExpired: it took too long and was ended.
    """
    with path.open("rb") as file:
        process = subprocess.Popen(
            [sys.executable, "-I", str(_PROGRAM)], stdin=file, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env={"LC_ALL": "C.UTF-8"}, cwd="/",
        )  # fmt: skip
    late = threading.Event()

    def end() -> None:
        late.set()
        process.kill()

    timer = threading.Timer(LIMIT_S, end)
    timer.start()
    with process:
        assert process.stdout is not None
        answer = process.stdout.read(MOST_ANSWER + 1)
        if len(answer) > MOST_ANSWER:
            process.kill()
        process.wait()
        timer.cancel()
    if late.is_set():
        raise subprocess.TimeoutExpired(process.args, LIMIT_S)
    return process.returncode, answer
