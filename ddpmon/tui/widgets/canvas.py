"""Widgets that show the lines of a drawing function, or scroll through them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import ClassVar

from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from ddpmon.tui.draw.clicked_key import key_in_brackets
from ddpmon.tui.draw.panel import without_heading
from ddpmon.tui.fade import faded
from ddpmon.tui.lines import Line, fit_all, merged

Draw = Callable[[int, int], list[Line]]
_BRIGHT = ("head", "foot", "hint")  # what is said of a picture, and how to type: never dim
_STYLES = 4096  # more than the pairs of colours that a heat-map has


class Canvas(Widget):
    """Draws with a pure function `(width, height) -> lines`.

    Textual would work out the styles of a widget for every line, and look for borders, padding and links there. A
    canvas has none of these, so it hands over lines that are ready: a line is painted once, when it is first shown.
    """

    ALLOW_MAXIMIZE = False
    ALLOW_SELECT = False

    def __init__(self, draw: Draw, *, id: str | None = None) -> None:  # noqa: A002  # Textual's own name
        super().__init__(id=id)
        self._draw = draw
        self._drawn: list[Line] = []
        self._strips: list[Strip | None] = []  # the same lines, painted; None for one that is not painted yet
        self._paint: Callable[[Style | None], Style] | None = None
        self._awaited: int | None = None

    def set_height(self, height: int) -> None:
        """Take so many lines. Until the layout gives them, nothing is drawn: what belongs together appears together."""
        self.styles.height = self._awaited = height

    def redraw(self) -> None:
        """Draw again and mark the lines that differ from what is on the screen."""
        width, height = self.size
        if not (width and height and self.display) or self._awaited not in (None, height):
            return
        lines, is_faded = self._draw(width, height)[:height], self._is_faded()
        fresh = [merged(self._faded(line) if is_faded else line) for line in lines]
        old, self._drawn = self._drawn, fresh
        if len(old) != len(fresh):
            self._strips = [None] * len(fresh)
            self.refresh()
            return
        changed = [y for y, (before, after) in enumerate(zip(old, fresh, strict=True)) if before != after]
        for y in changed:
            self._strips[y] = None
        if changed:
            self.refresh(*(Region(0, y, width, 1) for y in changed))

    @property
    def lines(self) -> list[Line]:
        """The lines that were drawn last."""
        return self._drawn

    def forget(self) -> None:
        """Let go of the picture, since the screen is hidden: it is given a new one when it is shown again."""

    def on_resize(self, _event: events.Resize) -> None:
        """Draw for the new size."""
        self._drawn = []
        self.redraw()

    def on_click(self, event: events.Click) -> None:
        """A click on a key in brackets, such as `5 more [5]`, presses it."""
        line = self._drawn[event.y] if 0 <= event.y < len(self._drawn) else []
        key = key_in_brackets(line, event.x)
        if key is not None:
            event.stop()
            self.app.simulate_key(key)

    def _is_faded(self) -> bool:
        return bool(getattr(self.screen, "faded", False)) and self.id not in _BRIGHT

    def _faded(self, line: Line) -> Line:
        """The line faded, but for the part under the cursor, which has the background of a raised surface."""
        ground, raised = self.background_colors[1].rich_color.get_truecolor(), self.app.current_theme.surface
        here = None if raised is None else Color.parse(raised)
        return [
            part if part.style and part.style.bgcolor and part.style.bgcolor == here else faded(part, ground)
            for part in line
        ]

    def notify_style_update(self) -> None:
        """Paint all lines again: the theme may have changed."""
        self._paint = None
        super().notify_style_update()

    def render_lines(self, crop: Region) -> list[Strip]:
        """The lines in a part of the widget, on the background of the theme."""
        if self._paint is None:
            self._paint = self._painter()
            self._strips = [None] * len(self._drawn)
        strips = [self._strip(y) for y in crop.line_range]
        if crop.column_span == (0, self.size.width):
            return strips
        return [strip.crop(*crop.column_span) for strip in strips]

    def render_line(self, y: int) -> Strip:
        """One line, on the background of the theme, in all colours that a terminal may have."""
        line = self._drawn[y] if y < len(self._drawn) else []
        return Strip(line, self.size.width).apply_style(self.rich_style)

    def _strip(self, y: int) -> Strip:
        """A line, painted."""
        assert self._paint is not None
        if y >= len(self._drawn):
            return Strip.blank(self.size.width, self._paint(None))
        strip = self._strips[y]
        if strip is None:
            segments = [Segment(text, self._paint(style)) for text, style, _ in self._drawn[y]]
            strip = self._strips[y] = Strip(segments, self.size.width)
        return strip

    def _painter(self) -> Callable[[Style | None], Style]:
        """What makes a style one on the background of the theme, as far as this terminal can show it."""
        ground, background, filters = self.rich_style, self.background_colors[1], self.get_line_filters()

        @lru_cache(maxsize=_STYLES)
        def paint(style: Style | None) -> Style:
            segments = [Segment(" ", ground if style is None else ground + style)]
            for each in filters:
                segments = each.apply(segments, background)
            return segments[0].style or ground

        return paint


class ScrollText(Canvas, can_focus=True):
    """Shows what `text(width)` returns, from wherever the reader has scrolled to.

    Args:
        text: the lines at a width.
        id: what it is called. hint: what is said beside how many lines are below.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "scroll_by(-1)", "Up", show=False),
        Binding("down,j", "scroll_by(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home,g", "scroll_by(-1000000)", "First", show=False),
        Binding("end,G", "scroll_by(1000000)", "Last", show=False),
    ]

    def __init__(self, text: Callable[[int], list[Line]], *, id: str = "reading", hint: str = "") -> None:  # noqa: A002
        super().__init__(self._lines, id=id)
        self._text, self._hint = text, hint
        self.top = self._length = 0

    def _lines(self, width: int, height: int) -> list[Line]:
        lines = self._text(width)
        self._length = len(lines)
        self.top = max(0, min(self.top, len(lines) - height))
        shown = fit_all(lines[self.top :], width, height)
        if self.top + height < len(lines):
            shown = without_heading(shown[:-1], headings=0)
            below = f" {len(lines) - self.top - len(shown)} more lines below{self._hint}"
            return [*fit_all(shown, width, height - 1), [Segment(below.ljust(width)[:width])]]
        return shown

    def line_at(self, y: int) -> int | None:
        """The line of the text that is drawn in this line of the widget: none in that which counts those below."""
        last = min(self._length, self.top + self.size.height - (self.top + self.size.height < self._length))
        return self.top + y if self.top + y < last else None

    def action_scroll_by(self, lines: int) -> None:
        """Scroll by some lines."""
        self.top = max(self.top + lines, 0)
        self.redraw()

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
