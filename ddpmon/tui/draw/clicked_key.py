"""Which key stands at a cell of a line: in the key line, or in brackets behind what it leads to."""

from __future__ import annotations

import re

from ddpmon.tui.lines import Line
from ddpmon.tui.theme import Look

# The keys that stand in brackets in a picture, such as `5 more [5]`. No others: texts of a run have brackets, too.
_BRACKETED = re.compile(r"\[([5v])\]")


def key_in_brackets(line: Line, x: int) -> str | None:
    """The key whose brackets lie over the cell `x`."""
    text = "".join(segment.text for segment in line)
    return next((found[1] for found in _BRACKETED.finditer(text) if found.start() <= x < found.end()), None)


def key_of_key_line(line: Line, x: int, look: Look) -> str | None:
    """The key at the cell `x` of a key line, or the first of those that the words there are about."""
    end, first = 0, None
    for text, style, _ in line:
        start, end = end, end + len(text)
        if style == look.strong:
            first = text.split(" ")[0]
        if x < end:
            return first if style != look.strong else _token_at(text, x - start)
    return None


def _token_at(text: str, x: int) -> str:
    """Of keys with blanks between them the one at a place, or behind it."""
    return next(found[0] for found in re.finditer(r"\S+", text) if x < found.end())
