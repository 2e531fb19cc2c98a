"""One rank's phases over its last steps: a stacked band, and the median of the others as a line across it."""

from __future__ import annotations

import numpy as np
from rich.segment import Segment
from rich.style import Style

from ddpmon.format import count, figure, tick
from ddpmon.report.verdicts import median_of
from ddpmon.schema import PHASES
from ddpmon.snapshot import Floats, RankDetail
from ddpmon.tui.draw.panel import axis, title
from ddpmon.tui.draw.plot import GUTTER
from ddpmon.tui.lines import Line, fit_all
from ddpmon.tui.theme import Look, ink

LOWER = " ▁▂▃▄▅▆▇"
MEDIAN = "▁─▔"  # the line low, in the middle or high in its cell
MARGIN = 18  # at the right, for the latest values
WAIT, EMPTY = len(PHASES), len(PHASES) + 1


def band_lines(
    detail: RankDetail, width: int, height: int, look: Look, since: int | None = None, hot: int | None = None
) -> list[Line]:
    """Title, band and step axis; the accent marks the blamed phase and the onset."""
    lines = [title("phases over the last steps", f"{look.glyphs.median} median of the others' work", width, look)]
    columns, rows = width - GUTTER - MARGIN, height - 2
    if len(detail.step) == 0 or rows < 2 or columns < 4:
        return fit_all([*lines, [Segment("  no step of this rank on record", look.dim)]], width, height)
    stack, others, total = _folded(detail, columns)
    scale, parts = _scale(stack, others), _parts(rows, detail, hot)
    for row in range(rows):
        band = _row(row, rows, stack, others, scale, look, hot)
        lines.append(_label(row, rows, scale, look) + band + _legend(row, parts, detail, look, hot))
    lines.append(step_axis(detail, total, columns, look, since))
    return fit_all(lines, width, height)


def step_axis(detail: RankDetail, total: int, columns: int, look: Look, since: int | None) -> Line:
    """Step numbers below the band, and the onset where it is in sight."""
    first, last = int(detail.step[0]), int(detail.step[-1])
    marks = [(0, f"step {count(first)}", False), (total - len(count(last)), count(last), False)]
    if since is not None and first <= since <= last:
        place = int(np.searchsorted(detail.step, since) * total / max(len(detail.step), 1))
        marks.insert(0, (place, f"{look.glyphs.mark} {count(since)}", True))
    elif since is not None and since < first:
        marks.insert(0, (0, f"{look.glyphs.mark} since {count(since)}", True))
    return [Segment(" " * GUTTER, look.text), *axis(marks, columns, look)]


def _folded(detail: RankDetail, columns: int) -> tuple[Floats, Floats, int]:
    """Cumulated phases and wait [6, C], the others' work [C], and C: whole steps a column, or columns a step."""
    values = [np.asarray(detail.phases.get(name, np.full(len(detail.step), np.nan))) for name in PHASES]
    table = np.stack([*values, detail.wait, detail.others_work]).astype(np.float64)
    steps = table.shape[1]
    place = np.arange(columns) * steps // columns if steps < columns else np.arange(columns)
    if steps > columns:
        edges = np.arange(columns) * steps // columns
        seen = np.isfinite(table)
        number = np.add.reduceat(seen, edges, axis=1)
        summed = np.add.reduceat(np.where(seen, table, 0.0), edges, axis=1)
        table = np.where(number > 0, summed / np.maximum(number, 1), np.nan)
    folded = table[:, place]
    return np.cumsum(np.nan_to_num(folded[:-1]), axis=0), folded[-1], columns


def _scale(stack: Floats, others: Floats) -> float:
    """The ms at the top: nearly all steps fit; a lone spike is cut off rather than flattening the rest."""
    tops = stack[-1][stack[-1] > 0]
    if not tops.size:
        return 1.0
    high = max(float(np.percentile(tops, 98)), 1.15 * median_of(others[np.isfinite(others)] if others.size else others))
    return high * 1.05 if np.isfinite(high) and high > 0 else float(tops.max())


def _label(row: int, rows: int, scale: float, look: Look) -> Line:
    """A label at the top, the middle and the bottom; the unit with the top one."""
    shown = {0: tick(round(scale)) if scale >= 10 else tick(scale), rows - 1: "0 ms"}
    text = shown.get(row, "")
    return [Segment(f"{text[:5]:>5}", look.dim), Segment(f"{look.glyphs.bar} ", look.faint)]


def _latest(part: int, detail: RankDetail) -> float:
    """Milliseconds of a part, over the last 20 steps."""
    values = detail.wait if part == WAIT else detail.phases.get(PHASES[part], detail.wait[:0])
    return median_of(values[-20:].astype(np.float64))


def _parts(rows: int, detail: RankDetail, hot: int | None) -> list[int | None]:
    """[rows] the part that each row of the legend names, in the band's order: where not all fit, the longest."""
    dear = sorted(range(WAIT + 1), key=lambda part: (part == hot, np.nan_to_num(_latest(part, detail))), reverse=True)
    named = sorted(dear[:rows], reverse=True)
    return [*([None] * (rows - len(named))), *named]


def _legend(row: int, parts: list[int | None], detail: RankDetail, look: Look, hot: int | None) -> Line:
    """At the right of the band: a part and its latest milliseconds."""
    if (part := parts[row]) is None:
        return []
    recent = _latest(part, detail)
    name = "wait" if part == WAIT else PHASES[part]
    glyph = look.glyphs.dot if part == WAIT else look.glyphs.swatch if look.smooth else look.glyphs.phases[part]
    tone = look.dim if part == WAIT else look.accent if part == hot else ink(look.phases[part])
    text = look.accent if part == hot else look.dim
    return [Segment(f" {glyph} ", tone), Segment(f"{name:<9} {figure(recent, look.unknown):>5}", text)]


def _row(row: int, rows: int, stack: Floats, others: Floats, scale: float, look: Look, hot: int | None) -> Line:
    """One line of the band, neighbours of one kind merged."""
    bottom, size = (rows - 1 - row) * scale / rows, scale / rows
    low = (stack <= bottom + 1e-12).sum(axis=0)  # the part at the cell's bottom
    high = (stack <= bottom + size * 0.999).sum(axis=0)  # the part at its top
    edge = np.take_along_axis(np.vstack([stack, np.full_like(others, np.inf)]), low[None, :], axis=0)[0]
    edge = np.where((low < WAIT) & (high >= WAIT), stack[WAIT - 1], edge)  # where work ends matters most
    part = np.clip(np.nan_to_num((edge - bottom) / size * 8, posinf=8), 1, 7).astype(np.int64)
    middle = (others - bottom) / size
    median = np.where((middle >= 0) & (middle < 1), np.clip(np.nan_to_num(middle) * 3, 0, 2), -1).astype(np.int64)
    keys = list(zip(low.tolist(), high.tolist(), part.tolist(), median.tolist(), strict=True))
    line: Line = []
    start = 0
    for place in range(1, len(keys) + 1):
        if place == len(keys) or keys[place] != keys[start]:
            line.append(_cell(keys[start], place - start, look, hot))
            start = place
    return line


def _cell(key: tuple[int, int, int, int], length: int, look: Look, hot: int | None) -> Segment:
    low, high, part, median = key
    if median >= 0:
        glyph = MEDIAN[median] if look.smooth else look.glyphs.median
        return Segment(glyph * length, _over(low, look, hot))
    if not look.smooth:
        shown = low if part >= 4 else high
        return Segment(_glyph(shown, look) * length, look.text)
    if low >= WAIT:
        return Segment((look.glyphs.dot if low == WAIT else " ") * length, look.faint)
    colour = look.hot if low == hot else look.phases[low]
    if high == low:
        return Segment("█" * length, ink(colour))
    back = None if high >= WAIT else look.hot if high == hot else look.phases[high]
    return Segment(LOWER[part] * length, ink(colour, back))


def _over(low: int, look: Look, hot: int | None) -> Style:
    """The style of the median line over whatever is behind it."""
    if not look.smooth:
        return look.strong
    back = None if low >= WAIT else look.hot if low == hot else look.phases[low]
    front = look.strong.color.name if look.strong.color else None
    return ink(front if low != hot and low not in (0, 1) else "#000000", back, True)


def _glyph(part: int, look: Look) -> str:
    return look.glyphs.dot if part == WAIT else " " if part > WAIT else look.glyphs.phases[part]
