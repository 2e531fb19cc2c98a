"""Widgets that show the lines of a drawing function, scroll through them, or ask for a filter."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input

from ddpmon.tui.lines import Line, fit_all, merged

Draw = Callable[[int, int], list[Line]]
FADED = Style(dim=True)


class Canvas(Widget):
    """Draws with a pure function `(width, height) -> lines`."""

    ALLOW_MAXIMIZE = False
    ALLOW_SELECT = False

    def __init__(self, draw: Draw, *, id: str | None = None) -> None:  # noqa: A002  # Textual's own name
        super().__init__(id=id)
        self._draw = draw
        self._strips: list[Strip] = []

    def redraw(self, *, faded: bool = False) -> None:
        """Draw again and mark the lines that differ from what is on the screen."""
        width, height = self.size
        if not (width and height and self.display):
            return
        fresh = [_strip(line, width, faded) for line in self._draw(width, height)[:height]]
        old, self._strips = self._strips, fresh
        if len(old) != len(fresh):
            self.refresh()
            return
        changed = [y for y, (before, after) in enumerate(zip(old, fresh, strict=True)) if before != after]
        if changed:
            self.refresh(*(Region(0, y, width, 1) for y in changed))

    def on_resize(self, _event: events.Resize) -> None:
        """Draw for the new size."""
        self._strips = []
        self.redraw(faded=self._faded())

    def _faded(self) -> bool:
        return bool(getattr(self.screen, "faded", False))

    def render_line(self, y: int) -> Strip:
        """One line, on the background of the theme."""
        strip = self._strips[y] if y < len(self._strips) else Strip.blank(self.size.width)
        return strip.apply_style(self.rich_style)


def _strip(line: Line, width: int, faded: bool) -> Strip:
    segments = [Segment(text, _faded(style)) for text, style, _ in line] if faded else line
    return Strip(merged(segments), width)


def _faded(style: Style | None) -> Style:
    """Dim dims the foreground only: a cell of two colours keeps the first, at the cost of an edge."""
    if style is None or style.bgcolor is None or style.color is None:
        return (style or Style.null()) + FADED
    return Style(color=style.color, dim=True)


class ScrollText(Canvas, can_focus=True):
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


class Filter(Input):
    """Filters as one types; Enter keeps the filter, Esc drops it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "drop", "All ranks", show=False)]

    class Closed(Message):
        """The reader is done typing."""

    def __init__(self) -> None:
        super().__init__(
            placeholder="filter ranks: 3  3-7  part of a host name  lost  straggler", id="filter", compact=True
        )
        self.max_length = 200
        self.display = False

    def action_drop(self) -> None:
        """Show all ranks again."""
        self.value = ""
        self.post_message(self.Closed())

    def on_input_submitted(self) -> None:
        """Keep the filter."""
        self.post_message(self.Closed())
