"""Plots over steps: a line, a band around it, ticks at 1-2-5; spikes survive, and missing points are gaps."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, fields, replace
from functools import lru_cache

import numpy as np
from rich.segment import Segment

from ddpmon.format import count, tick_labels
from ddpmon.snapshot import Floats
from ddpmon.tui.draw.beyond import axis_end, beyond_words, with_signs
from ddpmon.tui.draw.cells import BAND, GROUND, LIMIT, LINE, Cells, Kinds, dotted, in_ascii, with_samples
from ddpmon.tui.draw.decimation import GAP, edge_in_columns, in_columns, one_a_column, steps_a_column
from ddpmon.tui.draw.panel import StyledGlyph, at_standstill, axis, beginning, title
from ddpmon.tui.draw.scale import LABEL, Scale, ticked
from ddpmon.tui.draw.zoom import Span, column_of, in_sight, span_words, steps_in, with_span
from ddpmon.tui.lines import Line, cells_of, fit_all
from ddpmon.tui.theme import Look

GUTTER = 7
AXIS_LEAST = 5  # lines of a plot from which on it has an axis
_KEPT = 32  # plots, more than any view has: of thousands of ranks every other picture brings no new steps
RISES_LEAST = 8  # the axis goes up to the limit where the course then still rises by an eighth of its height. Chosen
TIMED_WIDE = 70  # columns from which on the axis has more than one time of day


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """One quantity over steps. Curves are equal where everything in them is, the values of each array included.

    Attributes:
        name: the panel's title.
        remark: what stands at the right of the title.
        step: step of each point, ascending.
        value: the line; NaN where missing.
        low: lower edge of the band, or None.
        high: upper edge of the band, or None.
        span: the first and last step of the axis; the points' own when None.
        span_words: which part of all steps on record it is, for the title where there is room; empty for all of them.
        source: where the values are read, for the title where there is room; empty where that needs no word.
        still: `no step for 29 s` of a run that stands still: for the title, and the end of the plot is marked.
        limit: what the value cannot exceed, such as the size of a memory: a line where the axis has room for it.
        floor: the axis reaches down to this at least.
        ceiling: the axis reaches up to this at least.
        onsets: steps that are marked on the axis. sign: of them, with its style; None for that of a warning.
        is_bound: what is marked began in these steps or before.
        times: steps with their times of day, the one that matters most first; they stand where there is room.
        is_filled: the area between the line and 0 is hatched.
        is_cut: the values are durations in ms, and the axis may end below a few that are far above all others.
        single_from: the values of steps before this one are means of several steps.
        samples: of a series that is measured in few steps what was measured, which the line holds until the next one.
    """

    name: str
    remark: str
    step: Floats
    value: Floats
    low: Floats | None = None
    high: Floats | None = None
    span: Span | None = None
    span_words: str = ""
    source: str = ""
    still: str = ""
    limit: float | None = None
    floor: float | None = None
    ceiling: float | None = None
    onsets: tuple[int, ...] = ()
    sign: StyledGlyph | None = None
    is_bound: bool = False
    times: tuple[tuple[int, str], ...] = ()
    is_filled: bool = False
    is_cut: bool = False
    single_from: float = -math.inf
    samples: Floats | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Curve) and self._content() == other._content()

    def __hash__(self) -> int:
        return hash(self._content())

    def _content(self) -> tuple[object, ...]:
        values = (getattr(self, each.name) for each in fields(self))
        return tuple([value.tobytes() if isinstance(value, np.ndarray) else value for value in values])


def plot_lines(curve: Curve, width: int, height: int, look: Look) -> list[Line]:
    """Title, plot with a free column at its right, and the axis of steps where there is room for it."""
    return [*_plotted(curve, width, height, look)]


@lru_cache(maxsize=_KEPT)
def _plotted(curve: Curve, width: int, height: int, look: Look) -> list[Line]:
    rows, columns = height - 1 - (height >= AXIS_LEAST), width - GUTTER - 1
    span, scale = _span(curve), scale_of(curve, rows)
    lines = [_title(curve, scale, columns * _fine(look), width, look)]
    if rows < 1 or columns < 2 or span is None or scale is None:
        return fit_all([*lines, [Segment(f"{look.unknown:>5}", look.dim)]], width, height)
    drawn = _said_of_ends(body(curve, columns, rows, scale, span, look), curve, span, columns, look)
    lines += at_standstill(drawn, curve.still, look)
    if rows < height - 1:
        lines.append([Segment(" " * GUTTER, look.text), *_axis(curve, span, columns, look)])
    return fit_all(lines, width, height)


def _title(curve: Curve, scale: Scale | None, dots: int, width: int, look: Look) -> Line:
    """The name, where the values are read, what lies beyond the axis, which part of the steps it is, and the remark.

    It also says how the part ends, and how the steps share columns.
    """
    beyond = "" if scale is None else said_beyond(curve, scale)[0]
    whole = f"{curve.name}: {curve.source}"
    has_room = bool(curve.source) and cells_of(whole) + cells_of(curve.remark) + 6 <= width
    name = with_span(whole if has_room else curve.name, beyond, curve.remark, width)
    name = with_span(name, curve.span_words, curve.remark, width)
    name = with_span(name, curve.still, curve.remark, width)
    return title(with_span(name, _shared_words(curve, dots, look), curve.remark, width), curve.remark, width, look)


def _shared_words(curve: Curve, dots: int, look: Look) -> str:
    """`median and range per 4 steps` of a plot with more steps than columns of dots; else empty.

    Where older steps are known as means only: `median per 22 steps, range from step 2,720`.
    """
    span = _span(curve)
    steps = 1 if span is None or dots < 2 else steps_a_column(curve.step, curve.value, dots, span)
    has_range, has_means = not look.ascii_only or curve.low is None, bool((curve.step < curve.single_from).any())
    words = f"median{' and range' if has_range and not has_means else ''} per {steps:,} steps"
    words += f", range from step {count(int(curve.single_from))}" if has_range and has_means else ""
    return words if steps > 1 and curve.samples is None else ""


def said_beyond(curve: Curve, scale: Scale) -> tuple[str, str]:
    """What to say of the highest value beyond the axis, in full and in short; empty without any."""
    return beyond_words(curve.step, _measured(curve), scale.high) if curve.is_cut else ("", "")


def zoomed_curve(curve: Curve, steps: int) -> Curve:
    """The curve over its last `steps` steps, 0 for all of them."""
    whole = _span(curve)
    span = None if whole is None else in_sight(whole, steps)
    if whole is None or span is None or span == whole:
        return curve
    here = steps_in(span, curve.step)
    optional = {name: getattr(curve, name) for name in ("low", "high", "samples")}
    cut = {name: values[here] for name, values in optional.items() if values is not None}
    shown = replace(curve, step=curve.step[here], value=curve.value[here], span=span, **cut)
    return replace(shown, span_words=span_words(span, whole))


def _said_of_ends(rows: list[Line], curve: Curve, span: Span, columns: int, look: Look) -> list[Line]:
    """The plot with `not known since step 35` in its empty end, or the like in its empty beginning, where it has room.

    A series whose points lie as far apart, such as a loss that is logged every 100 steps, has no empty end.
    """
    known = curve.step[np.isfinite(curve.value)]
    if len(known) < 2:
        return rows
    usual = GAP * float(np.median(np.diff(known)))
    first, last = (GUTTER + column_of(step, span, columns) for step in (known[0], known[-1]))
    for hole, start, end, word, step in (
        (known[0] - span[0], GUTTER + 1, first - 1, "before", known[0]),
        (span[1] - known[-1], last + 2, GUTTER + columns, "since", known[-1]),
    ):
        words = f"not known {word} step {count(int(step))}"
        if hole > usual and start + len(words) <= end:
            rows = _with_words(rows, start, words, columns, look)
    return rows


def _with_words(rows: list[Line], start: int, words: str, columns: int, look: Look) -> list[Line]:
    middle = len(rows) // 2
    before, _, after = Segment.divide(rows[middle], [start, start + len(words), GUTTER + columns])
    return [*rows[:middle], [*before, Segment(words, look.dim), *after], *rows[middle + 1 :]]


def _axis(curve: Curve, span: Span, columns: int, look: Look) -> Line:
    """The onsets, the ends of the axis, and times of day between them."""
    before, behind = ("before ", " or before") if curve.is_bound else ("", "")
    began = [
        (column_of(since, span, columns), count(since) + behind) if since >= span[0] else (-1, before + count(since))
        for since in curve.onsets
        if since <= span[1]
    ]
    first = count(round(span[0]))
    marks = beginning((f"step {first}", first), began, columns, look, curve.sign)
    marks.append((columns - 1, count(round(span[1])), None))
    times = curve.times[: 1 if columns < TIMED_WIDE else None]
    return axis(marks, columns, look, [(column_of(step, span, columns) - len(text) // 2, text) for step, text in times])


def _span(curve: Curve) -> Span | None:
    if curve.span is not None:
        return curve.span
    return (float(curve.step[0]), float(curve.step[-1])) if len(curve.step) else None


def scale_of(curve: Curve, rows: int) -> Scale | None:
    """The vertical range: all values, at least a tenth of their size, and ticks at 1-2-5 that lie on rows."""
    edges = [edge for edge in (_measured(curve), curve.low, curve.high) if edge is not None]
    values = np.concatenate(edges) if edges else np.zeros(0)
    values = values[np.isfinite(values)]
    if not values.size:
        return None
    low, high = float(values.min()), axis_end(values) if curve.is_cut else float(values.max())
    if curve.floor is not None:
        low = min(low, curve.floor)
    if curve.ceiling is not None:
        high = max(high, curve.ceiling)
    own = _measured(curve)[np.isfinite(_measured(curve))]
    if curve.limit is not None and own.size and curve.limit - float(own.min()) <= RISES_LEAST * float(np.ptp(own)):
        high = max(high, curve.limit)
    least = max(abs(high), abs(low)) * 0.1 or 1.0
    if high - low < least:
        middle = (high + low) / 2
        low, high = middle - least / 2, middle + least / 2
        low = max(low, 0.0) if values.min() >= 0 else low
    return ticked(low, high, rows)


@lru_cache(maxsize=_KEPT)
def body(curve: Curve, columns: int, rows: int, scale: Scale, span: Span, look: Look) -> list[Line]:
    """The plot itself with its tick labels and a faint grid line at each of them, `GUTTER + columns` wide."""
    dots = columns * _fine(look)
    (low, high), spread = in_columns(curve.step, curve.value, dots, span, curve.single_from)
    if look.ascii_only and curve.low is not None:  # beside a band one mark a column
        low = high = one_a_column(curve.step, curve.value, columns, span, (low, high))
    line = _normal(low, scale), _normal(high, scale)
    spread = (
        None if spread is None or curve.samples is not None else (_normal(spread[0], scale), _normal(spread[1], scale))
    )
    band = None
    if curve.low is not None and curve.high is not None:
        under, _ = edge_in_columns(curve.step, curve.low, dots, span)
        _, over = edge_in_columns(curve.step, curve.high, dots, span)
        band = _normal(under, scale), _normal(over, scale)
    zero = _normal(np.array([0.0]), scale).clip(0.0, 1.0)[0] if curve.is_filled else None
    if look.ascii_only:
        cells = in_ascii(line, band or spread, rows)
    else:
        cells = dotted(line, spread, band, zero, columns, rows, look)
    cells = _sampled(cells, curve, scale, span, look)
    labels, grid = _labels(scale, rows), look.glyphs.grid
    drawn = [(signs.replace(" ", grid) if row in labels else signs, kinds) for row, (signs, kinds) in enumerate(cells)]
    if curve.limit is not None and scale.low <= curve.limit <= scale.high:
        row = _row_of(curve.limit, scale, rows)
        drawn[row] = _with_limit(*cells[row], look)
    lines = [_gutter(labels.get(row), look) + _styled(*each, look) for row, each in enumerate(drawn)]
    beyond = curve.step[_measured(curve) > scale.high] if curve.is_cut else np.zeros(0)
    return [with_signs(lines[0], beyond, span, GUTTER, columns, look), *lines[1:]] if beyond.size else lines


def _with_limit(signs: str, kinds: Kinds, look: Look) -> tuple[str, Kinds]:
    """A row with the line of a limit behind what is drawn in it."""
    blank = np.array([sign == " " for sign in signs])
    return signs.replace(" ", look.glyphs.rule), np.where(blank, LIMIT, kinds).astype(np.uint8)


def _measured(curve: Curve) -> Floats:
    """The values without what only holds between samples, where there are any."""
    return curve.value if curve.samples is None or np.isnan(curve.samples).all() else curve.samples


def _sampled(cells: Cells, curve: Curve, scale: Scale, span: Span, look: Look) -> Cells:
    """The cells with a mark on each sample, where few steps have one."""
    if curve.samples is None:
        return cells
    seen, columns = np.isfinite(curve.samples), len(cells[0][0])
    places = [column_of(step, span, columns) for step in curve.step[seen].tolist()]
    return with_samples(cells, places, _normal(curve.samples[seen], scale), look)


def _fine(look: Look) -> int:
    """Columns of dots that a cell has."""
    return 1 if look.ascii_only else 2


def _normal(values: Floats, scale: Scale) -> Floats:
    return (values - scale.low) / (scale.high - scale.low)


def _labels(scale: Scale, rows: int) -> dict[int, str]:
    """Tick labels by row."""
    labels: dict[int, str] = {}
    for value, text in zip(scale.ticks, tick_labels(scale.ticks, LABEL), strict=True):
        labels.setdefault(_row_of(value, scale, rows), text)
    return labels


def _row_of(value: float, scale: Scale, rows: int) -> int:
    return rows - 1 - round((value - scale.low) / (scale.high - scale.low) * (rows - 1))


def _gutter(text: str | None, look: Look) -> Line:
    side = look.glyphs.tick if text is not None else look.glyphs.bar
    return [Segment(f"{look.clean(text or ''):>{LABEL}}", look.dim), Segment(f"{side} "[: GUTTER - 5], look.faint)]


def _styled(signs: str, kinds: Kinds, look: Look) -> Line:
    """Merge neighbours of one style; a blank has that of what stands before it."""
    starts = [0, *(np.flatnonzero(kinds[1:] != kinds[:-1]) + 1).tolist(), len(signs)]
    styles = {GROUND: look.faint, BAND: look.band, LINE: look.line, LIMIT: look.accent}
    return [Segment(signs[start:end], styles[int(kinds[start])]) for start, end in itertools.pairwise(starts)]
