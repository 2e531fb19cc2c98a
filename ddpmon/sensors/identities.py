"""Who a process is: parents, user, program, start. Cheap for processes that have been asked for before."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ddpmon.machine import Process

if TYPE_CHECKING:
    import psutil

T = TypeVar("T")
_KEPT = 4096
_GENERATIONS = 32
_FRESH_S = 30.0  # a process may become another program without any sign of it in _Stat
_TEXT = 256
_FLAGS = {  # interpreter -> its options without a value, or with the value in the same word
    re.compile(r"(?:python|pypy)[\d.]*t?d?(?:-dbg)?"): re.compile(r"-[bBdEiIOPqRsSuvx]+|-[WX].+"),
    re.compile(r"(?:ba|da|z)?sh[\d.]*"): re.compile(r"-[aefilmnuvx]+"),
}


class _Stat(NamedTuple):
    """Of /proc/<pid>/stat what tells one process, and one program in it, from the next."""

    name: bytes
    over: bool  # a zombie: what is left of it is its number and its parent's
    parent: int
    started: int  # clock ticks since boot


class Identities:
    """Knows processes by their numbers; a number that another process has got since is noticed."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[_Stat, float, Process]] = {}

    def of(self, pid: int) -> Process:
        """Who `pid` is now. What is hidden or gone is None: all of it for a process that has ended. Never raises."""
        stat = _stat(pid)
        if stat is None:
            self._known.pop(pid, None)
            return Process(pid=pid)
        known, now = self._known.get(pid), time.monotonic()
        if known is not None and known[0] == stat and now - known[1] < _FRESH_S:
            return known[2]
        found = _read(pid, stat)
        self._known.pop(pid, None)
        if not (found.command or "").startswith("["):  # a program that is just being loaded has no words yet
            self._known[pid] = (stat, now, found)
        if len(self._known) > _KEPT:
            del self._known[next(iter(self._known))]
        return found


def has_ended(pid: int) -> bool:
    """Whether there is no such process, or only what is left of it until its parent takes notice."""
    stat = _stat(pid)
    return stat is None or stat.over


def _stat(pid: int) -> _Stat | None:
    try:
        file = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
        try:
            head, _, tail = os.read(file, 4096).rpartition(b")")
        finally:
            os.close(file)
        fields = tail.split()
        return _Stat(head.partition(b"(")[2], fields[0] in (b"Z", b"X"), int(fields[1]), int(fields[19]))
    except (OSError, ValueError, IndexError):
        return None


def _read(pid: int, stat: _Stat) -> Process:
    parents = _parents(stat.parent)
    process = None if stat.over else _attempt(lambda: _open(pid))
    if process is None:
        return Process(pid=pid, parents=parents)
    return Process(
        pid=pid,
        parents=parents,
        user=_attempt(lambda: _user(process.uids().real)),
        command=_attempt(lambda: _command(process.cmdline(), stat.name)),
        started_at=_attempt(process.create_time),
    )


def _open(pid: int) -> psutil.Process:
    import psutil

    return psutil.Process(pid)


def _parents(parent: int) -> list[int]:
    found: list[int] = []
    while parent > 0 and len(found) < _GENERATIONS:
        found.append(parent)
        stat = _stat(parent)
        parent = stat.parent if stat is not None else 0
    return found


def _command(words: list[str], name: bytes) -> str:
    """The program, and of an interpreter the script or module that it runs: other arguments may hold passwords.

    As `ps` has it, the name in brackets where there is no command line, as for the kernel's threads.
    """
    if not (words and words[0].strip()):
        return _text(f"[{name.decode('utf-8', 'replace')}]")
    is_path = words[0].startswith("/") and any(words[1:])  # else it may be the whole title of who renamed itself
    program = _base(words[0] if is_path else words[0].split()[0])
    flag = next((flag for interpreter, flag in _FLAGS.items() if interpreter.fullmatch(program)), None)
    return _text(program if flag is None else f"{program} {_script(words[1:], flag)}".strip())


def _script(words: list[str], flag: re.Pattern[str]) -> str:
    """The script or module that an interpreter runs; "" where an option comes first that may take a value."""
    first = next((place for place, word in enumerate(words) if not flag.fullmatch(word)), len(words))
    match words[first:]:
        case ["-m", module, *_]:
            return f"-m {module}"
        case [script, *_] if script == "-c" or not script.startswith(("-", "+")):  # a shell has options with a plus
            return _base(script)
    return ""


def _base(path: str) -> str:
    return path.rpartition("/")[2]


@lru_cache(maxsize=256)
def _user(number: int) -> str:
    import pwd

    try:
        return _text(pwd.getpwuid(number).pw_name)
    except KeyError:  # a user of another container, or one who has been removed
        return str(number)


def _text(text: str) -> str:
    return text[:_TEXT].encode("utf-8", "replace").decode()


def _attempt(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except Exception:
        return None
