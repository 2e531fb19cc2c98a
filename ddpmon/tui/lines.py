"""A line is a list of segments; these put them together to an exact width."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.segment import Segment
from rich.style import Style

Line = list[Segment]
_UNITS = "%|[µm]?s|min|h|d|[KMGT]i?B|k?W|[MG]Hz|°C|(?:GPU|rank)-h"
_WORDS = re.compile(rf"(?:`[^`]*`|(?<=\d) (?:{_UNITS})(?!\w)|\S)+")  # what `wrap` keeps together
_CLAUSE_ENDS = re.compile(r"[;:] | \(")
_STATEMENT_ENDS = re.compile(r"(?:;|(?<=\.)) ")
_QUOTED = re.compile(r": |`|\([^)]*$")  # behind these a `;` or a stop may be that of a command or of an error's words
_LEADING = re.compile(r"(?: \([^)]*| (?:at|by|for|from|in|of|on|the|to|with))+$")
_NOTHING = Style(reverse=True)  # of no text: what begins a line is never added to it
cells_of = lru_cache(maxsize=16_384)(cell_len)  # a tick measures some 4,000 texts, most of which it has measured before


def width_of(line: Iterable[Segment]) -> int:
    """How many cells a line takes."""
    return sum([cells_of(text) for text, _, _ in line])


def fit(line: Line, width: int) -> Line:
    """Crop or pad a line to exactly `width` cells; a line that has this width is returned as it is."""
    missing = width - width_of(line)
    if missing < 0:
        return Segment.adjust_line_length(line, width, style=Style.null(), pad=True)
    return [*line, Segment(" " * missing, Style.null())] if missing else line


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
    texts = [""]
    tone: Style | None = _NOTHING
    for text, style, _ in line:
        if style is tone or (text.isspace() and _bare(style) and _bare(tone)):
            texts.append(text)
        elif text:
            whole.append(Segment("".join(texts), tone))
            texts, tone = [text], style
    return [*whole[1:], Segment("".join(texts), tone)]


@lru_cache(maxsize=4096)
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
    """Break a sentence at spaces to lines of at most `width` cells; longer words are cut.

    Units stay with their numbers, and a command between backquotes stands whole in a line if it fits into one.
    """
    return list(_wrapped(text, width))


@lru_cache(maxsize=512)  # the sentences of the findings hardly change from one tick to the next
def _wrapped(text: str, width: int) -> tuple[str, ...]:
    lines: list[str] = []
    whole = _WORDS.findall(" ".join(text.split()))
    for word in (part for each in whole for part in ([each] if cell_len(each) <= width else each.split())):
        if lines and cell_len(lines[-1]) + 1 + cell_len(word) <= width:
            lines[-1] += " " + word
        else:
            lines.extend(chop_cells(word, max(width, 1)))
    return tuple(lines) or ("",)


def clip(text: str, width: int, more: str = "…") -> str:
    """Cut text to `width` cells, ending in `more` where something was cut."""
    if cells_of(text) <= width:
        return text
    return set_cell_size(text, max(width - len(more), 0)) + more[: max(width, 0)]


def clip_words(text: str, width: int, more: str = "…") -> str:
    """Text cut to `width` cells behind a whole word, then ` …`; a first word without room is cut itself."""
    if cells_of(text) <= width:
        return text
    first = wrap(text, width - cells_of(more) - 1)[0]
    return f"{first.rstrip(',;:')} {more}" if text.startswith(f"{first} ") else clip(text, width, more)


def statements(text: str, width: int, most: int) -> list[str]:
    """The longest beginning of whole statements of a text that wraps into `most` lines and fills half of one.

    It is empty where there is none.
    """
    begun = [text[: found.start()] for found in _STATEMENT_ENDS.finditer(text)]
    own = [each for each in begun if not _QUOTED.search(each)]
    fitting = [each for each in own if 2 * cells_of(each) >= width and len(wrap(each, width)) <= most]
    return list(wrap(fitting[-1], width)) if fitting else []


def clip_clauses(text: str, width: int, more: str = "…") -> str:
    """Text cut behind a whole clause, before a bracket, or behind a whole word, where that fills half of `width`.

    Else a word is cut, such as a path. It never ends within a bracket, nor with a word that only leads to the next one.
    """
    if cells_of(text) <= width:
        return text
    clauses = [text[: found.start()] for found in _CLAUSE_ENDS.finditer(text)][::-1]
    words = _LEADING.sub("", clip_words(text, width, more).removesuffix(f" {more}"))
    whole = [f"{each} {more}" for each in (*clauses, words) if each.count("(") == each.count(")")]
    fitting = (each for each in whole if width // 2 <= cells_of(each) <= width)
    return next(fitting, clip(text, width, more))


def left(text: str, width: int, more: str = "…") -> str:
    """Text cut or padded at the right to exactly `width` cells."""
    missing = width - cells_of(text)
    return text + " " * missing if missing >= 0 else set_cell_size(clip(text, width, more), max(width, 0))
