"""Where a rank stands while no step finishes: its phase, its stack, and how far its GPU has come."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct

from ddpmon.diagnose.waiting import device_error, device_phase, is_broken, is_device_stuck
from ddpmon.parts import StackFrame
from ddpmon.schema import RankFrame

DeviceState = Literal["", "broken", "no_answer", "stuck"]


class RankPosition(Struct, frozen=True):
    """Where one rank stands.

    Attributes:
        host, pid: its process.
        phase: of its CPU, in the words of `RankFrame.phase`.
        stack: of its training thread, most recent call last; empty if it is unknown.
        device: "broken" cannot go on, the driver of "no_answer" does not answer, "stuck" is at work that the CPU has
            left behind; "" is none of these, or there is no GPU.
        device_phase: the phase that its GPU has reached, "" if it is unknown.
        device_error: why its GPU cannot go on, or `NO_ANSWER`; "" if neither.
    """

    host: str
    pid: int
    phase: str
    stack: tuple[StackFrame, ...] = ()
    device: DeviceState = ""
    device_phase: str = ""
    device_error: str = ""


def position_of(frame: RankFrame) -> RankPosition:
    """Where the rank of this frame stands."""
    return RankPosition(
        host=frame.host,
        pid=frame.pid,
        phase=frame.phase,
        stack=stack_of(frame),
        device=_device_state(frame),
        device_phase=device_phase(frame),
        device_error=device_error(frame),
    )


def _device_state(frame: RankFrame) -> DeviceState:
    if is_broken(frame):
        return "broken"
    if device_error(frame):
        return "no_answer"
    return "stuck" if is_device_stuck(frame) else ""


def stack_of(frame: RankFrame) -> tuple[StackFrame, ...]:
    """The stack of the training thread, most recent call last; empty if it is unknown."""
    return tuple(frame.stall.stacks[0].frames) if frame.stall is not None and frame.stall.stacks else ()


def own_line(stack: Sequence[StackFrame]) -> StackFrame | None:
    """The innermost line that is the user's own, else the innermost; None of an empty stack."""
    return next((line for line in reversed(stack) if line.own), stack[-1] if stack else None)


def first_line(frames: Iterable[RankFrame]) -> StackFrame | None:
    """The own line of the first of these ranks whose stack is known."""
    return next(filter(None, (own_line(stack_of(frame)) for frame in frames)), None)
