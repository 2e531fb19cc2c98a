"""Words for sentences: ranks, spans of time, and foreign text made harmless."""

from __future__ import annotations

from collections.abc import Sequence

from ddpmon.machine import Process
from ddpmon.parts import StackFrame, Stall

_SHOWN = 6
_STACK_LINES = 16


def clean(text: str, limit: int = 120) -> str:
    """Foreign text on one line, without control characters or escape codes, at most `limit` characters long."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text[: 4 * limit]).split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def named(process: Process) -> str:
    """Pid 8123 (bob, python x.py), as far as it is visible."""
    known = ", ".join(clean(text, limit) for text, limit in ((process.user, 32), (process.command, 60)) if text)
    return f"pid {process.pid} ({known})" if known else f"pid {process.pid}"


def who(ranks: Sequence[int]) -> str:
    """Rank 2; ranks 0, 1, 3; 12 ranks (0, 1, 2, ...)."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) <= _SHOWN:
        return f"ranks {', '.join(map(str, ranks))}"
    return f"{len(ranks):,} ranks ({', '.join(map(str, ranks[:3]))}, ...)"


def does(ranks: Sequence[int], verb: str) -> str:
    """`who` with its verb, given in the plural: rank 2 waits, ranks 0, 1 wait."""
    single = {"are": "is", "were": "was", "have": "has"}.get(verb, f"{verb}s")
    return f"{who(ranks)} {single if len(ranks) == 1 else verb}"


def span(seconds: float) -> str:
    """0.8 s, 45 s, 12 min, 3 h."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5970 else f"{seconds / 3600:.0f} h"


def ms(duration: float) -> str:
    """A duration in ms: 0.35 ms, 17.8 ms, 4.05 s."""
    if not abs(duration) < 999.5:
        return f"{duration / 1e3:.3g} s" if abs(duration) < 999_500 else f"{duration / 1e3:,.0f} s"
    return f"{duration:.3g} ms"


def pct(share: float) -> str:
    """A share in percent, without its sign: 0.35, 17, 100."""
    return f"{share:.2g}" if abs(share) < 99.5 else f"{share:.0f}"


def place(stall: Stall | None) -> str:
    """Where the training thread is: its innermost line that is the user's own, else its innermost; "" if unknown."""
    frames = stall.stacks[0].frames if stall is not None and stall.stacks else []
    if not frames:
        return ""
    return _line(next((frame for frame in reversed(frames) if frame.own), frames[-1]))


def stack_text(stall: Stall | None) -> str:
    """The training thread's innermost lines, most recent last; "" if unknown."""
    frames = stall.stacks[0].frames if stall is not None and stall.stacks else []
    return "\n".join(_line(frame) for frame in frames[-_STACK_LINES:])


def _line(frame: StackFrame) -> str:
    name = frame.file.replace("\\", "/").rsplit("/", 1)[-1]
    source = f": {clean(frame.source, 80)}" if frame.source.strip() else ""
    return f"{clean(name, 60)}:{frame.line} in {clean(frame.function, 60)}{source}"
