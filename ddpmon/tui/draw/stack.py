"""Where a rank is stuck, and what ended one: stacks and tracebacks, as many lines as there is room for."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.segment import Segment

from ddpmon.format import age, count
from ddpmon.parts import Failure, Stack, StackFrame, Stall
from ddpmon.report.trace import (
    collectives,
    device,
    failure_text,
    fewer,
    last_lines,
    main_stack,
    newest_own,
    shortened,
    shortened_place,
)
from ddpmon.tui.draw.panel import title
from ddpmon.tui.lines import Line, clip, fit, left, wrap
from ddpmon.tui.look import Look

MESSAGE_ROWS = 3
PLACE_SHARE = 0.55  # of the width at most: the rest is for the source
LEAST_OTHER = 3  # lines below which another thread's stack is not begun


def stall_lines(stall: Stall, width: int, room: int, look: Look) -> list[Line]:
    """The training thread's stack, most recent call last, and under it what the GPU and the flight recorder say."""
    stack, said = main_stack(stall), "; ".join(filter(None, (device(stall), collectives(stall))))
    if room < 2:
        return []
    flight = [_flight(said, width, look)] if said and room >= 3 else []
    when = f"no step for {age(stall.seconds, look.unknown)}"
    if stack is None:
        graph = stall.graph_replay_s is not None
        why = "not measured: a CUDA graph" if graph else "its stack could not be read"
        nothing: Line = [Segment(f"  {why}", look.dim)]
        return [title(when, "", width, look), nothing, *flight]
    name = f"{when}: {look.clean(stack.thread)}" if stack.thread else when
    return [*_stack(stack, name, width, room - len(flight), look), *flight]


def other_threads(stall: Stall, width: int, room: int, look: Look) -> list[Line]:
    """The stacks of the process's other threads, as far as there is room for them."""
    lines: list[Line] = []
    for stack in stall.stacks[1:]:
        if room - len(lines) < LEAST_OTHER:
            break
        lines += _stack(stack, f"thread {look.clean(stack.thread)}", width, room - len(lines), look)
    return lines


def failure_lines(failure: Failure, width: int, room: int, look: Look) -> list[Line]:
    """Exception type, message, and the end of the traceback."""
    if room < 2:
        return []
    at = f"failed at step {count(failure.step)}" if failure.step >= 0 else "failed before its first step"
    lines = [title(at, "most recent call last", width, look)]
    said = look.clean(failure_text(failure))
    message = [[Segment(f"  {row}", look.broken)] for row in wrap(said, width - 4)[: min(MESSAGE_ROWS, room - 1)]]
    trace = [look.clean(line.expandtabs(2)) for line in last_lines(failure, room - 1 - len(message))]
    trace = [shortened_place(line, width - 3, look.cut) for line in trace]
    traceback = [[Segment(clip(f"  {line}", width - 1, look.glyphs.more), look.text)] for line in trace]
    return [fit(line, width) for line in (*lines, *message, *traceback)]


def _flight(said: str, width: int, look: Look) -> Line:
    said = clip(look.clean(said), width - 4, look.glyphs.more)
    return fit([Segment(f" {look.glyphs.note} ", look.dim), Segment(said, look.text)], width)


def _stack(stack: Stack, name: str, width: int, room: int, look: Look) -> list[Line]:
    """A title and the frames, the user's own bright and marked, the newest of them with the accent."""
    frames = fewer(stack.frames, room - 1)
    left_out = len(stack.frames) - len(frames)
    remark = f"{len(frames)} of {len(stack.frames)} calls" if left_out else "most recent call last"
    places = _places(frames, int(width * PLACE_SHARE) - 4, look)
    wide = max((cell_len(place) for place in places), default=0)
    own = newest_own(frames)
    lines = [title(name, remark, width, look)]
    for frame, place in zip(frames, places, strict=True):
        sign = look.glyphs.mark if frame is own else look.glyphs.note if frame.own else " "
        mark = Segment(f" {sign} ", look.accent if frame is own else look.dim)
        source = clip(look.clean(frame.source.strip()), max(width - wide - 6, 0), look.glyphs.more)
        tone = look.strong if frame is own else look.text if frame.own else look.dim
        where = Segment(left(place, wide, look.glyphs.more) + "  ", look.text if frame.own else look.dim)
        lines.append(fit([mark, where, Segment(source, tone)], width))
    return lines


def _places(frames: Sequence[StackFrame], width: int, look: Look) -> list[str]:
    """`file:line in function`, the file cut from the left where that is too long."""
    places = []
    for frame in frames:
        behind = f":{frame.line} in {look.clean(frame.function)}"
        room = max(width - cell_len(behind), 8)
        places.append(clip(shortened(look.clean(frame.file), room, look.cut) + behind, width, look.glyphs.more))
    return places
