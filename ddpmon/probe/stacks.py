"""Python stacks of this process, read from outside the threads that run them, and the backend's flight recorder."""

from __future__ import annotations

import linecache
import opcode
import pickle
import sys
import sysconfig
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import msgspec
import torch

import ddpmon
from ddpmon.parts import Flight, Stack, StackFrame, wire_text

Place = tuple[str, int]  # file and line

_MAX_STACKS, _MAX_FRAMES = 8, 64
_FILE, _FUNCTION, _SOURCE = 256, 128, 160  # characters: the fullest stacks must fit into a frame
_OURS = "ddpmon-"  # how our threads are called
_TRAINER = f"{Path(ddpmon.__file__).parent}/trainer/"
_INSTALLED = ("site-packages", "dist-packages")
_FOREIGN = tuple(
    f"{Path(folder)}/"
    for folder in (
        sysconfig.get_paths()["stdlib"],
        sysconfig.get_paths()["platstdlib"],
        Path(torch.__file__).parent,
        Path(ddpmon.__file__).parent,
    )
)
_DUMPS = ("_dump_fr_trace", "_dump_nccl_trace")  # every backend with host events (torch 2.13); NCCL (torch 2.6)
_MAX_FLIGHTS = 8
_MAX_NUMBER = 1 << 48


def capture(training: int) -> list[Stack]:
    """The stacks of all threads but ours, without source lines: the training thread's first, the main one's for lack.

    Args:
        training: the training thread's identifier.
    """
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = {n: frame for n, frame in sys._current_frames().items() if not names.get(n, "").startswith(_OURS)}
    first = training if training in frames else threading.main_thread().ident
    order = sorted(frames, key=lambda number: (number != first, number))[:_MAX_STACKS]
    return [Stack(wire_text(names.get(number, f"thread {number}")), _unwind(frames[number])) for number in order]


class Position(NamedTuple):
    """Where a thread is: numbers for its newest functions and for the instruction in each.

    `turns` is whether it is at a jump, as at the turn of a loop of its own, and not within what it called.
    """

    functions: int
    instructions: int
    turns: bool


def position(thread: int) -> Position | None:
    """Where `thread` is; None once it has ended."""
    frame = newest = sys._current_frames().get(thread)
    if newest is None:
        return None
    within: list[tuple[int, int]] = []
    while frame is not None and len(within) < _MAX_FRAMES:
        within.append((id(frame.f_code), frame.f_lasti))
        frame = frame.f_back
    turns = "JUMP" in opcode.opname[newest.f_code.co_code[max(newest.f_lasti, 0)]]
    return Position(hash(tuple(code for code, _ in within)), hash(tuple(at for _, at in within)), turns)


def _unwind(frame: FrameType | None) -> list[StackFrame]:
    """The innermost frames, most recent call last."""
    found: list[StackFrame] = []
    while frame is not None and len(found) < _MAX_FRAMES:
        code = frame.f_code
        function = getattr(code, "co_qualname", code.co_name)  # from Python 3.11 on
        found.append(
            StackFrame(
                wire_text(code.co_filename[-_FILE:]),
                max(0, frame.f_lineno or 0),
                wire_text(function, _FUNCTION),
                own=is_own(code.co_filename),
            )
        )
        frame = frame.f_back
    return found[::-1]


def is_own(file: str) -> bool:
    """Whether `file` is the user's: neither Python's, nor an installed package's, nor torch's or ours.

    The trainer that is installed with ddpmon counts as a user's program.
    """
    if file.startswith("<frozen"):
        return False
    if file.startswith(_TRAINER):
        return True
    return not file.startswith(_FOREIGN) and not any(f"/{folder}/" in file for folder in _INSTALLED)


def places(stacks: list[Stack]) -> list[Place]:
    """Every file and line in these stacks, the training thread's innermost first."""
    return [(frame.file, frame.line) for stack in stacks for frame in reversed(stack.frames)]


def read_source(place: Place) -> str:
    """The line of source at `place`, "" where there is none. Reads a file: it blocks where the file system does."""
    try:
        return wire_text(linecache.getline(*place).strip(), _SOURCE)
    except Exception:
        return ""


def with_sources(stacks: list[Stack], sources: Mapping[Place, str]) -> list[Stack]:
    """The same stacks with the source lines that are known by now."""
    return [
        Stack(
            stack.thread,
            [msgspec.structs.replace(f, source=sources.get((f.file, f.line), "")) for f in stack.frames],
        )
        for stack in stacks
    ]


class FlightRecorder:
    """Reads torch's recorders during one stall: their counters at every look, their entries once.

    A dump of the entries holds the GIL for up to 20 ms (a ring of 2,000), and so does unpickling it; the counters take
    some 0.1 ms. Entries are read again only where the counters have changed since, and have come to rest.
    """

    def __init__(self) -> None:
        self._counters: Any = None
        self._entries_of: Any = None
        self._flights: list[Flight] = []

    def clear(self) -> None:
        """The stall is over."""
        self._counters = self._entries_of = None

    def look(self) -> list[Flight]:
        """One summary a process group, nothing where torch records none, or while collectives go on.

        Raises:
            Exception: whatever the recorder raises.
        """
        before, self._counters = self._counters, [_status(dump) for dump in _read(entries=False)]
        known = self._entries_of is not None and any(self._counters)
        if known and self._counters == self._entries_of:
            return self._flights
        if known and self._counters != before:
            return []
        found = [flight for dump in _read(entries=True) for flight in summarise(dump)]
        self._entries_of, self._flights = self._counters, found[:_MAX_FLIGHTS]
        return self._flights


def _read(*, entries: bool) -> Iterator[Any]:
    """What each recorder says."""
    for name in _DUMPS:
        dump = getattr(getattr(torch._C, "_distributed_c10d", None), name, None)
        if dump is not None:
            yield pickle.loads(dump(includeCollectives=entries, includeStackTraces=False))


def _status(dump: Any) -> Any:
    """The counters of all process groups; None where there are none."""
    return dump.get("pg_status") if isinstance(dump, Mapping) else None


def summarise(dump: Any) -> list[Flight]:
    """One summary a process group from an unpickled dump; what is malformed in it is passed over."""
    dump = dump if isinstance(dump, Mapping) else {}
    status = _status(dump)
    known = {str(number): value for number, value in status.items()} if isinstance(status, Mapping) else {}
    groups: dict[str, list[Mapping[str, Any]]] = {number: [] for number in known}
    for entry in _collectives(dump.get("entries")):
        groups.setdefault(str(entry.get("pg_id")), []).append(entry)
    order = sorted(groups, key=lambda number: (len(number), number))
    return [_flight(number, groups[number], known.get(number)) for number in order]


def _collectives(entries: Any) -> Iterable[Mapping[str, Any]]:
    """The entries that count: point-to-point calls have numbers of their own."""
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, Mapping) and not entry.get("is_p2p") and _number(entry.get("collective_seq_id")) >= 0:
            yield entry


def _flight(number: str, entries: list[Mapping[str, Any]], status: Any) -> Flight:
    status = status if isinstance(status, Mapping) else {}
    last = max(entries, key=_sequence, default=None)
    enqueued = max(_number(status.get("last_enqueued_collective")), -1 if last is None else _sequence(last))
    pending = [_sequence(entry) for entry in entries if not _done(entry)]
    completed = min(pending) - 1 if pending else _number(status.get("last_completed_collective"))
    return Flight(
        group=number if last is None else _name(last, number),
        last_enqueued=enqueued,
        last_completed=max(-1, completed),
        operation="" if last is None else _operation(last),
    )


def _sequence(entry: Mapping[str, Any]) -> int:
    return _number(entry.get("collective_seq_id"))


def _number(value: Any) -> int:
    return value if isinstance(value, int) and 0 <= value <= _MAX_NUMBER else -1


def _done(entry: Mapping[str, Any]) -> bool:
    """Gloo only retires what is done; NCCL's state says so before its watchdog retires it."""
    return bool(entry.get("retired")) or entry.get("state") == "completed"


def _name(entry: Mapping[str, Any], number: str) -> str:
    """The group's name, the same on all its ranks, with what it is for: such as "0 (default_pg)"."""
    group = entry.get("process_group")
    name, purpose = (*group, "", "")[:2] if isinstance(group, tuple | list) else ("", "")
    return wire_text(f"{name or number} ({purpose})" if purpose and purpose != "undefined" else f"{name or number}")


def _operation(entry: Mapping[str, Any]) -> str:
    """Such as "gloo:all_reduce [3, 2]"."""
    sizes = entry.get("input_sizes")
    shown = " ".join(str(size) for size in sizes[:4]) if isinstance(sizes, list) else ""
    return wire_text(f"{entry.get('profiling_name', '')} {shown}".strip())
