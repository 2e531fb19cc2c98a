"""The hosts: a table of them and the one under the cursor below it, or the only one in full; and one host alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from ddpmon.format import plural
from ddpmon.report.verdicts import about_host, marked_ranks
from ddpmon.snapshot import Finding, NodeView
from ddpmon.tui.draw.host_cells import offered
from ddpmon.tui.draw.host_courses import has_plots, host_courses, plotted_rank
from ddpmon.tui.draw.host_detail import HostPage, host_page
from ddpmon.tui.draw.order import HOST_LETTERS, HOST_MEANINGS, ODD
from ddpmon.tui.draw.panel import Keys, no_match, without_heading
from ddpmon.tui.draw.panel_sizes import host_plan
from ddpmon.tui.filter.fits import fitting_ranks
from ddpmon.tui.lines import Line, fit_all
from ddpmon.tui.screens.base import COPY_KEYS, ViewScreen
from ddpmon.tui.view_state import fills_room
from ddpmon.tui.view_tables import TableName, hosts_csv
from ddpmon.tui.widgets.canvas import Canvas
from ddpmon.tui.widgets.filter_bar import FilterBar
from ddpmon.tui.widgets.linked_text import LinkedLines, LinkedText
from ddpmon.tui.widgets.virtual_table import HostTable


class HostReading(ViewScreen):
    """Reads one host in full, and where there is room what its ranks did over the last steps below that."""

    exported: ClassVar[TableName] = "hosts"
    _plotted_rank: int | None = None  # the rank whose plots there is room for

    @property
    def host(self) -> NodeView | None:
        """The host that is read, or under the cursor."""
        return next((node for node in self.picture.snapshot.nodes if node.node == self.number), None)

    @property
    def number(self) -> int | None:
        """The number of that host."""
        raise NotImplementedError

    @property
    def finding_here(self) -> Finding | None:
        """The worst finding about the rank under the cursor; where there is none, about the host."""
        host = self.host
        about = [] if host is None else about_host(self.picture.snapshot.findings, host)
        return super().finding_here or next(iter(about), None)

    def tells(self, finding: Finding) -> bool:
        """Whether it is about one of the hosts that are shown."""
        return any(about_host([finding], node) for node in self.shown_hosts)

    @property
    def shown_hosts(self) -> Sequence[NodeView]:
        """The hosts of the view."""
        raise NotImplementedError

    @property
    def subject(self) -> str:
        """The host."""
        return "" if self.host is None else self.host.host

    @property
    def detailed_rank(self) -> int | None:
        """The rank of the host that is plotted."""
        return self._plotted_rank

    def show(self) -> None:
        """Draw, and read what there turned out to be room for."""
        super().show()
        if self.is_current:
            self.dashboard.read_detail_of(self.detailed_rank)

    def courses(self, number: int, width: int, height: int, rank: int | None = None) -> list[Line]:
        """What has room below a host; `rank` is the one to plot, None for the one that matters most."""
        snapshot = self.picture.snapshot
        wanted = plotted_rank(snapshot, number) if rank is None else rank
        self._plotted_rank = wanted if has_plots(self.picture, number, height) else None
        lines = host_courses(self.picture, number, width, height)
        self.shows_steps = bool(lines)
        return lines

    def page(self, number: int, width: int) -> LinkedLines:
        """A host as text that leads to its ranks, the one under the cursor in plots."""
        page = host_page(self.picture, number, width)
        said: list[Line] = []
        if self.picture.wanted and not fitting_ranks(self.picture.snapshot, self.picture.wanted).any():
            said = no_match("rank", width, self.picture.look)
        lines, first, reading = [*said, *page.lines], len(said), self.query_one(LinkedText)
        ranks = {line + first: rank for line, rank in page.ranks.items()}
        below = self.courses(number, width, reading.size.height - len(lines), reading.rank)
        return LinkedLines([*lines, *below], ranks, lambda line, x: page.rank_at(line - first, x))

    def on_linked_text_moved(self) -> None:
        """Another rank of the host is under the cursor, and chosen."""
        self.dashboard.links.choose(self.query_one(LinkedText).rank)
        self.show()


class HostsScreen(HostReading):
    """All hosts; a run on one host has that one in full at once."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("full_stop,s", "sort(1)", "Sort by the next column", show=False),
        Binding("comma", "sort(-1)", "Sort by the column before", show=False),
        Binding("0", "sort_by('worst')", "The worst first again", show=False),
        *(Binding(key, f"sort_by('{name}')", f"Sort by {name}", show=False) for key, name in HOST_LETTERS.items()),
        Binding("r", "reverse", "Reverse the order", show=False),
        Binding("v", "metric", "The next metric of the GPUs", show=False),
    ]
    AUTO_FOCUS = ""
    view: ClassVar[str] = "hosts"
    panels: ClassVar[tuple[str, ...]] = ("table", "chosen")
    _page: HostPage | None = None  # of the host under the cursor, as it is drawn below the table

    def on_mount(self) -> None:
        """Arrange the table as it was left; the base class does the rest."""
        self.dashboard.habits.take_hosts(self.table)

    def action_maximise(self) -> None:
        """Show one panel alone; the only host of a run is one already."""
        if len(self.picture.snapshot.nodes) != 1:
            super().action_maximise()

    def follow(self) -> None:
        """Put the cursor on the host of the rank under the cursor of the overview; of a calm first one on the worst."""
        links, picture = self.dashboard.links, self.picture
        rank = links.current
        host = links.host_of(rank)
        if host is not None:
            is_worst = links.has_worst_first and rank not in marked_ranks(picture.snapshot.findings)
            is_worst |= host in self.table.arranged(picture, picture.wanted)[:1]
            self.table.hold(None if links.chosen is None and is_worst else host)
            self.query_one(LinkedText).hold(rank, seeks=links.chosen is not None)

    def compose(self) -> ComposeResult:
        """Header, the table, the host under the cursor, the keys."""
        yield Canvas(self.head, id="head")
        yield HostTable()
        yield Canvas(self._chosen, id="chosen")
        yield LinkedText(lambda w: self.page(self.only, w), lambda: self.picture.look)
        yield FilterBar()
        yield self.foot()

    @property
    def table(self) -> HostTable:
        """The table of hosts."""
        return self.query_one(HostTable)

    @property
    def number(self) -> int | None:
        """The number of the host under the cursor, or of the only one."""
        return self.table.chosen if self.table.display else self.only

    @property
    def shown_hosts(self) -> Sequence[NodeView]:
        """All hosts: the table says of each what is found."""
        return self.picture.snapshot.nodes

    def tells(self, finding: Finding) -> bool:
        """Whether it is about one of the hosts that the filter leaves."""
        return finding in self.picture.found and super().tells(finding)

    @property
    def only(self) -> int:
        """The number of the only host."""
        nodes = self.picture.snapshot.nodes
        return nodes[0].node if nodes else -1

    def share_out(self, room: int) -> None:
        """A table, and the host under its cursor below; the only host alone."""
        hosts = len(self.picture.snapshot.nodes)
        high, below = host_plan(hosts, room, fills=fills_room(self.picture))
        table, chosen, reading = self.table, self.query_one("#chosen"), self.query_one(LinkedText)
        table.display, chosen.display, reading.display = hosts != 1, below > 0, hosts == 1
        table.styles.height, chosen.styles.height = max(high, 1), max(below, 1)
        wanted = reading if hosts == 1 else table
        if self.focused is not wanted and not self.is_typing:
            wanted.focus()
        table.show(self.picture)

    def _chosen(self, width: int, height: int) -> list[Line]:
        """The host under the cursor with what has room below it, or its beginning and how much is left out."""
        number, self._page = self.table.chosen, None
        lines: list[Line] = []
        if number is not None:
            self._page = self._page_of(number, width, height - 1)
            lines = [*self._page.lines]
            lines += self.courses(number, width, height - len(lines), self._rank_of(number))
        if len(lines) > height > 1:
            below = plural(len(lines) - height + 1, "more line")
            lines = without_heading(lines[: height - 1])
            lines = [*lines, *[[]] * (height - 1 - len(lines)), [Segment(f"    {below}: enter", self.picture.look.dim)]]
        return fit_all(lines, width, height)

    def _page_of(self, number: int, width: int, in_sight: int) -> HostPage:
        """A host; of its GPUs that of the chosen rank comes first where it would not be among the lines in sight."""
        page, rank = host_page(self.picture, number, width, named_first=True), self._rank_of(number)
        is_below = any(line >= in_sight for line, other in page.ranks.items() if other == rank)
        return host_page(self.picture, number, width, named_first=True, first=rank) if is_below else page

    def _rank_of(self, number: int) -> int | None:
        """The chosen rank, if it is one of this host."""
        links = self.dashboard.links
        return links.chosen if links.chosen is not None and links.host_of(links.chosen) == number else None

    def _rank_at(self, event: events.Click) -> int | None:
        """The rank that a click below the table is on: none in the last line, which may count those below."""
        is_last = event.y >= self.query_one("#chosen", Canvas).size.height - 1
        return None if self._page is None or is_last else self._page.rank_at(event.y, event.x)

    def on_virtual_table_moved(self) -> None:
        """Another host is under the cursor."""
        self.query_one("#chosen", Canvas).redraw()
        if self.is_current:
            self.dashboard.read_detail_of(self.detailed_rank)

    def on_linked_text_opened(self, message: LinkedText.Opened) -> None:
        """Open a rank of the only host."""
        self.dashboard.links.open_rank(message.rank)

    def on_click(self, event: events.Click) -> None:
        """Below the table a click on the row of a rank chooses it, a double click opens it, and elsewhere the host."""
        number = self.table.chosen
        if self.panel_at(event) != "chosen" or number is None:
            return
        rank = self._rank_at(event)
        if rank is not None and event.chain == 2:
            self.dashboard.links.open_rank(rank)
        elif rank is not None:
            self.dashboard.links.choose(rank)
            self.show()
        elif event.chain == 2:
            self.app.push_screen(HostScreen(number))

    def on_host_table_opened(self, message: HostTable.Opened) -> None:
        """Open a host in full."""
        self.app.push_screen(HostScreen(message.node))

    def keys(self) -> Keys:
        """Back, the whole of a host, the order."""
        if self.is_typing:
            return self.typing_keys
        rest = (("5", "findings"), *self.pause, ("?", "help"), *self.zoom_keys, *COPY_KEYS, ("q", "quit"))
        if len(self.picture.snapshot.nodes) == 1:
            return (*self.back_keys, ("j k", "move"), ("enter", "rank"), *rest)
        order = (("v", "metric"), (", .", "sort"), ("r", "reverse"), ("/", "filter"))
        return (*self.back_keys, ("enter", "host detail"), *order, *rest)

    def csv(self) -> str:
        """The hosts that the filter fits, in the order of the table."""
        return hosts_csv(self.dashboard.shown, self.table.view.order.tolist())

    def action_sort(self, step: int) -> None:
        """Sort by the next column, or by the one before."""
        self.table.next_sort(step)

    def action_sort_by(self, name: str) -> None:
        """Sort by a column; again: the other way round."""
        self.table.sort_by(name)

    def action_metric(self) -> None:
        """Show the next metric in the cells."""
        self.table.next_metric()

    def action_show_metric(self, key: str) -> None:
        """Show this metric in the cells."""
        self.table.metric = key
        self.show()

    @property
    def metrics(self) -> Sequence[tuple[str, str]]:
        """Those of the cells."""
        return [(metric.key, f"Cells: {metric.name}") for metric in offered(self.picture.snapshot)]

    @property
    def sorts(self) -> Sequence[tuple[str, str, str, str]]:
        """The columns of the table."""
        words = {ODD: f"{ODD} (the GPU farthest from the median)"}
        return [(letter, name, words.get(name, name), HOST_MEANINGS[name]) for letter, name in HOST_LETTERS.items()]

    def action_reverse(self) -> None:
        """Turn the order round."""
        self.table.rearrange(reverse=not self.table.view.reverse)


class HostScreen(HostReading):
    """One host in full."""

    view: ClassVar[str] = "host"

    def __init__(self, node: int) -> None:
        super().__init__()
        self.node = node

    @property
    def number(self) -> int:
        """The number of the host."""
        return self.node

    @property
    def shown_hosts(self) -> Sequence[NodeView]:
        """The host."""
        return [] if self.host is None else [self.host]

    def follow(self) -> None:
        """Put the cursor on the chosen rank, if it is one of this host."""
        self.query_one(LinkedText).hold(self.dashboard.links.current)

    def on_linked_text_opened(self, message: LinkedText.Opened) -> None:
        """Open one of its ranks."""
        self.dashboard.links.open_rank(message.rank)

    def compose(self) -> ComposeResult:
        """Header, the host, the keys."""
        yield Canvas(self.head, id="head")
        yield LinkedText(lambda w: self.page(self.node, w), lambda: self.picture.look)
        yield self.foot()

    def csv(self) -> str:
        """This host."""
        return hosts_csv(self.dashboard.shown, [self.node])

    def keys(self) -> Keys:
        """Back, to a rank, scrolling."""
        rest = (("5", "findings"), *self.pause, ("?", "help"), *self.zoom_keys, *COPY_KEYS, ("q", "quit"))
        return (*self.back_keys, ("j k", "move"), ("enter", "rank"), *rest)
