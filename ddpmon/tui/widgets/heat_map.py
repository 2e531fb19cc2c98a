"""The heat-map: follows the table's filter, and has a cursor where ranks share a row."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from textual.binding import Binding, BindingType
from textual.message import Message

from ddpmon.snapshot import Ints
from ddpmon.tui.draw.heat import Bands, bands_of, heat_lines
from ddpmon.tui.lines import Line
from ddpmon.tui.view_state import ViewState
from ddpmon.tui.widgets.canvas import Canvas


class HeatMap(Canvas):
    """Where ranks share a row, Enter on a row asks for its ranks alone."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("enter", "choose", "Only these ranks", show=False),
    ]

    class Chosen(Message):
        """The ranks of a row are to be shown alone; `words` is the filter that does it."""

        def __init__(self, words: str) -> None:
            super().__init__()
            self.words = words

    def __init__(self) -> None:
        super().__init__(self._lines, id="heat")
        self._picture: ViewState | None = None
        self._wanted = ""
        self._row = self._room = 0

    def look_at(self, picture: ViewState, wanted: str, room: int) -> None:
        """Take over a new picture, the table's filter, and the lines that the panel is about to get."""
        self._picture, self._wanted, self._room = picture, wanted, room
        bands = self._bands()
        self.can_focus = bands is not None and bands.folded
        if self.has_focus and not self.can_focus:
            self.screen.focus_previous()

    def _bands(self) -> Bands | None:
        if self._picture is None or self._picture.snapshot.heat is None or self._room < 3:
            return None
        return bands_of(self._picture, self._room, self._wanted)

    def _lines(self, width: int, height: int) -> list[Line]:
        if self._picture is None:
            return []
        return heat_lines(self._picture, width, height, self._wanted, self._row if self.has_focus else None)

    def action_move(self, rows: int) -> None:
        """Move the cursor."""
        bands = self._bands()
        if bands is not None:
            self._row = max(0, min(self._row + rows, len(bands.starts) - 1))
            self.redraw(faded=self._faded())

    def action_choose(self) -> None:
        """Ask for the ranks under the cursor."""
        bands = self._bands()
        if bands is not None and bands.folded:
            self.post_message(self.Chosen(_words(bands.ranks(min(self._row, len(bands.starts) - 1)))))

    def on_focus(self) -> None:
        """Show the cursor."""
        self.redraw(faded=self._faded())

    def on_blur(self) -> None:
        """Hide the cursor."""
        self.redraw(faded=self._faded())


def _words(ranks: Ints) -> str:
    """A filter for these ranks: ranges."""
    ranks = np.sort(ranks)
    cuts = np.flatnonzero(np.diff(ranks) != 1) + 1
    parts = np.split(ranks, cuts)
    return " ".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)
