"""The key line: only keys that do something now, the most useful first."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment

from ddpmon.tui.lines import Line, fit, width_of
from ddpmon.tui.look import Look

Keys = Sequence[tuple[str, str]]


def footer_line(keys: Keys, width: int, look: Look) -> Line:
    """`1 overview   5 findings   / filter ...`, and always, at the end, how to quit."""
    *others, last = keys
    for gap in (3, 2):
        for keep in range(len(others), -1, -1):
            line = _line([*others[:keep], last], gap, look)
            if width_of(line) <= width and (keep == len(others) or gap == 2):
                return fit(line, width)
    return fit(_line([last], 2, look), width)


def _line(keys: Keys, gap: int, look: Look) -> Line:
    line: Line = [Segment(" ", look.text)]
    for place, (key, what) in enumerate(keys):
        if place:
            line.append(Segment(" " * gap, look.text))
        line += [Segment(key, look.strong), Segment(f" {what}", look.dim)]
    return line
