"""The table of hosts: a line or two each, with every GPU as a bar; only visible rows are formatted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.segment import Segment

from ddpmon.format import age, amount, figure
from ddpmon.report.host_gpus import GpuState, gpu_remarks, gpu_states, rank_span
from ddpmon.report.host_summary import host_words, known_sum, memory_pct, received, sent, summarise_host
from ddpmon.report.verdicts import marked_hosts, marked_ranks
from ddpmon.snapshot import NodeView, Snapshot
from ddpmon.tui.draw.gpu_table import gpu_glyph, share_of
from ddpmon.tui.draw.header import LATE_WORD_S, finding_style
from ddpmon.tui.draw.panel import STRONG, USUAL, meter, title
from ddpmon.tui.draw.table import HEAD, TableView
from ddpmon.tui.lines import Line, clip, fit, fit_all, left, width_of
from ddpmon.tui.theme import Look
from ddpmon.tui.view_state import ViewState

BAR_LEAST, WITH_NUMBER, WITH_POWER, CELL_MOST = 2, 9, 14, 24
BEYOND = 3  # cells that say how many more GPUs there are
NET_FROM = 100  # columns from which the network has one of its own


@dataclass(frozen=True, slots=True)
class Sheet:
    """Widths: of the host's name, of the network's column, of a GPU's cell, and how many GPUs have one."""

    host: int
    net: int
    cell: int
    gpus: int

    @property
    def lead(self) -> int:
        """Cells before the GPUs."""
        return 3 + self.host + 5 + 5 + self.net + 1


def host_sheet(nodes: Sequence[NodeView], width: int) -> Sheet:
    """Share the width out: the GPUs take what the host's own figures leave."""
    longest = max((len(node.host) for node in nodes), default=0)
    host = min(max(longest, 4), 20 if width >= NET_FROM else 10)
    net = 10 if width >= NET_FROM else 0
    most = max((len(node.gpus) for node in nodes), default=0)
    room = width - Sheet(host, net, 0, 0).lead
    cell = min(max(room // max(most, 1), BAR_LEAST + 2), CELL_MOST)
    fitting = most if most * cell <= room else max(room - BEYOND, 0) // cell
    return Sheet(host, net, cell, fitting)


def host_table_lines(
    picture: ViewState, view: TableView, width: int, height: int, lines_per_row: int = 1
) -> list[Line]:
    """Title, headings and as many hosts as fit; `view.order` holds node numbers."""
    snapshot, look = picture.snapshot, picture.look
    room = max((height - HEAD) // lines_per_row, 0)
    page = _Page(snapshot, look, width, lines_per_row)
    lines = [title("hosts", _subtitle(snapshot, view, room), width, look), page.headings()]
    for place, number in enumerate(view.order[view.top : view.top + room].tolist(), view.top):
        lines += page.row(int(number), view.focused and place == view.cursor)
    if not len(view.order):
        why = "no host has a rank that matches; esc in the overview clears the filter"
        lines.append([Segment(f"   {why if view.wanted else look.clean(_nobody(snapshot))}", look.dim)])
    return fit_all(lines, width, height)


def _nobody(snapshot: Snapshot) -> str:
    """Why the table is empty."""
    if snapshot.run is None:
        return snapshot.link.message or "no run has been read yet"
    return "waiting: no host has published yet"


def _subtitle(snapshot: Snapshot, view: TableView, room: int) -> str:
    shown = len(view.order)
    known = max(len(snapshot.run.nodes) if snapshot.run else 0, shown)
    parts = [f"filter {view.wanted}: {shown:,} of {known:,}"] if view.wanted else []
    parts += [f"{shown:,} of {known:,} heard from"] if shown < known and not view.wanted else []
    parts += [f"{view.top + 1:,} to {min(view.top + room, shown):,} of {shown:,}"] if shown > room > 0 else []
    return "; ".join([*parts, _order(view)])


def _order(view: TableView) -> str:
    name = "the worst first" if view.sort == "worst" else f"by {view.sort}"
    return name + (", reversed" if view.reverse else "")


def host_heading_at(snapshot: Snapshot, width: int, x: int) -> str | None:
    """The order that the heading at the cell `x` stands for."""
    sheet, end = host_sheet(snapshot.nodes, width), 0
    for name, cells in (("worst", 3), ("host", sheet.host), ("cpu%", 5), ("mem%", 5), ("net/s", sheet.net)):
        end += cells
        if x < end:
            return name
    return None


class _Page:
    """What all rows of one drawing share."""

    def __init__(self, snapshot: Snapshot, look: Look, width: int, lines_per_row: int) -> None:
        self.snapshot, self.look, self.width = snapshot, look, width
        self.tall = lines_per_row > 1
        self.nodes = {node.node: node for node in snapshot.nodes}
        self.sheet = host_sheet(snapshot.nodes, width)
        self.hosts = marked_hosts(snapshot.findings, snapshot.nodes)
        self.ranks = marked_ranks(snapshot.findings)

    def headings(self) -> Line:
        sheet, look = self.sheet, self.look
        text = (
            f"   {'host':<{sheet.host}}{'cpu%':>5}{'mem%':>5}" + (f"{'net/s':>{sheet.net}}" if sheet.net else "") + " "
        )
        for place in range(sheet.gpus):
            name = f" {place}" if place or sheet.cell < 6 else " gpu 0"
            units = "%   W " if sheet.cell >= WITH_POWER else "% " if sheet.cell >= WITH_NUMBER else ""
            text += (
                name + units.rjust(sheet.cell - len(name))
                if len(name + units) < sheet.cell
                else left(name, sheet.cell, "")
            )
        return fit([Segment(text, look.dim)], self.width)

    def row(self, number: int, under_cursor: bool) -> list[Line]:
        """One host, in one line or two."""
        node, look = self.nodes[number], self.look
        old = node.age_s is None or node.age_s >= LATE_WORD_S
        states = [] if old else gpu_states(self.snapshot.ranks, node)
        lines = [[*self._host(node, old, under_cursor), *self._gpus(node, states, old)]]
        lines += [[*self._below(node), *self._gpus_below(states)]] if self.tall else []
        fitted = [fit(line, self.width) for line in lines]
        return [list(Segment.apply_style(line, look.selected)) for line in fitted] if under_cursor else fitted

    def _host(self, node: NodeView, old: bool, under_cursor: bool) -> Line:
        look, sheet, figures = self.look, self.sheet, node.figures
        finding = self.hosts.get(node.node)
        glyph, style = finding_style(finding, look) if finding else (" ", look.text)
        tight = host_words(figures)
        if tight and (finding is None or finding.severity == "info"):
            glyph, style = look.glyphs.mark, look.accent
        name = left(look.clean(node.host) or look.unknown, sheet.host, look.glyphs.more)
        loud = finding is not None and finding.severity != "info"
        line: Line = [
            Segment(look.glyphs.cursor if under_cursor else " ", look.strong),
            Segment(f"{glyph} ", style),
            Segment(name, look.strong if loud else look.dim if old else look.text),
            self._number(_percent(figures.cpu_pct), 5, old),
            self._number(_percent(memory_pct(figures)), 5, old),
        ]
        if sheet.net:
            line.append(self._number(_net(node), sheet.net, old))
        return [*line, Segment(" ", look.text)]

    def _number(self, text: str | None, width: int, old: bool) -> Segment:
        shown = text if text is not None else self.look.unknown
        return Segment(f"{shown:>{width}}", self.look.dim if old or text is None else self.look.text)

    def _gpus(self, node: NodeView, states: list[GpuState], old: bool) -> Line:
        """Utilisation of each GPU, with its power where that fits; or why there is nothing to draw."""
        look = self.look
        if old:
            return [Segment(f" no word for {age(node.age_s, look.unknown)}", look.accent)]
        if not states:
            words = "; ".join(summarise_host(node, self.snapshot.ranks))
            room = self.width - self.sheet.lead - 1
            return [Segment(" " + clip(look.clean(words), room - 1, look.glyphs.more), look.accent)] if words else []
        line = [segment for state in states[: self.sheet.gpus] for segment in self._gpu(state)]
        more = len(states) - self.sheet.gpus
        return [*line, Segment(f"+{more}", look.dim)] if more > 0 else line

    def _gpu(self, state: GpuState) -> Line:
        gpu, look, cell = state.gpu, self.look, self.sheet.cell
        remarks = gpu_remarks(state)
        glyph, style = gpu_glyph(state, remarks, self.ranks, look)
        numbers = f"{_percent(gpu.utilization_pct) or look.unknown:>4}" if cell >= WITH_NUMBER else ""
        numbers += f"{_percent(gpu.power_w) or look.unknown:>5}" if cell >= WITH_POWER else ""
        bar = meter(share_of(gpu.utilization_pct, 100.0), cell - 2 - len(numbers), look, STRONG)
        if not numbers and gpu.utilization_pct is None:
            bar = [Segment(look.unknown, look.dim)]
        return self._cell([Segment(glyph, style), *bar, Segment(numbers, look.text)])

    def _cell(self, line: Line) -> Line:
        return fit(line, self.sheet.cell)

    def _below(self, node: NodeView) -> Line:
        """Ranks and load, under the host's name."""
        look = self.look
        load = f"load {figure(node.figures.load_1m, look.unknown)}"
        words = clip(rank_span(node.ranks), self.sheet.lead - 6 - len(load), look.glyphs.more)
        line: Line = [Segment(f"   {words}", look.dim)]
        room = self.sheet.lead - 1 - width_of(line)
        return [*line, Segment(f"{load:>{room}} ", look.dim)]

    def _gpus_below(self, states: list[GpuState]) -> Line:
        """Memory of each GPU, with its temperature where that fits."""
        look, cell = self.look, self.sheet.cell
        degrees = "C" if look.ascii_only else "°"
        line: Line = []
        for gpu in [state.gpu for state in states[: self.sheet.gpus]]:
            used = share_of(gpu.memory_used, gpu.memory_total)
            numbers = (
                f"{_percent(None if used is None else 100 * used) or look.unknown:>4}" if cell >= WITH_NUMBER else ""
            )
            warm = _percent(gpu.temperature_c)
            numbers += f"{warm + degrees if warm else look.unknown:>5}" if cell >= WITH_POWER else ""
            line += self._cell(
                [Segment(" "), *meter(used, cell - 2 - len(numbers), look, USUAL), Segment(numbers, look.dim)]
            )
        return line


def _percent(value: float | None) -> str | None:
    return None if value is None else f"{value:.0f}"


def _net(node: NodeView) -> str | None:
    rate = known_sum([received(node.figures), sent(node.figures)])
    return None if rate is None else amount(rate)
