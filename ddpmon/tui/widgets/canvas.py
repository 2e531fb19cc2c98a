"""A widget that shows the lines of a drawing function and repaints only those that changed."""

from __future__ import annotations

from collections.abc import Callable

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from ddpmon.tui.lines import Line, merged

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
        """Draw anew and mark the lines that differ from what is on the screen."""
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
