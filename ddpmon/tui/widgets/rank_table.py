"""The rank table: which rows are in sight, where the cursor is, how it is sorted and filtered."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from ddpmon.tui.draw.columns import GPU_COLUMNS, SORTS
from ddpmon.tui.draw.order import ordered
from ddpmon.tui.draw.table import HEAD, TableView, table_lines
from ddpmon.tui.lines import Line
from ddpmon.tui.picture import Picture
from ddpmon.tui.widgets.canvas import Canvas


class RankTable(Canvas, can_focus=True):
    """A virtual table: any number of ranks, only the rows in sight are formatted.

    The cursor follows its rank when rows are sorted anew; until it is moved it stays on the first row, the worst.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home,g", "first", "First", show=False),
        Binding("end,G", "last", "Last", show=False),
        Binding("enter", "open", "Detail", show=False),
    ]

    class Opened(Message):
        """A rank was chosen."""

        def __init__(self, rank: int) -> None:
            super().__init__()
            self.rank = rank

    def __init__(self) -> None:
        super().__init__(self._lines, id="table")
        self._picture: Picture | None = None
        self._held: int | None = None
        self.view = TableView(np.zeros(0, dtype=np.int64))

    def show(self, picture: Picture) -> None:
        """Take over a new picture."""
        self._picture = picture
        self._settle(ordered(picture.snapshot, self.view.sort, self.view.reverse, self.view.wanted))

    def _settle(self, order: np.ndarray) -> None:
        """Find the cursor's row in the new order and keep it in sight."""
        row = 0
        if self._held is not None:
            found = np.flatnonzero(order == self._held)
            row = int(found[0]) if len(found) else min(self.view.cursor, max(len(order) - 1, 0))
        self.view = replace(self.view, order=order, cursor=row, top=self._top(row, len(order)))
        self.redraw(faded=self._faded())

    def _top(self, row: int, total: int) -> int:
        room = max(self.size.height - HEAD, 1)
        top = min(max(self.view.top, row - room + 1), row)
        return max(min(top, total - room), 0)

    def _lines(self, width: int, height: int) -> list[Line]:
        if self._picture is None:
            return []
        return table_lines(self._picture, replace(self.view, focused=self.has_focus), width, height)

    @property
    def rank(self) -> int | None:
        """The rank under the cursor."""
        return int(self.view.order[self.view.cursor]) if len(self.view.order) else None

    def rearrange(self, *, sort: str | None = None, reverse: bool | None = None, wanted: str | None = None) -> None:
        """Sort or filter differently, and go back to the first row."""
        changes = {"sort": sort, "reverse": reverse, "wanted": wanted}
        self.view = replace(self.view, top=0, cursor=0, **{k: v for k, v in changes.items() if v is not None})  # type: ignore[arg-type]
        self._held = None
        if self._picture is not None:
            self.show(self._picture)

    def next_sort(self) -> None:
        """Sort by the next column that has anything to show."""
        ranks = self._picture.snapshot.ranks if self._picture else None
        bare = ranks is not None and not any(ranks.gpu)
        names = [name for name in SORTS if not (bare and name in GPU_COLUMNS)]
        place = names.index(self.view.sort) if self.view.sort in names else -1
        self.rearrange(sort=names[(place + 1) % len(names)], reverse=False)

    def action_move(self, rows: int) -> None:
        """Move the cursor, and hold on to the rank it lands on."""
        total = len(self.view.order)
        if total:
            self._held = int(self.view.order[max(0, min(self.view.cursor + rows, total - 1))])
            self._settle(self.view.order)

    def action_page(self, pages: int) -> None:
        """Move by what is in sight."""
        self.action_move(pages * max(self.size.height - HEAD - 1, 1))

    def action_first(self) -> None:
        """Go to the first row, and stay on it whichever rank it shows."""
        self._held = None
        self._settle(self.view.order)

    def action_last(self) -> None:
        """Go to the last row."""
        self.action_move(len(self.view.order))

    def action_open(self) -> None:
        """Open the rank under the cursor."""
        if self.rank is not None:
            self.post_message(self.Opened(self.rank))

    def on_focus(self) -> None:
        """Show the cursor."""
        self.redraw(faded=self._faded())

    def on_blur(self) -> None:
        """Hide the cursor."""
        self.redraw(faded=self._faded())

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """The wheel moves the cursor."""
        event.stop()
        self.action_move(3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """The wheel moves the cursor."""
        event.stop()
        self.action_move(-3)

    def on_click(self, event: events.Click) -> None:
        """A click moves the cursor, a second one opens the rank."""
        row = event.y - HEAD + self.view.top
        if event.y >= HEAD and row < len(self.view.order):
            self.action_move(row - self.view.cursor)
            if event.chain == 2:
                self.action_open()
