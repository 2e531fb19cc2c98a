"""The thin line that separates panels, with a name at the left and a remark at the right."""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style

from ddpmon.tui.lines import Line, clip, fit, wrap
from ddpmon.tui.look import Look


def title(name: str, remark: str, width: int, look: Look) -> Line:
    """`─ ranks ─────────────── the worst first ─`."""
    rule = look.glyphs.rule
    head = f"{rule} "
    room = width - len(head) - len(name) - 4
    remark = clip(remark, max(room, 0), look.glyphs.more) if remark else ""
    tail = f" {remark} {rule}" if remark else ""
    filled = max(width - len(head) - len(name) - 1 - len(tail), 0)
    line = [Segment(head, look.faint), Segment(name + " ", look.dim), Segment(rule * filled, look.faint)]
    if remark:
        line += [Segment(f" {remark} ", look.dim), Segment(rule, look.faint)]
    return fit(line, width)


def paragraph(text: str, glyph: str, style: Style, width: int, look: Look) -> list[Line]:
    """A sentence of foreign words behind a glyph, broken into as many lines as it takes."""
    rows = wrap(look.clean(text), max(width - 4, 1))
    return [[Segment(f" {' ' if place else glyph} ", style), Segment(row, style)] for place, row in enumerate(rows)]


def axis(marks: list[tuple[int, str, bool]], width: int, look: Look) -> Line:
    """Labels under a plot: (column, text, accented) from the most to the least wanted; none overlaps another."""
    cells: list[tuple[str, bool]] = [(" ", False)] * width
    for column, text, accented in marks:
        start = max(0, min(column, width - len(text)))
        span = range(max(start - 1, 0), min(start + len(text) + 1, width))
        if len(text) > width or any(cells[place][0] != " " for place in span):
            continue
        for place, char in enumerate(text):
            cells[start + place] = (char, accented)
    return _runs(cells, look)


def _runs(cells: list[tuple[str, bool]], look: Look) -> Line:
    line: Line = []
    start = 0
    for place in range(1, len(cells) + 1):
        if place == len(cells) or cells[place][1] != cells[start][1]:
            text = "".join(char for char, _ in cells[start:place])
            line.append(Segment(text, look.accent if cells[start][1] else look.dim))
            start = place
    return line
