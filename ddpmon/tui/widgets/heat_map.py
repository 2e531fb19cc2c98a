"""The heat-map: follows the table's filter, and has a cursor that names a cell and opens a host or a rank."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from ddpmon.snapshot import Ints
from ddpmon.tui.draw.bands import Bands, bands_of
from ddpmon.tui.draw.heat import Cursor, heat_lines, lines_of_bands, shown_heat
from ddpmon.tui.lines import Line
from ddpmon.tui.view_state import ViewState
from ddpmon.tui.widgets.canvas import Canvas


class HeatMap(Canvas, can_focus=True):
    """Where ranks share a row, Enter asks for these ranks alone; on a row of one rank it opens the rank.

    The column of the cursor is counted from the right end, so that the newest step stays under it; it is moved by
    keys or by a click.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("left", "step(1)", "Earlier", show=False),
        Binding("right", "step(-1)", "Later", show=False),
        Binding("shift+left", "step(10)", "Ten columns earlier", show=False),
        Binding("shift+right", "step(-10)", "Ten columns later", show=False),
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
        self._cursor = Cursor(0, 0)

    def look_at(self, picture: ViewState, wanted: str, room: int) -> None:
        """Take over a new picture, the table's filter, and the lines that the panel is about to get."""
        self._picture, self._wanted, self._room = picture, wanted, room
        self.can_focus = self._bands() is not None
        if self.has_focus and not self.can_focus:
            self.screen.focus_previous()

    def forget(self) -> None:
        """Let go of the picture; the cursor stays."""
        self._picture = None

    def _bands(self) -> Bands | None:
        if self._picture is None or self._picture.snapshot.heat is None or self._room < 3:
            return None
        return bands_of(self._picture, self._room, self._wanted)

    def _lines(self, width: int, height: int) -> list[Line]:
        if self._picture is None:
            return []
        return heat_lines(self._picture, width, height, self._wanted, self._cursor if self.has_focus else None)

    def _put(self, band: int, back: int) -> None:
        """Move the cursor to a cell that exists."""
        bands = self._bands()
        if bands is not None:
            columns = max(self.size.width - bands.gutter - 1, 1)
            band = max(0, min(band, len(bands.starts) - 1))
            self._cursor = Cursor(band, max(0, min(back, columns - 1)))
            self.redraw()

    def action_move(self, rows: int) -> None:
        """Move the cursor down."""
        self._put(self._cursor.band + rows, self._cursor.back)

    def action_step(self, columns: int) -> None:
        """Move the cursor back in time."""
        self._put(self._cursor.band, self._cursor.back + columns)

    def action_choose(self) -> None:
        """Ask for the ranks under the cursor."""
        bands = self._bands()
        if bands is None:
            return
        ranks = bands.ranks(min(self._cursor.band, len(bands.starts) - 1))
        if len(ranks) == 1:
            self.post_message(self.Opened(int(ranks[0])))
        else:
            self.post_message(self.Chosen(_words(ranks)))

    def on_click(self, event: events.Click) -> None:
        """A click moves the cursor to the cell, a second one opens what is there."""
        bands = self._bands()
        if bands is None or not 1 <= event.y < self._room - 1:
            return
        self.focus()
        self._put(self._band_at(event.y - 1, bands), self.size.width - 2 - event.x)
        if event.chain == 2:
            self.action_choose()

    def _band_at(self, line: int, bands: Bands) -> int:
        """The band that is drawn in a line of the map."""
        heat = None if self._picture is None else shown_heat(self._picture)
        if bands.halves or heat is None:
            return line * 2
        ends = np.cumsum(lines_of_bands(heat, bands, self._room))
        return int(np.searchsorted(ends, line, side="right"))

    def on_focus(self) -> None:
        """Show the cursor."""
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
