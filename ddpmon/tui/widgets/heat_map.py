"""The heat-map: follows the table's filter, and has a cursor that chooses a rank and opens it or a host."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

import numpy as np
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from ddpmon.snapshot import Ints
from ddpmon.tui.draw.bands import Bands, bands_of
from ddpmon.tui.draw.heat import layout_lines, lines_of_bands
from ddpmon.tui.draw.heat_layout import Cell, Cursor, Layout, lay_out
from ddpmon.tui.lines import Line
from ddpmon.tui.view_state import ViewState
from ddpmon.tui.widgets.canvas import Canvas

if TYPE_CHECKING:
    from ddpmon.tui.app import WatchApp
    from ddpmon.tui.links import Links


class HeatMap(Canvas, can_focus=True):
    """Where ranks share a row, Enter asks for these ranks alone; on a row of one rank it opens the rank.

    The cursor is on the chosen rank of all views, and on a step, which stays under it as further steps come, or on the
    newest one. A key or a click that moves it chooses the rank that the title then names.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("left", "move(0, -1)", "Earlier", show=False),
        Binding("right", "move(0, 1)", "Later", show=False),
        Binding("shift+left", "move(0, -10)", "Ten cells earlier", show=False),
        Binding("shift+right", "move(0, 10)", "Ten cells later", show=False),
        Binding("enter", "choose", "Only these ranks, or this rank", show=False),
    ]

    class Chosen(Message):
        """The ranks of a row are to be shown alone; `words` is the filter that does it."""

        def __init__(self, words: str) -> None:
            super().__init__()
            self.words = words

    class Opened(Message):
        """A rank was chosen."""

        def __init__(self, rank: int) -> None:
            super().__init__()
            self.rank = rank

    def __init__(self) -> None:
        super().__init__(self._lines, id="heat")
        self._picture: ViewState | None = None
        self._wanted = ""
        self._room = 0
        self._step: int | None = None  # under the cursor; None: the newest one
        self._laid_out: tuple[int, int, Layout | None] | None = None  # the layout of so many cells and lines

    def look_at(self, picture: ViewState, wanted: str, room: int) -> None:
        """Take over a new picture, the table's filter, and the lines that the panel is about to get.

        In a row of several ranks another one may be the worst by now: that one is then chosen.
        """
        self._picture, self._wanted, self._room, self._laid_out = picture, wanted, room, None
        self.can_focus = self._bands() is not None
        if self.has_focus and not self.can_focus:
            self.screen.focus_previous()
        elif self.has_focus:
            self._choose_named()

    def forget(self) -> None:
        """Let go of the picture; the cursor stays."""
        self._picture = self._laid_out = None

    def _bands(self) -> Bands | None:
        if self._picture is None or self._picture.snapshot.heat is None or self._room < 3:
            return None
        return bands_of(self._picture, self._room, self._wanted)

    @property
    def _layout(self) -> Layout | None:
        """What is drawn in the room that there is."""
        return self._layout_in(self.size.width, self._room)

    def _layout_in(self, width: int, height: int) -> Layout | None:
        """The layout in so many cells and lines. Choosing and drawing share it: of thousands of ranks it takes long."""
        if self._picture is None:
            return None
        if self._laid_out is None or self._laid_out[:2] != (width, height):
            self._laid_out = width, height, lay_out(self._picture, width, height, self._wanted)
        return self._laid_out[2]

    @property
    def _links(self) -> Links:
        return cast("WatchApp", self.app).links

    @property
    def _cursor(self) -> Cursor:
        rank = self._links.current
        return Cursor(-1 if rank is None else rank, self._step)

    def _lines(self, width: int, height: int) -> list[Line]:
        if self._picture is None:
            return []
        cursor = self._cursor if self.has_focus else None
        return layout_lines(self._picture, self._layout_in(width, height), width, height, cursor)

    def _go_to(self, cell: Cell) -> None:
        """Move the cursor to a cell, whose rank is then the chosen one."""
        self._step = cell.cursor.step
        self._links.hold(cell.rank)
        self.redraw()

    def _choose_named(self) -> None:
        """Choose the rank that the title names, unless the cursor of all views is on it."""
        layout, cursor = self._layout, self._cursor
        named = cursor.rank if layout is None else layout.cell(cursor).rank
        if named != cursor.rank:
            self._links.hold(named)

    def action_move(self, rows: int, cells: int = 0) -> None:
        """Move the cursor so many rows down, and so many cells on in time."""
        layout = self._layout
        if layout is not None:
            self._go_to(layout.beside(self._cursor, rows, cells))

    @property
    def ranks(self) -> Ints | None:
        """The ranks of the row under the cursor; None where there is no map."""
        bands = self._bands()
        return None if bands is None else bands.ranks(bands.band_of(self._cursor.rank))

    def action_choose(self) -> None:
        """Ask for the ranks under the cursor."""
        ranks = self.ranks
        if ranks is None:
            return
        if len(ranks) == 1:
            self.post_message(self.Opened(int(ranks[0])))
        else:
            self.post_message(self.Chosen(_words(ranks)))

    def on_click(self, event: events.Click) -> None:
        """A click moves the cursor to the cell, a second one opens what is there."""
        layout = self._layout
        if layout is None or not 1 <= event.y < self._room - 1:
            return
        self.focus()
        self._go_to(layout.at(self._cursor, self._band_at(event.y - 1, layout), event.x - layout.bands.gutter))
        if event.chain == 2:
            self.action_choose()

    def _band_at(self, line: int, layout: Layout) -> int:
        """The band that is drawn in a line of the map."""
        if layout.bands.halves:
            return line * 2
        ends = np.cumsum(lines_of_bands(layout.heat, layout.bands, self._room))
        return int(np.searchsorted(ends, line, side="right"))

    def on_focus(self) -> None:
        """Show the cursor."""
        self._choose_named()
        self.redraw()

    def on_blur(self) -> None:
        """Hide the cursor."""
        self.redraw()


def _words(ranks: Ints) -> str:
    """A filter for these ranks: ranges."""
    ranks = np.sort(ranks)
    cuts = np.flatnonzero(np.diff(ranks) != 1) + 1
    parts = np.split(ranks, cuts)
    return " ".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)
