"""The table of hosts: in what order, and which host was chosen."""

from __future__ import annotations

from textual.message import Message

from ddpmon.snapshot import Ints
from ddpmon.tui.draw.host_table import ORDERS, host_table_lines
from ddpmon.tui.draw.order import ordered_hosts
from ddpmon.tui.draw.table import TableView
from ddpmon.tui.lines import Line
from ddpmon.tui.picture import Picture
from ddpmon.tui.widgets.rows import Rows


class HostTable(Rows):
    """One row a host, of one line or two."""

    class Opened(Message):
        """A host was chosen."""

        def __init__(self, node: int) -> None:
            super().__init__()
            self.node = node

    def arranged(self, picture: Picture) -> Ints:
        """The node numbers in row order."""
        return ordered_hosts(picture.snapshot, self.view.sort, self.view.reverse)

    def drawn(self, picture: Picture, view: TableView, width: int, height: int) -> list[Line]:
        """The table's lines."""
        return host_table_lines(picture, view, width, height, self.lines_per_row)

    def opened(self, number: int) -> None:
        """Say that a host was chosen."""
        self.post_message(self.Opened(number))

    def next_sort(self) -> None:
        """The other order."""
        names = list(ORDERS)
        self.rearrange(sort=names[(names.index(self.view.sort) + 1) % len(names)], reverse=False)
