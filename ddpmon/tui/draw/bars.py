"""One rank's step as a bar: work from the left in shades of one hue, waiting as dots on the right."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from rich.segment import Segment

from ddpmon.schema import PHASES
from ddpmon.tui.lines import Line
from ddpmon.tui.theme import Look, ink

EIGHTHS = " ▏▎▍▌▋▊▉"
NAMES = (PHASES, ("input", "fwd", "bwd", "opt", "other"), ("in", "fwd", "bwd", "opt", "oth"))
WAIT, NOTHING = len(PHASES), len(PHASES) + 1


def bar(phases: Sequence[float], wait: float, scale: float, width: int, look: Look, hot: int | None = None) -> Line:
    """Draw one bar of `width` cells.

    Args:
        phases: ms of input, forward, backward, optimizer, other; NaN where unknown.
        wait: ms of waiting.
        scale: ms that the full width stands for.
        width: cells.
        look: colours and glyphs.
        hot: index of the phase that a finding blames, drawn in the accent.
    """
    edges = _edges(phases, wait, scale, width)
    line: Line = []
    cell = 0
    while cell < width:
        first, last = bisect_right(edges, cell * 8), bisect_right(edges, cell * 8 + 7)
        if first != last:
            edge = edges[WAIT - 1] if first < WAIT <= last else edges[first]  # where work ends matters most
            line.append(_boundary(first, last, edge - cell * 8, look, hot))
            cell += 1
            continue
        end = edges[first] // 8 if first < len(edges) else width  # the cell in which this part ends
        line.append(_full(first, min(end, width) - cell, look, hot))
        cell = end
    return line


def _edges(phases: Sequence[float], wait: float, scale: float, width: int) -> list[int]:
    """Where each phase, and the waiting, ends: in eighths of a cell."""
    if not (scale > 0 and math.isfinite(scale)):
        return [0] * (len(phases) + 1)
    lengths = (max(length, 0.0) if math.isfinite(length) else 0.0 for length in (*phases, wait))
    return [min(round(end / scale * width * 8), width * 8) for end in accumulate(lengths)]


def _full(part: int, cells: int, look: Look, hot: int | None) -> Segment:
    if part == NOTHING:
        return Segment(" " * cells, look.text)
    if part == WAIT:
        return Segment(look.glyphs.dot * cells, look.faint)
    if part == hot:
        return Segment(look.glyphs.hot * cells if look.smooth else look.glyphs.phases[part] * cells, look.accent)
    return Segment(look.glyphs.phases[part] * cells, ink(look.phases[part]))


def _boundary(first: int, last: int, eighths: int, look: Look, hot: int | None) -> Segment:
    """The cell in which one part ends and another begins."""
    if not look.smooth:
        return _full(first if eighths >= 4 else last, 1, look, hot)
    eighths = max(1, min(eighths, 7))
    if first == WAIT:
        return Segment(look.glyphs.dot, look.faint)
    back = _colour(last, look, hot) if last < WAIT else None
    return Segment(EIGHTHS[eighths], ink(_colour(first, look, hot), back))


def _colour(part: int, look: Look, hot: int | None) -> str | None:
    return look.hot if part == hot else look.phases[part]


def legend(look: Look, width: int, scale_text: str) -> Line:
    """What the shades mean, as a column heading over the bars, and where the scale ends if there is room for both."""
    for names in NAMES:
        line: Line = []
        for index, name in enumerate(names):
            line += [_swatch(index, look), Segment(f"{name} ", look.dim)]
        line += [Segment(look.glyphs.dot, look.dim), Segment("wait", look.dim)]
        taken = sum(segment.cell_length for segment in line)
        if taken + len(scale_text) + 2 <= width:
            return [*line, Segment(scale_text.rjust(width - taken), look.dim)]
    if taken <= width:
        return [*line, Segment(" " * (width - taken))]
    return [Segment(scale_text.rjust(width)[:width], look.dim)]


def _swatch(index: int, look: Look) -> Segment:
    glyph = look.glyphs.swatch if look.smooth else look.glyphs.phases[index]
    return Segment(glyph, ink(look.phases[index]))


def common_scale(work: np.ndarray, wait: np.ndarray) -> float:
    """The ms that a full bar stands for: the longest step, rounded up to two digits so that it stands still."""
    total = work + np.nan_to_num(wait, nan=0.0)
    total = total[np.isfinite(total)]
    longest = float(total.max()) if total.size else 0.0
    if longest <= 0:
        return 1.0
    unit = float(10.0 ** (math.floor(math.log10(longest)) - 1)) * 2
    return math.ceil(longest / unit - 1e-9) * unit
