"""One rank's step as a bar: work from the left in shades of one hue, waiting as a thin dashed line on the right."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from rich.segment import Segment
from rich.style import Style

from ddpmon.schema import PHASES
from ddpmon.tui.lines import Line, joined
from ddpmon.tui.theme import Look, ink

SEEN = 0.5  # of a cell: what takes so much has a cell, so that equal ranks look equal
LATER = "late"  # what the accent in a bar means
NAMES = (PHASES, ("in", "fw", "bw", "op", "ot"))  # of the phases in full, and in short


def bar(
    phases: Sequence[float],
    wait: float,
    scale: float,
    width: int,
    look: Look,
    excess: Sequence[float] = (),
    rare: Sequence[float] = (),
) -> Line:
    """Draw one bar of `width` cells.

    Args:
        phases: ms of input, forward, backward, optimizer, other; NaN where unknown.
        wait: ms of waiting.
        scale: ms that the full width stands for.
        width: cells.
        look: colours and glyphs.
        excess: ms of each phase that are lateness, drawn in the accent at its end; empty for none.
        rare: ms that late steps add to each phase on average, drawn thinner behind it; empty for none.
    """
    if not (scale > 0 and math.isfinite(scale)):
        return [Segment(" " * width, look.text)]
    parts = [*_work(phases, look, excess, rare), (wait, look.glyphs.wait, look.dim)]
    ends = accumulate(max(ms, 0.0) if math.isfinite(ms) else 0.0 for ms, _, _ in parts)
    line: Line = []
    done = 0
    for end, (ms, glyph, style) in zip(ends, parts, strict=True):
        least = int(math.isfinite(ms) and ms / scale * width >= SEEN)
        cells = min(max(round(end / scale * width), done + least), width) - done
        if cells > 0:
            line.append(Segment(glyph * cells, style))
            done += cells
    return [*line, Segment(" " * (width - done), look.text)] if done < width else line


def _work(
    phases: Sequence[float], look: Look, excess: Sequence[float], rare: Sequence[float]
) -> list[tuple[float, str, Style]]:
    """(ms, glyph, style) of each phase, the excess behind its own, and behind that what late steps add."""
    parts = []
    for index, ms in enumerate(phases):
        more = min(excess[index], ms) if excess else 0.0
        parts.append((ms - more, look.glyphs.phases[index], ink(look.phases[index])))
        if more > 0:
            parts.append((more, look.glyphs.hot, look.accent))
        if rare and rare[index] > 0:
            parts.append((rare[index], look.glyphs.rare, look.accent))
    return parts


def legend(look: Look, width: int, scale: str, *, excess: bool = False, rare: str = "") -> Line:
    """What the shades mean, as a column heading over the bars, and where the scale ends; words give way to that.

    Args:
        look: colours and glyphs.
        width: cells.
        scale: the ms that a full bar stands for, whose unit gives way to gaps between the words.
        excess: whether bars show by how much a rank is late, in the accent.
        rare: in which part of its steps a rank is late, `1/5`, whose bar shows what these add; empty for none.
    """
    for form in _forms():
        line = _shades(look, form, excess=excess, rare=rare)
        end = f" {scale} ms" if form.has_unit else f" {scale}"
        taken = sum(segment.cell_length for segment in line)
        if taken + len(end) <= width:
            return [*line, Segment(end.rjust(width - taken), look.dim)]
    return [Segment(f"{scale} ms".rjust(width)[:width], look.dim)]


@dataclass(frozen=True, slots=True)
class _Form:
    """How a legend is written: names of phases, what is between, the name of the wait, whether the unit is there."""

    names: Sequence[str]
    gap: str = " "
    wait: str = "wait"
    has_unit: bool = True


def _forms() -> Iterator[_Form]:
    """From the most words to the fewest; all shades have a name, and gaps between, before one is left out."""
    yield from map(_Form, NAMES)
    yield _Form(NAMES[-1], wait="wt")
    yield _Form(NAMES[-1], has_unit=False)
    yield from (_Form(NAMES[-1], wait="", has_unit=unit) for unit in (True, False))
    yield _Form(NAMES[-1], "", wait="", has_unit=False)
    yield from (_Form(NAMES[-1][:many], "", wait="") for many in range(len(PHASES) - 1, 1, -1))


def _shades(look: Look, form: _Form, *, excess: bool, rare: str) -> Line:
    parts: list[Line] = [[swatch(index, look), Segment(name, look.dim)] for index, name in enumerate(form.names)]
    if excess:
        sign = look.glyphs.swatch if look.smooth else look.glyphs.hot
        parts.append([Segment(sign, look.accent), Segment(LATER, look.dim)])
    if rare:
        word = f"{LATER} {rare}" if form.names is PHASES else rare
        parts.append([Segment(look.glyphs.rare, look.accent), Segment(word, look.dim)])
    parts += [[Segment(f"{look.glyphs.wait}{form.wait}", look.dim)]] if form.wait else []
    return joined(parts, Segment(form.gap, look.dim))


def swatch(index: int, look: Look) -> Segment:
    """The sign of a phase in its shade."""
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
