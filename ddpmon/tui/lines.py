"""A line is a list of segments; these put them together to an exact width."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style

Line = list[Segment]


def width_of(line: Iterable[Segment]) -> int:
    """How many cells a line takes."""
    return sum(segment.cell_length for segment in line)


def fit(line: Line, width: int, style: Style | None = None) -> Line:
    """Crop or pad a line to exactly `width` cells."""
    return Segment.adjust_line_length(line, width, style=style or Style.null(), pad=True)


def cut(line: Line, width: int, more: Segment) -> Line:
    """Crop or pad a line to exactly `width` cells, ending in `more` where something was cut."""
    if width_of(line) <= width:
        return fit(line, width)
    return fit([*fit(line, max(width - more.cell_length, 0)), more], width)


def blank(width: int) -> Line:
    """An empty line."""
    return [Segment(" " * width, Style.null())]


def fit_all(lines: Sequence[Line], width: int, height: int) -> list[Line]:
    """Crop or pad a block of lines to exactly width x height."""
    fitted = [fit(line, width) for line in lines[:height]]
    return fitted + [blank(width) for _ in range(height - len(fitted))]


def spread(left: Line, right: Line, width: int) -> Line:
    """`left` at the left, `right` at the right; where both do not fit, the left one is cut."""
    room = width - width_of(right)
    if room <= 0:
        return fit(right, width)
    return [*fit(left, max(room - 1, 0)), Segment(" ", Style.null()), *right]


def merged(line: Iterable[Segment]) -> Line:
    """Neighbours of one style as one segment, and blanks in the style before them where that changes nothing.

    Each segment costs some 40 bytes of colours on its way to the terminal.
    """
    whole: Line = []
    for text, style, _ in line:
        last = whole[-1] if whole else None
        if last is not None and (style == last.style or (text.isspace() and _bare(style) and _bare(last.style))):
            whole[-1] = Segment(last.text + text, last.style)
        elif text:
            whole.append(Segment(text, style))
    return whole


def _bare(style: Style | None) -> bool:
    """A blank in this style looks like any other blank."""
    return style is None or not (style.bgcolor or style.underline or style.reverse)


def joined(parts: Iterable[Line], between: Segment) -> Line:
    """Parts with a separator between them."""
    line: Line = []
    for part in parts:
        if line and part:
            line.append(between)
        line.extend(part)
    return line


def wrap(text: str, width: int) -> list[str]:
    """Break a sentence at spaces to lines of at most `width` cells; units stay with numbers, longer words are cut."""
    from rich.cells import cell_len, chop_cells

    lines: list[str] = []
    for word in re.split(r"\s+(?!(?:%|ms|s)(?!\w))", text.strip()):
        if lines and cell_len(lines[-1]) + 1 + cell_len(word) <= width:
            lines[-1] += " " + word
        else:
            lines.extend(chop_cells(word, max(width, 1)))
    return lines or [""]


def clip(text: str, width: int, more: str = "…") -> str:
    """Cut text to `width` cells, ending in `more` where something was cut."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(width - len(more), 0)) + more[: max(width, 0)]


def left(text: str, width: int, more: str = "…") -> str:
    """Text cut or padded at the right to exactly `width` cells."""
    return set_cell_size(clip(text, width, more), max(width, 0))
