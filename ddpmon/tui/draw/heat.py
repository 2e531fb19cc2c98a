"""The heat-map: work by rank and step, quantised so that a calm run is one even colour."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray
from rich.segment import Segment

from ddpmon.format import count, figure
from ddpmon.report.verdicts import marked_ranks, onsets
from ddpmon.snapshot import Heat, Ints
from ddpmon.tui.draw.layout import fold
from ddpmon.tui.draw.panel import axis, title
from ddpmon.tui.filter.fits import fitting_ranks
from ddpmon.tui.lines import Line, fit, fit_all
from ddpmon.tui.theme import LEVELS, Look, ink
from ddpmon.tui.view_state import ViewState

LABEL = 5
MISSING = 255
STRIDES: tuple[int, ...] = (*range(1, 13), 15, 20, 25, 30, 40, 50, 100)
TALLEST = 2  # lines a rank, where there is room
GUTTER = 7  # the rank number, its marker, and a gap
SPAN = 1.3  # the ramp spans at least this much above typical work, so that noise stays calm
CLIPPED = 1.05  # of the scale's end: what is said to be longer than it
FEWEST = 10  # usual columns without which all are taken
Levels = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Bands:
    """Rows of the heat-map.

    Attributes:
        order: [k] the ranks shown, band after band.
        starts: [b] where in `order` each band begins.
        labels: what each band is called: its first rank, or the end of its first node's name.
        unit: "rank" or "node".
        size: how many of these a band holds.
        halves: two bands share a line.
    """

    order: Ints
    starts: Ints
    labels: tuple[str, ...]
    unit: str
    size: int
    halves: bool

    def __post_init__(self) -> None:
        self.order.flags.writeable = self.starts.flags.writeable = False  # drawings share them

    def ranks(self, band: int) -> Ints:
        """The ranks of a band."""
        end = int(self.starts[band + 1]) if band + 1 < len(self.starts) else len(self.order)
        return self.order[int(self.starts[band]) : end]

    @property
    def folded(self) -> bool:
        """Whether some ranks share a band."""
        return len(self.starts) < len(self.order)


def share_out(chosen: Ints, hosts: Sequence[str], room: int, *, halves: bool) -> Bands:
    """The rows for the ranks `chosen` in `room` lines; `hosts` are all ranks' host names, "" where unknown."""
    folding = fold(len(chosen), room, halves=halves)
    if folding.size > 1:
        names = [hosts[rank] for rank in chosen.tolist()] if hosts else []
        if len(set(names)) > 1 and all(names):
            return _by_node(chosen, names, room, halves=halves)
    starts = np.arange(folding.bands) * folding.size
    labels = tuple(map(str, chosen[starts].tolist()))
    return Bands(chosen, starts, labels, "rank", folding.size, folding.halves)


def _by_node(chosen: Ints, names: list[str], room: int, *, halves: bool) -> Bands:
    nodes = list(dict.fromkeys(names))
    place = {name: number for number, name in enumerate(nodes)}
    node = np.array([place[name] for name in names])
    order = np.argsort(node, kind="stable")
    folding = fold(len(nodes), room, halves=halves)
    first = np.arange(folding.bands) * folding.size
    low, high = min(nodes), max(nodes)
    common = next((at for at, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    labels = tuple((nodes[number][common:] or nodes[number])[-LABEL:] for number in first.tolist())
    return Bands(chosen[order], np.searchsorted(node[order], first), labels, "node", folding.size, folding.halves)


@dataclass(slots=True)
class _Shared:
    """The rows shared out last; ranks seldom move, and to find the hosts of thousands twice a tick is slow."""

    chosen: Ints
    hosts: tuple[str, ...]
    room: int
    halves: bool
    bands: Bands

    def serves(self, chosen: Ints, hosts: tuple[str, ...], room: int, halves: bool) -> bool:
        """Whether they are the rows for these ranks."""
        same = (self.room, self.halves) == (room, halves) and np.array_equal(self.chosen, chosen)
        if same and self.hosts is not hosts and self.hosts == hosts:
            self.hosts = hosts  # the next comparison with this snapshot is at once over
        return same and self.hosts is hosts


_shared: list[_Shared] = []


def _share_once(chosen: Ints, hosts: tuple[str, ...], room: int, *, halves: bool) -> Bands:
    if not (_shared and _shared[0].serves(chosen, hosts, room, halves)):
        _shared[:] = [_Shared(chosen, hosts, room, halves, share_out(chosen, hosts, room, halves=halves))]
    return _shared[0].bands


@dataclass(frozen=True, slots=True)
class Grid:
    """Quantised work, one row a band of ranks and one column a span of steps."""

    levels: Levels
    bands: Bands
    steps: tuple[int, ...]  # the first step of each column
    stride: int  # steps a column
    low: float
    high: float
    clipped: bool  # some work is longer than `high`


def heat_lines(picture: ViewState, width: int, height: int, wanted: str = "", cursor: int | None = None) -> list[Line]:
    """Title, the map, and the axis of steps with the onset of the headline's finding.

    Args:
        picture: what is known.
        width: cells.
        height: lines.
        wanted: the table's filter; where it matches nobody, all ranks are shown.
        cursor: the band under the cursor, None without one.
    """
    look, heat = picture.look, picture.snapshot.heat
    if heat is None or heat.work.size == 0 or height < 3:
        return fit_all([title("work, rank x step", "", width, look), *_nothing(look)], width, height)
    bands = bands_of(picture, height, wanted)
    grid = quantise(heat, max(width - GUTTER - 1, 1), bands)
    lines = [title(_name(grid, len(heat.work)), _remark(grid, look), width, look)]
    lines += _rows(grid, picture, width, min((height - 2) // max(len(bands.starts), 1), TALLEST), cursor)
    lines.append(_axis(grid, picture, width))
    return fit_all(lines, width, height)


def bands_of(picture: ViewState, height: int, wanted: str = "") -> Bands:
    """Which ranks share a row of a heat-map of this height."""
    snapshot = picture.snapshot
    count = 0 if snapshot.heat is None else len(snapshot.heat.work)
    hosts = () if snapshot.ranks is None or len(snapshot.ranks) != count else snapshot.ranks.host
    chosen = np.arange(count)
    if wanted and hosts:
        found = np.flatnonzero(fitting_ranks(snapshot, wanted))
        chosen = found if found.size else chosen
    return _share_once(chosen, hosts, height - 2, halves=picture.look.smooth)


def _nothing(look: Look) -> list[Line]:
    return [[Segment("  no step of any rank has been read yet", look.dim)]]


def _name(grid: Grid, world: int) -> str:
    bands = grid.bands
    name = f"work, {bands.unit} x step"
    if bands.unit == "node" and bands.size == 1:
        name += ", the worst rank of each"
    elif bands.size > 1:
        name += f", the worst of {bands.size} {bands.unit}s a cell"
    if len(bands.order) < world:
        name += f", {len(bands.order):,} of {world:,} ranks"
    return name if grid.stride == 1 else f"{name}, {grid.stride} steps a column"


def _remark(grid: Grid, look: Look) -> str:
    """Where the scale begins and ends: `typical 117 .. >= 160 ms`, with the sign where something is longer still."""
    top = look.clean("≥ ") if grid.clipped else ""
    return f"typical {figure(grid.low, look.unknown)} .. {top}{figure(grid.high, look.unknown)} ms"


def quantise(heat: Heat, columns: int, bands: Bands) -> Grid:
    """Fold ranks and steps to the room there is (taking the worst of each) and quantise to levels."""
    stride = _stride(heat.work.shape[1], columns)
    starts = _columns(heat.step, stride, columns)
    work, part = heat.work[:, starts[0] :], slice(int(starts[0]), None)
    if not np.array_equal(bands.order, np.arange(len(work))):
        work = work[bands.order]
    if bands.folded:  # over whole rows at a time: many times as fast as reduceat along this axis
        work = np.stack([np.fmax.reduce(band, axis=0) for band in np.split(work, bands.starts[1:])])
    if stride > 1:
        work = np.fmax.reduceat(work, starts - starts[0], axis=1)
    low, high = _range(work[:, _usual_columns(heat, part, starts - starts[0])])
    clipped = bool(np.nanmax(work, initial=0.0) > CLIPPED * high)
    steps = tuple(heat.step[starts].tolist())
    return Grid(_levels(work, low, high), bands, steps, stride, low, high, clipped)


def _usual_columns(heat: Heat, part: slice, starts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """[columns] those without a step of warm-up, evaluation or checkpoint; all where hardly any is without."""
    if heat.usual is None:
        return np.ones(len(starts), dtype=np.bool_)
    usual: NDArray[np.bool_] = np.logical_and.reduceat(heat.usual[part], starts)
    return usual if usual.sum() >= FEWEST else np.ones_like(usual)


def _stride(steps: int, columns: int) -> int:
    """Steps a column: the smallest round number that fits."""
    for stride in STRIDES:
        if steps < stride * columns:  # a column more than needed, since columns stand at multiples of the stride
            return stride
    return STRIDES[-1]


def _columns(step: Ints, stride: int, columns: int) -> NDArray[np.int64]:
    """Where each column begins: at multiples of the stride, so that columns do not shimmer as steps arrive."""
    starts = np.flatnonzero(np.r_[True, (step[1:] // stride) != (step[:-1] // stride)])
    return starts[-columns:].astype(np.int64)


def _range(work: NDArray[np.float32]) -> tuple[float, float]:
    """From typical work to the 98th percentile, rounded so that the colours stand still; the rest is cut off.

    So one evaluation or one spike does not wash out what lies between.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        typical, worst = np.nanpercentile(work, (50, 98))
    if not math.isfinite(typical):
        return math.nan, math.nan
    low = _rounded(float(typical))
    return low, max(_rounded(float(worst)), _rounded(low * SPAN))


def _rounded(value: float) -> float:
    return float(f"{value:.2g}")


def _levels(work: NDArray[np.float32], low: float, high: float) -> Levels:
    if not high > low:
        return np.where(np.isfinite(work), 0, MISSING).astype(np.uint8)
    share = np.nan_to_num((work - low) / (high - low) * LEVELS, nan=0.0, posinf=LEVELS, neginf=0.0)
    return np.where(np.isfinite(work), np.clip(share, 0, LEVELS - 1), MISSING).astype(np.uint8)


def _rows(grid: Grid, picture: ViewState, width: int, tall: int, cursor: int | None) -> list[Line]:
    look, bands = picture.look, grid.bands
    named = _named(bands, picture)
    step = 2 if bands.halves else 1
    lines = []
    for band in range(0, len(bands.starts), step):
        cells = [_halves(grid.levels[band : band + 2], look)] if bands.halves else _tall(grid.levels[band], tall, look)
        here = cursor is not None and band <= cursor < band + step
        label = bands.labels[cursor if here and cursor is not None else band]
        gutters = [_gutter(label, bool(named[band : band + step].any()), here, look), *[[_EMPTY]] * (len(cells) - 1)]
        lines += [fit(gutter + line, width) for gutter, line in zip(gutters, cells, strict=True)]
    return lines


def _named(bands: Bands, picture: ViewState) -> NDArray[np.bool_]:
    """[bands] whether a finding names one of the band's ranks."""
    marked = np.zeros(int(bands.order.max(initial=-1)) + 1, np.bool_)
    marked[[r for r in marked_ranks(picture.snapshot.findings, "warning") if 0 <= r < len(marked)]] = True
    return np.logical_or.reduceat(marked[bands.order], bands.starts)


def _gutter(label: str, named: bool, here: bool, look: Look) -> Line:
    sign = look.glyphs.mark if named else " "
    style = look.strong if here else look.accent if named else look.dim
    return [
        Segment(f"{look.clean(label):>{GUTTER - 2}}"[: GUTTER - 2], style),
        Segment(f"{sign}{look.glyphs.cursor if here else ' '}", look.accent),
    ]


_EMPTY = Segment(" " * GUTTER)


def _tall(row: Levels, tall: int, look: Look) -> list[Line]:
    """One band in one line or two, with a thin gap above it."""
    return [_whole(row, look.glyphs.block, look), *([_whole(row, "█", look)] * (tall - 1))]


def _whole(row: Levels, block: str, look: Look) -> Line:
    """One band in one line."""
    line: Line = []
    for level, length in _runs(row.astype(np.int64)):
        if level == MISSING:
            line.append(Segment(" " * length, look.faint))
        elif look.smooth:
            line.append(Segment(block * length, ink(look.ramp[level])))
        else:
            line.append(Segment(look.glyphs.levels[level] * length, ink(look.ramp[level])))
    return line


def _halves(pair: Levels, look: Look) -> Line:
    """Two bands a line: the upper as foreground, the lower as background of a half block."""
    upper = pair[0].astype(np.int64)
    lower = pair[1].astype(np.int64) if len(pair) > 1 else np.full_like(upper, MISSING)
    line: Line = []
    for both, length in _runs(upper * 256 + lower):
        over, under = divmod(both, 256)
        if over == MISSING == under:
            line.append(Segment(" " * length, look.faint))
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


def _axis(grid: Grid, picture: ViewState, width: int) -> Line:
    look = picture.look
    last = len(grid.steps) - 1
    marks = [(0, f"step {count(grid.steps[0])}", False), (last - 6, f"{count(grid.steps[-1]):>7}", False)]
    for since in onsets(picture.snapshot.findings)[::-1]:
        place = int(np.searchsorted(grid.steps, since, side="right")) - 1
        text = count(since) if place >= 0 else f"since {count(since)}"
        marks.insert(0, (max(place, 0), f"{look.glyphs.mark} {text}", True))
    return [Segment(" " * GUTTER, look.text), *axis(marks, max(width - GUTTER, 0), look)]
