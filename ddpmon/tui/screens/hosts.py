"""The hosts: a table of them and the one under the cursor below it, or the only one in full; and one host alone."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from ddpmon.tui.draw.header import header_line, notice_line
from ddpmon.tui.draw.host_detail import host_lines
from ddpmon.tui.draw.layout import host_plan
from ddpmon.tui.draw.order import HOST_LETTERS
from ddpmon.tui.draw.panel import Keys
from ddpmon.tui.lines import Line, fit_all
from ddpmon.tui.screens.base import FILTER_KEYS, BaseScreen
from ddpmon.tui.view_state import notice
from ddpmon.tui.widgets.canvas import Canvas, ScrollText
from ddpmon.tui.widgets.filter_bar import FilterBar
from ddpmon.tui.widgets.virtual_table import HostTable


class HostView(BaseScreen):
    """What both screens of hosts share: the header with a notice where there is one."""

    def show(self) -> None:
        """Make room for a notice when there is one."""
        self.query_one("#head").styles.height = 2 if notice(self.picture) else 1
        super().show()

    def head(self, width: int, height: int) -> list[Line]:
        """Which run this is, and what stands between it and us."""
        lines = [header_line(self.picture, width)]
        return [*lines, notice_line(self.picture, width)] if height > 1 else lines

    @property
    def pause(self) -> tuple[str, str]:
        """The key that freezes the display."""
        return ("space", "go on" if self.picture.paused_s is not None else "freeze")


class HostsScreen(HostView):
    """All hosts; a run on one host has that one in full at once."""

    view = "hosts"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.overview", "Back", show=False),
        Binding("full_stop,s", "sort(1)", "Sort by the next column", show=False),
        Binding("comma", "sort(-1)", "Sort by the column before", show=False),
        Binding("0", "sort_by('worst')", "The worst first again", show=False),
        *(Binding(key, f"sort_by('{name}')", f"Sort by {name}", show=False) for key, name in HOST_LETTERS.items()),
        Binding("r", "reverse", "Reverse the order", show=False),
    ]
    AUTO_FOCUS = ""

    def compose(self) -> ComposeResult:
        """Header, the table, the host under the cursor, the keys."""
        yield Canvas(self.head, id="head")
        yield HostTable()
        yield Canvas(self._chosen, id="chosen")
        yield ScrollText(lambda w: host_lines(self.picture, self.only, w))
        yield FilterBar()
        yield Canvas(self.foot, id="foot")

    @property
    def table(self) -> HostTable:
        """The table of hosts."""
        return self.query_one(HostTable)

    @property
    def only(self) -> int:
        """The number of the only host."""
        nodes = self.picture.snapshot.nodes
        return nodes[0].node if nodes else -1

    def show(self) -> None:
        """Share out the room, then draw."""
        self._arrange()
        self.table.show(self.picture)
        super().show()

    def on_resize(self, _event: events.Resize) -> None:
        """Another size is another plan."""
        if self.ready:
            self.show()

    def _arrange(self) -> None:
        hosts = len(self.picture.snapshot.nodes)
        room = self.size.height - 2 - bool(notice(self.picture)) - FilterBar.HEIGHT * self.query_one(FilterBar).display
        shares = host_plan(hosts, room)
        table, chosen, reading = self.table, self.query_one("#chosen"), self.query_one(ScrollText)
        self.table.lines_per_row = shares.lines_per_row
        table.display, chosen.display, reading.display = hosts != 1, shares.chosen > 0, hosts == 1
        table.styles.height, chosen.styles.height = max(shares.table, 1), max(shares.chosen, 1)
        wanted = reading if hosts == 1 else table
        if self.focused is not wanted and not self.is_typing:
            wanted.focus()

    def _chosen(self, width: int, height: int) -> list[Line]:
        """The beginning of the host under the cursor."""
        number = self.table.chosen
        return fit_all([] if number is None else host_lines(self.picture, number, width), width, height)

    def on_rows_moved(self) -> None:
        """Another host is under the cursor."""
        self.query_one("#chosen", Canvas).redraw(faded=self.faded)

    def on_host_table_opened(self, message: HostTable.Opened) -> None:
        """Open a host in full."""
        self.app.push_screen(HostScreen(message.node))

    def keys(self) -> Keys:
        """Back, the whole of a host, the order."""
        if self.is_typing:
            return FILTER_KEYS
        help_keys = (("/", "filter"), ("1", "overview"), ("5", "findings"), self.pause, ("?", "help"), ("q", "quit"))
        if len(self.picture.snapshot.nodes) == 1:
            return (("esc", "back"), ("j k", "scroll"), *help_keys)
        return (("esc", "back"), ("enter", "the whole host"), (", .", "sort"), ("r", "reverse"), *help_keys)

    def action_sort(self, step: int) -> None:
        """Sort by the next column, or by the one before."""
        self.table.next_sort(step)

    def action_sort_by(self, name: str) -> None:
        """Sort by a column; again: the other way round."""
        self.table.sort_by(name)

    def action_reverse(self) -> None:
        """Turn the order round."""
        self.table.rearrange(reverse=not self.table.view.reverse)


class HostScreen(HostView):
    """One host in full."""

    view = "host"

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "app.back", "Back", show=False)]

    def __init__(self, node: int) -> None:
        super().__init__()
        self.node = node

    def compose(self) -> ComposeResult:
        """Header, the host, the keys."""
        yield Canvas(self.head, id="head")
        yield ScrollText(lambda w: host_lines(self.picture, self.node, w))
        yield Canvas(self.foot, id="foot")

    def keys(self) -> Keys:
        """Back and scrolling."""
        return (("esc", "back"), ("j k", "scroll"), ("1", "overview"), ("5", "findings"), self.pause, ("?", "help"),
                ("q", "quit"))  # fmt: skip
