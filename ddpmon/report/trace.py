"""Where a rank is stuck, or what ended it, in words: stack lines, the flight recorder's summary, tracebacks."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ddpmon.parts import NO_ANSWER, Failure, Flight, Stack, StackFrame, Stall

LEAST_PATH = 16  # letters; then the end of the line is cut instead
HEADING = "Traceback (most recent call last)"
PLACE = re.compile(r'(\s*(?:File ")?)([^":]+)((?:", line |:)\d+.*)')


def frame_text(frame: StackFrame) -> str:
    """`train.py:41 in main: loss.backward()`, as it came: not cleaned."""
    place = f"{frame.file}:{frame.line} in {frame.function}"
    source = frame.source.strip()
    return f"{place}: {source}" if source else place


def shortened(path: str, width: int, more: str) -> str:
    """A path cut from the left to `width` letters, at a slash where there is one; `more` stands for what was cut."""
    if len(path) <= width:
        return path
    tail = path[len(path) - max(width - len(more), 0) :]
    slash = tail.find("/")
    return more + (tail[slash:] if 0 <= slash < len(tail) - 1 else tail)


def collectives(stall: Stall) -> str:
    """What the flight recorder says, one clause a process group; those with something under way come first."""
    flights = sorted(stall.flights, key=lambda flight: flight.last_enqueued <= flight.last_completed)
    return "; ".join(_flight(flight, len(flights) > 1) for flight in flights)


def _flight(flight: Flight, several: bool) -> str:
    """`last entered gloo:all_reduce #41, last completed #40`."""
    group = f"group {flight.group}: " if several and flight.group else ""
    if flight.last_enqueued < 0:
        return f"{group}no collective entered yet"
    entered = f"{group}last entered {flight.operation or 'collective'} #{flight.last_enqueued}"
    return entered + (f", last completed #{flight.last_completed}" if flight.last_completed >= 0 else "")


def device(stall: Stall) -> str:
    """How far the rank's GPU has come: `its GPU has reached forward`; "" where nothing is known of one."""
    if stall.device_error == NO_ANSWER:
        return "its GPU does not answer"
    if stall.device_error:
        return f"its GPU cannot go on: error {stall.device_error}"
    return f"its GPU has reached {stall.device_phase}" if stall.device_phase else ""


def main_stack(stall: Stall) -> Stack | None:
    """The training thread's stack."""
    return stall.stacks[0] if stall.stacks else None


def newest_own(frames: Sequence[StackFrame]) -> StackFrame | None:
    """The user's own line that was entered last."""
    return next((frame for frame in reversed(frames) if frame.own), None)


def fewer(frames: Sequence[StackFrame], room: int) -> list[StackFrame]:
    """At most `room` frames: the last one and the user's own stay longest, the oldest of a library go first."""
    keen = sorted(range(len(frames)), key=lambda place: (place == len(frames) - 1, frames[place].own, place))
    kept = set(keen[max(len(frames) - room, 0) :])
    return [frame for place, frame in enumerate(frames) if place in kept]


def failure_text(failure: Failure) -> str:
    """`RuntimeError: out of memory`."""
    return f"{failure.kind}: {failure.message}" if failure.message else failure.kind


def last_lines(failure: Failure, count: int) -> list[str]:
    """The end of the traceback, without its heading and without the exception's own words, which are said apart."""
    lines = [row for line in failure.traceback for row in line.splitlines() if row.strip()]
    lines = [row for row in lines if not row.startswith(HEADING)]
    said = failure_text(failure).splitlines()
    lines = lines[: -len(said)] if lines[-len(said) :] == said else lines
    return lines[-count:] if count > 0 else []


def shortened_place(line: str, width: int, more: str) -> str:
    """A line of a stack or a traceback whose file, where it names one, is cut from the left to show the rest."""
    found = PLACE.fullmatch(line)
    if found is None:
        return line
    before, path, behind = found.groups()
    return before + shortened(path, max(width - len(before) - len(behind), LEAST_PATH), more) + behind
