"""Python stacks of this process, read from outside the threads that are in them."""

from __future__ import annotations

import linecache
import opcode
import sys
import sysconfig
import threading
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import msgspec
import torch

import ddpmon
from ddpmon.parts import Stack, StackFrame
from ddpmon.probe.text import plain

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


def capture(training: int) -> list[Stack]:
    """The stacks of all threads but ours, without source lines: the training thread's first, the main one's for lack.

    Args:
        training: the training thread's identifier.
    """
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = {n: frame for n, frame in sys._current_frames().items() if not names.get(n, "").startswith(_OURS)}
    first = training if training in frames else threading.main_thread().ident
    order = sorted(frames, key=lambda number: (number != first, number))[:_MAX_STACKS]
    return [Stack(plain(names.get(number, f"thread {number}")), _unwind(frames[number])) for number in order]


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
                plain(code.co_filename[-_FILE:]),
                max(0, frame.f_lineno or 0),
                plain(function, _FUNCTION),
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
        return plain(linecache.getline(*place).strip(), _SOURCE)
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
