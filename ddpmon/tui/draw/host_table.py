"""The table of hosts: a line each, with one chosen metric for every GPU; only visible rows are formatted."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rich.segment import Segment
from rich.style import Style

from ddpmon.diagnose.kinds import KINDS
from ddpmon.format import age, figure, plural, size
from ddpmon.report.base_step import OF_BASE, base_step_ms
from ddpmon.report.finding_rows import what_within, who
from ddpmon.report.host_gpus import GpuState, gpu_states, number_span
from ddpmon.report.host_summary import host_words, known_sum, memory_pct, received, sent, summarise_host
from ddpmon.report.last_word import last_heard_s
from ddpmon.report.peers import RHYTHM, ShownLateness, rhythms
from ddpmon.report.silence import silent_hosts, silent_ranks, unheard_hosts
from ddpmon.report.verdicts import about_machine, is_past, is_standing_still, marked_hosts
from ddpmon.snapshot import Finding, NodeView, Snapshot
from ddpmon.tui.draw.bands import FRAME
from ddpmon.tui.draw.gpu_table import found_on, gpu_glyph
from ddpmon.tui.draw.header import finding_style
from ddpmon.tui.draw.heat import heat_lines
from ddpmon.tui.draw.host_cells import (
    STOPS,
    CellMetric,
    cell,
    cell_words,
    has_shades,
    level_of,
    metric_of,
    middle_of,
    odd_one,
    values_of,
)
from ddpmon.tui.draw.order import ODD
from ddpmon.tui.draw.panel import dimmed, narrowed, no_match, title
from ddpmon.tui.draw.panel_sizes import HEAT_ROWS_MOST
from ddpmon.tui.draw.table import HEAD, TableView
from ddpmon.tui.lines import Line, cells_of, clip, cut, fit, fit_all, joined, left, width_of
from ddpmon.tui.theme import Look
from ddpmon.tui.view_state import ViewState, fills_room

ORDERS = {"worst": "findings first"}
CELL_FRAME = 2  # of a cell: its sign and a gap
BEYOND = 4  # cells that say how many more GPUs there are
REMARK_LEAST, REMARK_GOOD = 16, 60
SIDE_LEAST, HEAT_LEAST = 60, 4  # cells beside the table, and its lines, from which on a heat-map stands there
TITLE_LEAST = 12  # cells of the title besides its words
RANKS = 9
FIGURES = {"late": 6, "cpu%": 5, "mem%": 5, "load": 6, "net/s": 9}  # the cells of each, with the gap before it
ALWAYS = ("late", "cpu%", "mem%")
NET_FROM = 100  # columns from which load and network have columns of their own, too


@dataclass(frozen=True, slots=True)
class Sheet:
    """Widths: of the host's name, of each figure by its heading, of a cell, and how many cells fit."""

    host: int
    figures: Mapping[str, int]
    cell: int
    cells: int

    @property
    def lead(self) -> int:
        """Cells before the metric's."""
        return sum(len(text) for text, _ in self.heads()) + 1

    def heads(self) -> list[tuple[str, str]]:
        """The headings before the metric's from left to right, with the order that each stands for."""
        names = [("   ", "worst"), (f"{'host':<{self.host}}", "host"), (f"{'ranks':>{RANKS}}", "host")]
        return [*names, *((f"{name:>{cells}}", name) for name, cells in self.figures.items())]


def host_sheet(snapshot: Snapshot, metric: CellMetric, width: int, sort: str = "worst") -> Sheet:
    """Share the width out: the cells take what the host's own figures leave, the remarks what is left over.

    The figure that sorts is always there. Where that is the odd cell of each host, other figures make room for cells.
    """
    nodes = snapshot.nodes
    longest = max((len(node.host) for node in nodes), default=0)
    host = min(max(longest, 4), 20 if width >= NET_FROM else 10)
    most = max((len(node.gpus if metric.of_gpu is not None else node.ranks) for node in nodes), default=0)
    one, by_cells = CELL_FRAME + metric.width, sort == ODD and metric.of_gpu is not None
    figures = _figures(snapshot, width, sort) | ({ODD: 1 + max(metric.width, len(ODD))} if by_cells else {})
    less = [name for name in figures if name not in ("late", sort)]
    while less and Sheet(host, figures, one, most).lead + by_cells * most * one > width:
        del figures[less.pop()]
    sheet = Sheet(host, figures, one, most)
    room = width - sheet.lead
    if metric.of_rank is not None and most * (CELL_FRAME + RHYTHM) <= room and rhythms(snapshot):
        return Sheet(host, figures, CELL_FRAME + RHYTHM, most)
    return sheet if most * one <= room else Sheet(host, figures, one, max(room - BEYOND, 0) // one)


def _figures(snapshot: Snapshot, width: int, sort: str) -> dict[str, int]:
    """The headings of the figures at this width with their cells; the lateness may need room for how often it is."""
    shown = {name: cells for name, cells in FIGURES.items() if name in (*ALWAYS, sort) or width >= NET_FROM}
    return shown | ({"late": RHYTHM} if rhythms(snapshot) else {})


def host_table_lines(picture: ViewState, view: TableView, width: int, height: int, metric: str = "util") -> list[Line]:
    """Title, headings and as many hosts as fit.

    Args:
        picture: what is drawn.
        view: `view.order` holds node numbers.
        width: cells.
        height: lines.
        metric: the key of what the cells show.
    """
    shown = metric_of(picture.snapshot, metric)
    if side := _side(picture, view.sort, shown, width, height):
        table = _table_lines(picture, view, width - side - 1, height, shown)
        ranks_of = {node.node: node.ranks for node in picture.snapshot.nodes}
        ranks = [rank for number in view.order.tolist() for rank in ranks_of[number]]
        beside = heat_lines(picture, side, min(height, FRAME + HEAT_ROWS_MOST), view.wanted, only=ranks)
        return [[*one, Segment(" "), *other] for one, other in zip(table, fit_all(beside, side, height), strict=True)]
    return _table_lines(picture, view, width, height, shown)


def _table_lines(picture: ViewState, view: TableView, width: int, height: int, shown: CellMetric) -> list[Line]:
    """The table alone."""
    snapshot, look = picture.snapshot, picture.look
    room = max(height - HEAD, 0)
    page = _Page(picture, width, shown, view.sort)
    lines = [title("hosts", _subtitle(snapshot, view, room, page.metric, look, width), width, look), page.headings()]
    for place in view.places(room):
        lines.append(page.row(int(view.order[place]), view.focused and place == view.cursor))
    if not len(view.order):
        nobody = [[Segment(f"   {look.clean(_nobody(snapshot))}", look.dim)]]
        lines += no_match("host has a rank that", width, look) if view.wanted else nobody
    return fit_all(lines, width, height)


def _side(picture: ViewState, sort: str, metric: CellMetric, width: int, height: int) -> int:
    """Cells of the heat-map beside a table that leaves much of the width; 0 without room for it."""
    if height <= HEAT_LEAST or not fills_room(picture):
        return 0
    sheet = host_sheet(picture.snapshot, metric, width, sort)
    needed = max(sheet.lead + sheet.cells * sheet.cell + REMARK_GOOD, width // 2)
    return width - needed - 1 if width - needed > SIDE_LEAST else 0


def _nobody(snapshot: Snapshot) -> str:
    """Why the table is empty."""
    if snapshot.run is None:
        return snapshot.link.message or "no run has been read yet"
    return "waiting: no host has published yet"


def _subtitle(snapshot: Snapshot, view: TableView, room: int, metric: CellMetric, look: Look, width: int) -> str:
    shown = len(view.order)
    known = max(len(snapshot.run.nodes) if snapshot.run else 0, shown)
    parts = [narrowed(view.wanted, shown, known, look)] if view.wanted else []
    parts += [f"{shown:,} of {known:,} heard from"] if shown < known and not view.wanted else []
    parts += [part] if (part := view.part(room)) else []
    still = ["no step finishes"] if is_standing_still(snapshot) else []
    order, brief = _order_words(view, metric)
    cells = f"cells: {metric.name} [v]"
    legend = [] if width < NET_FROM else [_level_words(metric, look)]
    if is_past(snapshot):
        newest = min((node.age_s for node in snapshot.nodes if node.age_s is not None), default=None)
        still = [f"last values, {age(last_heard_s(snapshot, newest), look.unknown)} old"]
    both = [*parts, *still, order, cells]
    tries = [[*both, *legend], both]
    tries += [[*parts, *still, cells], [*still, cells]] if is_past(snapshot) else []
    tries += [[*parts, order, cells], [*parts, brief, cells]]
    joined = [look.clean("; ".join(each)) for each in tries]
    told = [words for each in joined for words in (each, each.replace("rows ", "", 1))]
    return next((words for words in told if cells_of(words) <= width - TITLE_LEAST), told[-1])


def _level_words(metric: CellMetric, look: Look) -> str:
    """What it means that a cell is shaded or bold, which fits themes without colours, too."""
    if has_shades(look):
        return "shade: how far from the median" if metric.of_gpu else f"shade: % {OF_BASE[0]}"
    return f"bold: {STOPS[0] * 100:g} % {'off the median' if metric.of_gpu else OF_BASE[0]} or more"


def _order_words(view: TableView, metric: CellMetric) -> tuple[str, str]:
    """What the rows are sorted by, and the same in short: without which of a host's cells counts."""
    order, reverse = ORDERS.get(view.sort, f"by {view.sort}"), ", reversed" if view.reverse else ""
    which = "" if view.sort != ODD else ": GPU farthest from the median" if metric.of_gpu else ": the most late rank"
    return f"{order}{which}{reverse}", f"{order}{reverse}"


def host_heading_at(snapshot: Snapshot, sort: str, width: int, x: int, metric: str) -> str | None:
    """The order that the heading at the cell `x` stands for; `metric` is the key of what the cells show."""
    sheet, end = host_sheet(snapshot, metric_of(snapshot, metric), width, sort), 0
    for text, name in [*sheet.heads(), (" " * (1 + sheet.cells * sheet.cell), ODD)]:
        end += len(text)
        if x < end:
            return name
    return None


class _Page:
    """What all rows of one drawing share."""

    def __init__(self, picture: ViewState, width: int, metric: CellMetric, sort: str) -> None:
        snapshot = picture.snapshot
        self.snapshot, self.look, self.width, self.metric = snapshot, picture.look, width, metric
        self.nodes = {node.node: node for node in snapshot.nodes}
        self.sheet = host_sheet(snapshot, metric, width, sort)
        self.hosts = marked_hosts(snapshot.findings, snapshot.nodes)
        self.told = marked_hosts(about_machine(snapshot.findings), snapshot.nodes)
        self.ranks = found_on(snapshot.findings)
        self.lateness = ShownLateness(snapshot)
        self.middle = middle_of(metric, snapshot)
        self.over = is_past(snapshot)  # then the last values stand there, dim
        self.silent = set() if self.over else silent_hosts(snapshot)
        self.unheard = set() if self.over else unheard_hosts(snapshot)
        self.base_ms = base_step_ms(snapshot)

    def headings(self) -> Line:
        sheet = self.sheet
        text = "".join(text for text, _ in sheet.heads())
        text += " " + "".join(f" {place:>{sheet.cell - CELL_FRAME}} " for place in range(sheet.cells))
        room = self.width - sheet.lead - sheet.cells * sheet.cell
        return fit([Segment(text + (" remarks" if room >= REMARK_LEAST else ""), self.look.dim)], self.width)

    def row(self, number: int, under_cursor: bool) -> Line:
        """One host."""
        node, look = self.nodes[number], self.look
        silent = node.node in self.unheard
        old = silent or self.over
        rest = self._rest(node, silent)
        rest = dimmed([rest], look)[0] if self.over else rest
        line = fit([*self._host(node, old, under_cursor), *rest], self.width)
        return list(Segment.apply_style(line, look.selected)) if under_cursor else line

    def _host(self, node: NodeView, old: bool, under_cursor: bool) -> Line:
        look, sheet, finding = self.look, self.sheet, self.hosts.get(node.node)
        glyph, style = self._sign(node)
        name = left(look.clean(node.host) or look.unknown, sheet.host, look.glyphs.more)
        loud = finding is not None and finding.severity != "info"
        is_late = loud and finding is not None and KINDS[finding.kind].late
        line: Line = [
            Segment(look.glyphs.cursor if under_cursor else " ", look.strong),
            Segment(f"{glyph} ", style),
            Segment(name, look.strong if loud else look.dim if old else look.text),
            Segment(clip(number_span(node.ranks), RANKS - 1, look.cut).rjust(RANKS), look.dim),
        ]
        for name, cells in sheet.figures.items():
            words = self._late(node) if name == "late" else self._odd(node) if name == ODD else WORDS[name](node)
            line.append(self._number(words, cells, old, loud=is_late and name == "late"))
        return [*line, Segment(" ", look.text)]

    def _sign(self, node: NodeView) -> tuple[str, Style]:
        """The sign of its worst finding; where something stands out on it, a note counts only if it tells of that."""
        finding, look = self.hosts.get(node.node), self.look
        stands_out = bool(host_words(node.figures)) or node.node in self.silent
        if stands_out and (finding is None or finding.severity == "info"):
            return self._told_sign(node)
        return (" ", look.text) if finding is None else finding_style(finding, look)

    def _told_sign(self, node: NodeView) -> tuple[str, Style]:
        """How what stands out on it is marked: as the worst finding that tells of it, else as what stands out."""
        finding = self.told.get(node.node)
        return (self.look.glyphs.mark, self.look.accent) if finding is None else finding_style(finding, self.look)

    def _late(self, node: NodeView) -> str | None:
        """Lateness of its latest rank."""
        return self.look.clean(self.lateness.words(node.ranks, "", self.sheet.figures["late"] - 1)) or None

    def _odd(self, node: NodeView) -> str | None:
        """The value of its cells that sorts."""
        value = odd_one(self.metric, values_of(self.metric, node, self.lateness.ranks), self.middle)
        return cell_words(self.metric, value, self.lateness, self.look) or None

    def _number(self, text: str | None, width: int, old: bool, *, loud: bool = False) -> Segment:
        shown = text if text is not None else self.look.unknown
        tone = self.look.dim if old or text is None else self.look.strong if loud else self.look.text
        return Segment(f"{shown:>{width}}", tone)

    def _rest(self, node: NodeView, old: bool) -> Line:
        """The cells and the remarks; of a host that has fallen silent, for how long."""
        look, sheet = self.look, self.sheet
        if old:
            return [Segment(f" silent for {age(node.age_s, look.unknown)}", look.accent)]
        states = gpu_states(self.snapshot.ranks, node)
        cells = self._cells(node, states if self.metric.of_gpu is not None else [])
        room = self.width - sheet.lead - sheet.cells * sheet.cell - 2
        said = self._remarks(node, states, room) if room >= REMARK_LEAST - 2 else []
        return [*cells, Segment(" "), *_fitting(said, room, look)]

    def _cells(self, node: NodeView, states: list[GpuState]) -> Line:
        look, sheet, metric = self.look, self.sheet, self.metric
        values = values_of(metric, node, self.lateness.ranks)
        line: Line = []
        glyphs = self._glyphs(node, states, len(values))
        for place, value in enumerate(values[: sheet.cells]):
            level = level_of(metric, value, self.middle, self.base_ms)
            text = self._cell_words(node, place, value)
            line += cell(text, sheet.cell - CELL_FRAME, level, glyphs[place], look)
        more = len(values) - sheet.cells
        short = sheet.cells - len(values)
        rest = Segment(f"+{more}" if more > 0 else " " * (short * sheet.cell), look.dim)
        return [*line, rest] if more > 0 or short > 0 else line

    def _cell_words(self, node: NodeView, place: int, value: float) -> str:
        """The value of a cell, and how often a rank is late now and then where all cells have room for that."""
        room = self.sheet.cell - CELL_FRAME
        if room == self.metric.width:
            return cell_words(self.metric, value, self.lateness, self.look)
        return self.look.clean(self.lateness.words(node.ranks[place : place + 1], "", room))

    def _glyphs(self, node: NodeView, states: list[GpuState], cells: int) -> list[tuple[str, Style]]:
        """The sign of each cell; none where all would have that of the host, which says it of all."""
        glyphs = [self._glyph(node, states, place) for place in range(cells)]
        own = self._sign(node)
        return [(" ", self.look.text)] * cells if {sign for sign, _ in glyphs} == {own[0]} else glyphs

    def _glyph(self, node: NodeView, states: list[GpuState], place: int) -> tuple[str, Style]:
        if states:
            return gpu_glyph(states[place], self.ranks, self.look)
        finding = self.ranks.worst.get(node.ranks[place]) if place < len(node.ranks) else None
        return finding_style(finding, self.look) if finding else (" ", self.look.text)

    def _remarks(self, node: NodeView, states: list[GpuState], room: int) -> Line:
        """Its worst finding in `room` cells and what else stands out, in their own colours; information comes last."""
        finding, look, rest = self.hosts.get(node.node), self.look, summarise_host(node, self.snapshot.ranks, states)
        tone = self._told_sign(node)[1]
        others = [Segment(look.clean(words), tone) for words in [*self._silence(node, finding), *rest]]
        if finding is None:
            return others
        whom = who(finding, node)
        words = look.clean(f"{whom}: {what_within(finding, room - len(whom) - 2)}")
        said = Segment(words, finding_style(finding, look)[1])
        return [*others, said] if finding.severity == "info" else [said, *others]

    def _silence(self, node: NodeView, finding: Finding | None) -> list[str]:
        """How many of its ranks are silent and for how long, where no warning tells what is wrong with it."""
        ranks = self.snapshot.ranks
        if ranks is None or node.node not in self.silent or (finding is not None and finding.severity != "info"):
            return []
        is_silent = silent_ranks(ranks)
        silent = [rank for rank in node.ranks if is_silent[rank]]
        return [f"{plural(len(silent), 'rank')} silent for {age(ranks.age_s[silent].max())}"] if silent else []


def _fitting(remarks: Line, room: int, look: Look) -> Line:
    """As many remarks as fit, without what they say in brackets where that has no room, and how many are left out."""
    whole = joined([[part] for part in remarks], Segment("; ", look.dim))
    if width_of(whole) <= room:
        return whole
    brief = [Segment(re.sub(r" \([^)]*\)", "", text), style) for text, style, _ in remarks]
    counted = [Segment(f"{len(brief) - count} more", look.dim) for count in range(len(brief))]
    tries = [brief, *([*brief[:count], counted[count]] for count in range(len(brief) - 1, 0, -1)), brief[:1]]
    lines = (joined([[part] for part in parts], Segment("; ", look.dim)) for parts in tries)
    return next((line for line in lines if width_of(line) <= room), cut(brief[:1], room, Segment(look.glyphs.more)))


def _percent(value: float | None) -> str | None:
    return None if value is None else f"{value:.0f}"


def _load(node: NodeView) -> str | None:
    load = node.figures.load_1m
    return None if load is None or not math.isfinite(load) else figure(load) if load < 100 else f"{load:.0f}"


def _net(node: NodeView) -> str | None:
    rate = known_sum([received(node.figures), sent(node.figures)])
    return None if rate is None else size(rate)


WORDS: Mapping[str, Callable[[NodeView], str | None]] = {
    "cpu%": lambda node: _percent(node.figures.cpu_pct),
    "mem%": lambda node: _percent(memory_pct(node.figures)),
    "load": _load,
    "net/s": _net,
}
