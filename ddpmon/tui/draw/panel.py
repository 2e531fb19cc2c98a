"""Parts of all screens: the line between panels with a name and a remark, meters, and the footer of keys."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from rich.segment import Segment
from rich.style import Style

from ddpmon.format import plural
from ddpmon.tui.lines import Line, cells_of, clip, fit, width_of, wrap
from ddpmon.tui.theme import Look, ink

STRONG, USUAL, FAINT = 1, 2, 3  # shades of the one hue, by how much a meter should draw the eye
HEAVY, HALF, LIGHT = "━", "╸", "─"
APART = 2  # cells between two labels of an axis at least
BEHIND = 10  # cells behind the mark of a trouble without the time of day of another step. Chosen: more than a time has
TITLES = ("─ ", "- ")  # what a title line begins with
_OF_THE_TIME = " of the run's time"
Keys = Sequence[tuple[str, str]]
StyledGlyph = tuple[str, Style]
Mark = tuple[int, str, Style | None]  # a label of an axis: its column, its words, and its style where it stands out


def title(name: str, remark: str, width: int, look: Look) -> Line:
    """`─ ranks ─────────────── worst first ─`; where room is short the remark is cut, then the name."""
    remark = clip(remark, max(width - cells_of(name) - 6, 0), look.glyphs.more) if remark else ""
    return title_line(name, [Segment(remark, look.dim)] if remark else [], width, look)


def title_within(name: str, remarks: Sequence[str], width: int, look: Look) -> Line:
    """A title line whose remark is the first of these that fits, else the last one, cut."""
    fitting = (remark for remark in remarks if cells_of(name) + cells_of(remark) + 6 <= width)
    return title(name, next(fitting, remarks[-1]), width, look)


def dimmed(lines: list[Line], look: Look) -> list[Line]:
    """The same lines as values of the past: dim, but for what is fainter, and for signs and words of findings."""
    kept = (look.faint, look.accent, look.broken)
    return [[Segment(text, style if style in kept else look.dim) for text, style, _ in line] for line in lines]


def title_line(name: str, remark: Line, width: int, look: Look) -> Line:
    """The same with a remark of any styles, which is left out where it does not fit."""
    rule = look.glyphs.rule
    name = clip(name, max(width - 4, 0), look.glyphs.more)
    remark = remark if width_of(remark) + cells_of(name) + 6 <= width else []
    filled = max(width - 3 - cells_of(name) - (width_of(remark) + 3 if remark else 0), 0)
    line = [Segment(f"{rule} ", look.faint), Segment(f"{name} ", look.dim), Segment(rule * filled, look.faint)]
    if remark:
        line += [Segment(" ", look.dim), *remark, Segment(" ", look.dim), Segment(rule, look.faint)]
    return fit(line, width)


def without_heading(lines: list[Line], headings: int = 1) -> list[Line]:
    """Lines that were cut, without a title, and so many column headings at most, at their end that no row follows."""
    titles = [place for place in range(-1, -2 - headings, -1) if len(lines) >= -place and is_title(lines[place])]
    return lines[: titles[0]] if titles else lines


def is_title(line: Line) -> bool:
    """Whether a line is the title of a panel."""
    return bool(line) and line[0].text in TITLES


def paragraph(text: str, glyph: str, style: Style, width: int, look: Look) -> list[Line]:
    """A sentence of foreign words behind a glyph, broken into as many lines as it takes."""
    rows = sentence_rows(look.clean(text), max(width - 4, 1))
    return [[Segment(f" {' ' if place else glyph} ", style), Segment(row, style)] for place, row in enumerate(rows)]


def sentence_rows(text: str, width: int) -> list[str]:
    """A sentence broken into lines; what a cost is a share of is left out where that saves a line."""
    whole, brief = wrap(text, width), wrap(text.replace(_OF_THE_TIME, ""), width)
    return brief if len(brief) < len(whole) else whole


def at_standstill(rows: Sequence[Line], still: str, look: Look) -> list[Line]:
    """A picture over steps with the sign of a standstill behind each row, if `still` says that it ends in one."""
    return [[*row, Segment(look.glyphs.stalled, look.broken)] if still else row for row in rows]


def no_match(what: str, width: int, look: Look) -> list[Line]:
    """That the filter fits none of `what`, and how to be rid of it, in every view."""
    return paragraph(f"no {what} matches; / esc drops the filter", " ", look.dim, width, look)


def narrowed(wanted: str, shown: int, total: int, look: Look, what: str = "") -> str:
    """`filter late>10: 3 of 8 findings`: what the filter leaves of a list, in every view; empty without a filter.

    `filter late>10: nothing to count` of an empty list. `what` is the name of one of its rows.
    """
    if not wanted:
        return ""
    counted = f"{shown:,} of {plural(total, what) if what else f'{total:,}'}" if total else "nothing to count"
    return f"filter {look.clean(wanted)}: {counted}"


def beginning(
    first: Sequence[str], onsets: Sequence[tuple[int, str]], width: int, look: Look, sign: StyledGlyph | None = None
) -> list[Mark]:
    """Labels of an axis: its first step, and where troubles began: `step 133 · ▲ since 60`, `▲ 812`, `812 ▲`.

    A sign stands over its step, and its step at the side that has room; without any the sign stands alone.

    Args:
        first: the labels of the first step, from the longest to the shortest, its number. The longest one stands there
            that leaves the troubles their room.
        onsets: the column and the label of each trouble, the column below 0 of one that began before the first step.
        width: cells of the axis.
        look: how it is drawn.
        sign: of the troubles, with its style; None for that of a warning.
    """
    glyph, style = sign or (look.glyphs.mark, look.accent)
    inside: list[Mark] = [(*_at(column, text, width, glyph), style) for column, text in onsets if column >= 0]
    alone: list[Mark] = [(column, glyph, style) for column, _ in onsets if column >= 0]
    before = next((text for column, text in onsets if column < 0), None)
    if before is not None:
        return [(0, _with_earlier(first, before, width, look, glyph), style), *inside, *alone]
    nearest = min(inside, key=lambda each: each[:2], default=(width, "", None))
    label = next((each for each in first if len(each) + APART <= nearest[0] or not inside), None)
    if label is not None:
        return [(0, label, None), *inside, *alone]
    joined = (nearest[0], _joined(nearest, first, width, look), style)
    return [joined, *(each for each in inside if each is not nearest), *alone]


def _with_earlier(first: Sequence[str], before: str, width: int, look: Look, sign: str) -> str:
    """The first step with what began before it: `step 133 · ▲ since 60`, in short `133 · ▲ 60`."""
    dot = look.glyphs.dot
    forms = [*(f"{label} {dot} {sign} since {before}" for label in first), f"{first[-1]} {dot} {sign} {before}"]
    return next((form for form in forms if len(form) <= width * 2 // 3), forms[-1])


def _joined(nearest: Mark, first: Sequence[str], width: int, look: Look) -> str:
    """The label of the nearest trouble, which leaves the first step no room, with the first step behind it."""
    column, text, _ = nearest
    if column == 0 and text.split()[1] == first[-1]:
        return text.replace(first[-1], first[-2], 1)  # `▲ step 0`, and of a bound `▲ step 0 or before`
    forms = [f"{text} {look.glyphs.dot} {label}" for label in first[-2:]]
    return next((form for form in forms if column + len(form) <= width * 2 // 3), forms[-1])


def _at(column: int, text: str, width: int, sign: str) -> tuple[int, str]:
    """The label of what began in this column, and where it begins."""
    if column + len(sign) + 1 + len(text) <= width:
        return column, f"{sign} {text}"
    return column - len(text) - 1, f"{text} {sign}"


def axis(marks: Sequence[Mark], width: int, look: Look, times: Sequence[tuple[int, str]] = ()) -> Line:
    """Labels under a plot, from the most to the least wanted, two cells apart at least.

    The `times` of day come last, and none of them close behind a label that stands out, whose step it would seem to
    date.
    """
    cells: list[tuple[str, Style | None]] = [(" ", None)] * width
    for column, text, style in marks:
        _write(cells, column, text, style)
    for column, text in times:
        if all(style is None for _, style in cells[max(column - BEHIND, 0) : max(column, 0)]):
            _write(cells, column, text)
    return _runs(cells, look)


def _write(cells: list[tuple[str, Style | None]], column: int, text: str, style: Style | None = None) -> None:
    """Put a label into the cells of an axis, inside both ends, where it has room."""
    width = len(cells)
    start = max(0, min(column, width - len(text)))
    near = cells[max(start - APART, 0) : start + len(text) + APART]
    if len(text) <= width and all(char == " " for char, _ in near):
        cells[start : start + len(text)] = [(char, style) for char in text]


def _runs(cells: list[tuple[str, Style | None]], look: Look) -> Line:
    line: Line = []
    start = 0
    for place in range(1, len(cells) + 1):
        if place == len(cells) or cells[place][1] is not cells[start][1]:
            text = "".join(char for char, _ in cells[start:place])
            style = cells[start][1]
            line.append(Segment(text, look.dim if style is None else style))
            start = place
    return line


def meter(share: float | None, width: int, look: Look, shade: int = USUAL) -> Line:
    """A bar of `width` cells; `share` is 0..1, None or NaN where unknown, which leaves the place empty."""
    if width <= 0:
        return []
    if share is None or not math.isfinite(share):
        return [Segment(" " * width, look.text)]
    halves = round(min(max(share, 0.0), 1.0) * width * 2)
    tone = ink(look.phases[shade])
    if look.ascii_only:
        full = (halves + 1) // 2
        return [Segment("#" * full, tone), Segment(look.glyphs.grid * (width - full), look.faint)]
    level = HEAVY * (halves // 2) + HALF * (halves % 2)
    return [Segment(level, tone), Segment(LIGHT * (width - len(level)), look.faint)]


def footer_line(keys: Keys, width: int, look: Look) -> Line:
    """`1 overview   5 findings   / filter ...`, and always, at the end, how to quit."""
    return _footer(tuple(keys), width, look)


@lru_cache(maxsize=16)  # the keys of a view seldom change
def _footer(keys: tuple[tuple[str, str], ...], width: int, look: Look) -> Line:
    *others, last = keys
    for gap in (3, 2):
        for keep in range(len(others), -1, -1):
            line = _line([*others[:keep], last], gap, look)
            if width_of(line) < width and (keep == len(others) or gap == 2):
                return fit(line, width)
    return fit(_line([last], 2, look), width)


def _line(keys: Keys, gap: int, look: Look) -> Line:
    line: Line = [Segment(" ", look.text)]
    for place, (key, what) in enumerate(keys):
        if place:
            line.append(Segment(" " * gap, look.text))
        line += [Segment(key, look.strong), Segment(f" {what}", look.dim)]
    return line
