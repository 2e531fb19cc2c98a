"""The heat-map: one metric by rank and step, with a legend of fixed stops and a cursor that names a cell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby, product

import numpy as np
from numpy.typing import NDArray
from rich.segment import Segment
from rich.style import Style

from ddpmon.format import count, figure, known, loss_words, pct, plural, signed, time_of_day
from ddpmon.report.base_step import NOISE_SHARE, noise_ms
from ddpmon.report.last_word import still_words
from ddpmon.report.step_clock import wall_of
from ddpmon.report.verdicts import about_ranks, onsets
from ddpmon.report.wording import format_ranks
from ddpmon.snapshot import Heat
from ddpmon.tui.draw.bands import FRAME, Bands
from ddpmon.tui.draw.grid import LEVELS, METRICS, MISSING, STOPS, Grid
from ddpmon.tui.draw.heat_layout import Cell, Cursor, Layout, lay_out, shown_heat
from ddpmon.tui.draw.host_labels import cut_label
from ddpmon.tui.draw.panel import at_standstill, axis, beginning, no_match, title, title_line
from ddpmon.tui.lines import Line, fit, fit_all, width_of
from ddpmon.tui.theme import Look, ink
from ddpmon.tui.view_state import ViewState

TALLEST = 3  # lines a rank, where there is room
FEW_LINES = 12  # that a map of a few ranks takes at most, beside other things
_KEPT = 64  # lines, more than a map has: with four steps a cell or more most stay the same until a column is full
WIDE = 100  # cells from which on the axis has times of day
_TITLE_FRAME = 6  # cells of a title line beside its name and its legend


def heat_lines(
    picture: ViewState,
    width: int,
    height: int,
    wanted: str = "",
    cursor: Cursor | None = None,
    only: Sequence[int] = (),
) -> list[Line]:
    """Title with the legend, the map, and the axis of steps with the onsets of the findings.

    Args:
        picture: what is known.
        width: cells.
        height: lines.
        wanted: the table's filter.
        cursor: the cell under the cursor, None without one.
        only: the ranks to show, in this order; empty for all.
    """
    return layout_lines(picture, lay_out(picture, width, height, wanted, only), width, height, cursor)


def layout_lines(
    picture: ViewState, layout: Layout | None, width: int, height: int, cursor: Cursor | None = None
) -> list[Line]:
    """The lines of a layout in this room; of None what stands instead of the map."""
    if layout is None:
        return fit_all(_nothing(picture, width, height), width, height)
    cell = None if cursor is None else layout.cell(cursor)
    lines = [_title(picture, layout, cell, width), *_rows(layout, picture, width, height, cell)]
    lines.append(_axis(layout.grid, picture, layout.bands, width))
    return fit_all(lines, width, height)


def ranks_lines(picture: ViewState, ranks: Sequence[int], width: int, height: int) -> list[Line]:
    """The map of some ranks, in one line or up to three each: at most `height` lines, and none without room.

    Where nothing is known of any of them, one line says so below the title.
    """
    heat = shown_heat(picture)
    here = [rank for rank in ranks if heat is not None and rank < len(heat.values)]
    most = (height - FRAME) // max(len(here), 1)
    if heat is None or not here or not most:
        return []
    if np.isnan(heat.values[here]).all():
        look, name = picture.look, f"{METRICS[heat.metric].name} by rank and step"
        return [title(name, "", width, look), [Segment(f"  {format_ranks(here)}: {NOT_KNOWN}", look.dim)]]
    tall = min(most, TALLEST, max(FEW_LINES // len(here), 1))
    return heat_lines(picture, width, FRAME + len(here) * tall, only=here)


def lines_of_bands(heat: Heat, bands: Bands, height: int) -> list[int]:
    """Lines that each band takes in a panel of this height: one, several of few ranks, two bands may share a line.

    A band of which nothing is known takes one that says so, and leaves its others to those that are known.
    """
    count = len(bands.starts)
    if bands.halves:
        return [1] * count
    unknown = np.logical_and.reduceat(np.isnan(heat.values[bands.order]).all(axis=1), bands.starts)
    nothing = int(unknown.sum())
    known = max(count - nothing, 1)
    room = min(height - FRAME, count * TALLEST) - nothing
    return [1 if each else max(1, room // known) for each in unknown.tolist()]


def is_known(picture: ViewState) -> bool:
    """Whether the map has a row with more than the words that nothing is known of its rank."""
    heat = shown_heat(picture)
    return heat is None or not heat.values.size or any(not np.isnan(row).all() for row in heat.values)


def _nothing(picture: ViewState, width: int, height: int) -> list[Line]:
    """What stands instead of the map: that no step has been read yet, or that the filter fits no rank."""
    look, heat = picture.look, shown_heat(picture)
    if heat is None or heat.values.size == 0 or height < FRAME + 1:
        said: Line = [Segment("  no step of any rank has been read yet", look.dim)]
        return [title("lateness by rank and step", "", width, look), said]
    return [title(f"{METRICS[heat.metric].name} by rank and step", "", width, look), *no_match("rank", width, look)]


def _title(picture: ViewState, layout: Layout, cell: Cell | None, width: int) -> Line:
    """What rows and columns are where a legend of all stops has room beside it, else a name that leaves it room.

    Where there is room, the name also says that the map has only some ranks, and what the sign of a cell of few late
    steps means. Words of the name are left out before stops of the legend, and stops before the metric. The stops that
    stay are those whose colours the map has. Under a cursor the name is what the cell shows. No legend where it has no
    room.
    """
    look, heat = picture.look, layout.heat
    names = [_told(picture, heat, cell)] if cell else list(_names(heat, layout.grid, layout.bands, look))
    whole = [_legend(look, range(LEVELS), of) for of in (*METRICS[heat.metric].of, "")]
    drawn = [level for level in range(LEVELS) if (layout.grid.levels == level).any()]
    legends = [_legend(look, drawn), list[Segment]()]
    unnamed = [_legend(look, drawn, "late")] if heat.metric == "lateness" else []
    some = _some(heat, layout.bands)
    keyed = [name for name in names if look.glyphs.rare in name]
    telling = [name for name in names if " x step" in name]
    best = [[name for name in names if some in name] for names in (keyed, telling)] if some else []
    named = [name for name in names if not name.startswith("worst")]
    last = [*unnamed, *whole, *legends]
    first = [each for names in (*best, keyed, telling) for each in product(whole, names)]
    tries = [*first, *product([*whole, *legends[:-1]], named), *product(last, names)]
    room = width - _TITLE_FRAME
    fitting = ((name, legend) for legend, name in tries if len(name) + width_of(legend) <= room)
    name, legend = next(fitting, (names[-1], legends[-1]))
    return title_line(name, legend, width, look)


def _legend(look: Look, levels: Sequence[int], of: str = "") -> Line:
    """`■<5 ■5 ■10 ■20 ■50 ■100 % of base step`; without words of what `■<5 ■5 ■10 ■20 ■50 ■100 %` or `■<5 ■50 %`."""
    line: Line = []
    for level in levels:
        swatch = look.glyphs.swatch if look.smooth else look.glyphs.levels[level]
        text = STOPS[level - 1] if level else f"<{STOPS[0]}"
        line += [Segment(swatch, ink(look.ramp[level])), Segment(f"{text} ", look.dim)]
    return [*line, Segment(f"% {of}".rstrip(), look.dim)]


def _names(heat: Heat, grid: Grid, bands: Bands, look: Look) -> Iterator[str]:
    """What the map shows, in fewer and fewer words; that a cell shows the worst of several steps is never left out.

    Last a name without the metric, if that is lateness, which the legend says then.
    """
    metric, unit, steps = METRICS[heat.metric].name, bands.unit, plural(grid.stride, "step")
    each = ", the worst rank of each" if unit == "host" and bands.size == 1 else ""
    some = _some(heat, bands)
    hosts = [plural(bands.size, unit)] if bands.size > 1 else []
    if hosts or grid.stride > 1:
        exact = f"{grid.least} or {steps}" if grid.least < grid.stride else steps
        shared, brief = ([*hosts, *([said] if grid.stride > 1 else [])] for said in (exact, steps))
        worst, briefly = f"worst of {' and '.join(shared)} a cell", f"worst of {' x '.join(brief)}"
        if look.smooth and not bands.halves and grid.rare.any():
            yield f"{metric}, {unit} x step{each}, the {worst}, {look.glyphs.rare} in fewer than half{some}"
            parts = (f"{unit} x step{each}{some}, ", f"{unit} x step, ", "")
            yield from (f"{metric}, {part}{briefly}, {look.glyphs.rare} in few" for part in parts)
        yield f"{metric}, {unit} x step{each}, the {worst}{some}"
        yield from () if hosts else (f"{metric}, {unit} x step{part}, {briefly}" for part in (each + some, ""))
        yield from (f"{metric}, {words}" for words in (worst, briefly))
        yield from () if heat.metric != "lateness" else (briefly,) if hosts else (worst, briefly)
        return
    yield from (f"{metric}, {unit} x step{part}" for part in (each + some, some, ""))


def _some(heat: Heat, bands: Bands) -> str:
    """`, 4 of 16 ranks`; empty where the map has all of them."""
    shown, ranks = len(bands.order), len(heat.values)
    return f", {shown:,} of {ranks:,} ranks" if shown < ranks else ""


def _told(picture: ViewState, heat: Heat, cell: Cell) -> str:
    """`rank 5 · step 812, the worst of 4 · 14:02:31 · lateness +41 ms, 31 % of base step` of the cursor's cell."""
    look, step, value = picture.look, f"step {count(cell.step)}", "not known"
    if known(cell.value):
        step += f", {'the worst' if cell.is_worst else 'one'} of {cell.steps}" if cell.steps > 1 else ""
        value = look.clean(_value_words(heat, cell.value, cell.percent, noise_ms(picture.snapshot)))
    parts = [f"rank {cell.rank}", step, time_of_day(wall_of(picture.snapshot, cell.step)), value]
    return f" {look.glyphs.dot} ".join(part for part in parts if part)


def _value_words(heat: Heat, value: float, percent: float, noise: float) -> str:
    """`lateness +41 ms, 31 % of base step`; of a lateness below the noise just that."""
    shown = METRICS[heat.metric]
    if heat.metric == "lateness" and abs(value) < noise:
        return f"{shown.name} {signed(value, noise=noise)}, noise (<{NOISE_SHARE * 100:g} % {shown.of[0]})"
    number = signed(value) if heat.metric == "lateness" else (figure if shown.unit else loss_words)(value)
    return f"{shown.name} {number} {shown.unit}".rstrip() + f", {pct(percent)} % {shown.of[0]}"


def _rows(layout: Layout, picture: ViewState, width: int, height: int, under: Cell | None) -> list[Line]:
    look, grid, bands, marked = picture.look, layout.grid, layout.bands, layout.marked
    signs = ((" ", look.dim), (look.glyphs.mark, look.accent), (look.glyphs.lost, look.broken))
    lines_of, step = lines_of_bands(layout.heat, bands, height), 2 if bands.halves else 1
    still = still_words(picture.snapshot)
    lines = []
    for band in range(0, len(bands.starts), step):
        cells = (
            [_halves(grid.levels[band : band + 2].tobytes(), len(grid.at), look)]
            if bands.halves
            else _tall(grid, band, lines_of, look)
        )
        here = under is not None and band <= under.band < band + step
        named = (band, band + step)
        if here and under is not None:
            cells = [_crossed(line, under.column, look) for line in cells]
            named = (under.band, under.band + 1)
        label, rank = bands.label_of(*named, layout.worth)
        gutter = _gutter(label, bands.label, signs[marked[rank] if rank >= 0 else 0], here, look)
        gutters = [gutter, *[[Segment(" " * bands.gutter)]] * (len(cells) - 1)]
        drawn = [gutter + line for gutter, line in zip(gutters, cells, strict=True)]
        lines += [fit(line, width) for line in at_standstill(drawn, still, look)]
    return lines


def _crossed(line: Line, column: int, look: Look) -> Line:
    """The line with the cursor in one of its cells."""
    before, under, after = Segment.divide(line, [column, column + 1, width_of(line)])
    del under
    return [*before, Segment(look.glyphs.here, look.strong), *after]


def _gutter(label: str, cells: int, sign: tuple[str, Style], here: bool, look: Look) -> Line:
    glyph, style = sign
    name = cut_label(look.clean(label), cells, look.glyphs.more)
    return [
        Segment(f"{name:>{cells}}", look.strong if here else style),
        Segment(glyph, style),
        Segment(look.glyphs.cursor if here else " ", look.accent),
    ]


NOT_KNOWN, BRIEFLY = "not known in these steps", "not known"
RARE = MISSING + 1  # is added to the level of a cell of which few steps are late


def _tall(grid: Grid, band: int, lines_of: list[int], look: Look) -> list[Line]:
    """One band in one line or several, with a thin gap above it; the first says what is not known.

    A cell of which few steps are late has their colour at its foot only, where colours tell the levels.
    """
    row, many = grid.levels[band] + RARE * grid.rare[band], lines_of[band]
    first = _whole(row, look.glyphs.block, look, says=True, rare=look.glyphs.rare if many == 1 else "")
    return [
        first,
        *(_whole(row, "█", look, rare=look.glyphs.rare if line == many else "") for line in range(2, many + 1)),
    ]


def _whole(row: NDArray[np.int64], block: str, look: Look, *, says: bool = False, rare: str = "") -> Line:
    """One band in one line; where nothing is known blanks, or the words if it `says` so and they have room.

    A cell of which few steps are late is calm, where colours tell the levels. If `rare` is given, it is the sign of
    such a cell: its lower part has the colour of the late steps.
    """
    line: Line = []
    runs = _runs(row)
    for place, (code, length) in enumerate(runs):
        is_rare, level = divmod(code, RARE)
        if level == MISSING:
            before, after = int(place > 0), int(place < len(runs) - 1)
            line += _unknown(length, before, after, look) if says else [Segment(" " * length, look.faint)]
        elif not look.smooth:
            line.append(Segment(look.glyphs.levels[level] * length, ink(look.ramp[level])))
        elif is_rare and rare:
            line.append(Segment(rare * length, ink(look.ramp[level], look.ramp[0])))
        else:
            line.append(Segment(block * length, ink(look.ramp[0 if is_rare else level])))
    return line


def _unknown(length: int, before: int, after: int, look: Look) -> Line:
    """`length` cells of which nothing is known: words that say so, and a dashed line, where they have room.

    So many blanks part them from what is known `before` and `after` them.
    """
    room = length - before - 1 - after
    words = next((each for each in (NOT_KNOWN, BRIEFLY) if len(each) <= room), None)
    if words is None:
        return [Segment(" " * length, look.faint)]
    filler = look.glyphs.wait if look.smooth else " "  # in ASCII a level of the map looks like that
    dashes = filler * (room - len(words))
    return [Segment(f"{' ' * before}{words} ", look.dim), Segment(dashes + " " * after, look.faint)]


@lru_cache(maxsize=_KEPT)
def _halves(levels: bytes, columns: int, look: Look) -> Line:
    """Two bands a line, or the last one alone: the upper as foreground, the lower as background of a half block."""
    pair = np.frombuffer(levels, np.uint8).reshape(-1, columns).astype(np.int64)
    upper, lower = pair[0], pair[1] if len(pair) > 1 else np.full_like(pair[0], MISSING)
    line: Line = []
    runs = _runs(upper * 256 + lower)
    for place, (both, length) in enumerate(runs):
        over, under = divmod(both, 256)
        if over == MISSING == under:
            line += _unknown(length, int(place > 0), int(place < len(runs) - 1), look)
        elif over == MISSING:
            line.append(Segment("▄" * length, ink(look.ramp[under])))
        elif under == MISSING:
            line.append(Segment("▀" * length, ink(look.ramp[over])))
        elif over == under:
            line.append(Segment("█" * length, ink(look.ramp[over])))
        else:
            line.append(Segment("▀" * length, ink(look.ramp[over], look.ramp[under])))
    return line


def _runs(values: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Run-length code: (value, length)."""
    return [(value, len(list(run))) for value, run in groupby(values.tolist())]


def _axis(grid: Grid, picture: ViewState, bands: Bands, width: int) -> Line:
    """The steps and times of the ends, and where lasting troubles began; the end of a rewound picture is marked.

    Of some ranks these are the troubles about them.
    """
    look, snapshot = picture.look, picture.snapshot
    columns = len(grid.at)
    first, last = int(grid.steps[0]), grid.newest
    end = count(last) if snapshot.replay is None else f"{count(last)} {look.glyphs.cursor}"
    some = snapshot.ranks is not None and len(bands.order) < len(snapshot.ranks)
    findings = about_ranks(snapshot, bands.order.tolist()) if some else snapshot.findings
    began = [(grid.column_of(since), since) for since in onsets(findings) if since <= last]
    told = [(at, _dated("", since, picture, width) if at >= 0 else count(since)) for at, since in began]
    named = (_dated("step ", first, picture, width), f"step {count(first)}", count(first))
    marks = beginning(named, told, columns, look)
    marks.append((columns - len(end), end, None if snapshot.replay is None else look.accent))
    between = [columns * quarter // 4 for quarter in (2, 1, 3)] if width >= WIDE else []
    times = [(place, _dated("", int(grid.steps[place]), picture, width)) for place in between]
    return [Segment(" " * bands.gutter, look.text), *axis(marks, columns, look, times)]


def _dated(lead: str, step: int, picture: ViewState, width: int) -> str:
    """A step with its time of day where there is room."""
    at = time_of_day(wall_of(picture.snapshot, step)) if width >= WIDE else ""
    return f"{lead}{count(step)}{f'  {at}' if at else ''}"
