"""Text longer than the screen: lines that scroll with the usual keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from rich.segment import Segment
from textual import events
from textual.binding import Binding, BindingType

from ddpmon.tui.lines import Line, fit_all
from ddpmon.tui.widgets.canvas import Canvas


class Reading(Canvas, can_focus=True):
    """Shows what `text(width)` returns, from wherever the reader has scrolled to."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "scroll_by(-1)", "Up", show=False),
        Binding("down,j", "scroll_by(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home,g", "scroll_by(-1000000)", "First", show=False),
        Binding("end,G", "scroll_by(1000000)", "Last", show=False),
    ]

    def __init__(self, text: Callable[[int], list[Line]]) -> None:
        super().__init__(self._lines, id="reading")
        self._text = text
        self.top = 0

    def _lines(self, width: int, height: int) -> list[Line]:
        lines = self._text(width)
        self.top = max(0, min(self.top, len(lines) - height))
        shown = fit_all(lines[self.top :], width, height)
        if self.top + height < len(lines):
            shown[-1] = [Segment(f" {len(lines) - self.top - height + 1} more lines below".ljust(width)[:width])]
        return shown

    def action_scroll_by(self, lines: int) -> None:
        """Scroll by some lines."""
        self.top = max(self.top + lines, 0)
        self.redraw(faded=self._faded())

    def action_page(self, pages: int) -> None:
        """Scroll by what is in sight."""
        self.action_scroll_by(pages * max(self.size.height - 2, 1))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """The wheel scrolls."""
        event.stop()
        self.action_scroll_by(3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """The wheel scrolls."""
        event.stop()
        self.action_scroll_by(-3)
