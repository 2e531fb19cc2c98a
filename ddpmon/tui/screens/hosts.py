"""The hosts: a table of them and the one under the cursor below it, or the only one in full; and one host alone."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from ddpmon.tui.draw.host_detail import host_lines
from ddpmon.tui.draw.layout import host_plan
from ddpmon.tui.draw.panel import Keys
from ddpmon.tui.lines import Line, fit_all
from ddpmon.tui.screens.base import ViewScreen
from ddpmon.tui.widgets.canvas import Canvas, ScrollText
from ddpmon.tui.widgets.virtual_table import HostTable


class HostsScreen(ViewScreen):
    """All hosts; a run on one host has that one in full at once."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "sort", "The other order", show=False),
        Binding("r", "reverse", "Reverse the order", show=False),
    ]
    AUTO_FOCUS = ""

    def __init__(self, first: int | None = None) -> None:
        super().__init__()
        self._first = first

    def on_mount(self) -> None:
        """Put the cursor on the host of the chosen rank, if there is one."""
        if self._first is not None:
            self.table.hold(self._first)
        super().on_mount()

    def compose(self) -> ComposeResult:
        """Header, the table, the host under the cursor, the keys."""
        yield Canvas(self.head, id="head")
        yield HostTable()
        yield Canvas(self._chosen, id="chosen")
        yield ScrollText(lambda w: host_lines(self.picture, self.only, w))
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

    def share_out(self, room: int) -> None:
        """A table, and the host under its cursor below; the only host alone."""
        hosts = len(self.picture.snapshot.nodes)
        shares = host_plan(hosts, room)
        table, chosen, reading = self.table, self.query_one("#chosen"), self.query_one(ScrollText)
        self.table.lines_per_row = shares.lines_per_row
        table.display, chosen.display, reading.display = hosts != 1, shares.chosen > 0, hosts == 1
        table.styles.height, chosen.styles.height = max(shares.table, 1), max(shares.chosen, 1)
        wanted = reading if hosts == 1 else table
        if self.focused is not wanted:
            wanted.focus()
        table.show(self.picture)

    def _chosen(self, width: int, height: int) -> list[Line]:
        """The beginning of the host under the cursor."""
        number = self.table.chosen
        return fit_all([] if number is None else host_lines(self.picture, number, width), width, height)

    def on_virtual_table_moved(self) -> None:
        """Another host is under the cursor."""
        self.query_one("#chosen", Canvas).redraw(faded=self.faded)

    def on_host_table_opened(self, message: HostTable.Opened) -> None:
        """Open a host in full."""
        self.app.push_screen(HostScreen(message.node))

    def keys(self) -> Keys:
        """Back, the whole of a host, the order."""
        help_keys = (("1", "overview"), ("5", "findings"), self.pause, ("?", "help"), ("q", "quit"))
        if len(self.picture.snapshot.nodes) == 1:
            return (("esc", "back"), ("j k", "scroll"), *help_keys)
        return (("esc", "back"), ("enter", "the whole host"), ("s", "order"), ("r", "reverse"), *help_keys)

    def action_sort(self) -> None:
        """The other order."""
        self.table.next_sort()

    def action_reverse(self) -> None:
        """Turn the order round."""
        self.table.rearrange(reverse=not self.table.view.reverse)


class HostScreen(ViewScreen):
    """One host in full."""

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
