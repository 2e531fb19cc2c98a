"""Text to scroll some lines of which lead to a rank: a cursor goes along these."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from rich.segment import Segment
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from ddpmon.tui.lines import Line
from ddpmon.tui.theme import Look
from ddpmon.tui.widgets.canvas import ScrollText


@dataclass(frozen=True, slots=True)
class LinkedLines:
    """Lines, and the rank that a line leads to, by its place.

    Attributes:
        lines: the text.
        ranks: those that the cursor goes along.
        rank_at: the rank that a click on a cell of a line leads to: (line, cell) -> rank, or None.
    """

    lines: list[Line]
    ranks: dict[int, int]
    rank_at: Callable[[int, int], int | None]


class LinkedText(ScrollText):
    """Up and down go from link to link, and scroll where there is none ahead; Enter opens the one under the cursor.

    A click goes to a link, a double click opens it.

    Args:
        page: the lines at a width.
        look: how to draw the cursor.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "open", "The rank", show=False)]

    class Opened(Message):
        """A rank was chosen."""

        def __init__(self, rank: int) -> None:
            super().__init__()
            self.rank = rank

    class Moved(Message):
        """Another rank is under the cursor."""

    def __init__(self, page: Callable[[int], LinkedLines], look: Callable[[], Look]) -> None:
        super().__init__(self._marked)
        self._page, self._look = page, look
        self._rank: int | None = None
        self._seeks = False  # whether the cursor is to be brought into sight
        self._links: dict[int, int] = {}
        self._rank_at: Callable[[int, int], int | None] = lambda _line, _x: None

    @property
    def rank(self) -> int | None:
        """The rank under the cursor."""
        return None if self._line is None else self._links[self._line]

    @property
    def _line(self) -> int | None:
        """The line that the cursor is on: that of the rank that it follows, else the first link."""
        here = [line for line, rank in self._links.items() if rank == self._rank]
        return here[0] if here else min(self._links, default=None)

    def hold(self, rank: int | None, *, seeks: bool = True) -> None:
        """Put the cursor on a rank, and unless the text is to stay where it is, into sight."""
        self._rank, self._seeks = rank, seeks and rank is not None

    def _marked(self, width: int) -> list[Line]:
        page = self._page(width)
        self._links, self._rank_at = page.ranks, page.rank_at
        lines, at, look = page.lines, self._line, self._look()
        if at is not None and self._seeks:
            self._seeks, self.top = False, max(min(self.top, at), at - self.size.height + 2)
        if at is not None:
            text = [Segment(look.glyphs.cursor, look.strong), *_without_first(lines[at])]
            lines[at] = list(Segment.apply_style(text, look.selected))
        return lines

    def action_scroll_by(self, lines: int) -> None:
        """Go to the next link, or scroll by some lines."""
        line, height = self._line, self.size.height
        ahead = [other for other in self._links if line is not None and (other - line) * lines > 0]
        is_seen = line is not None and self.top <= line < self.top + height
        if abs(lines) > 1 or not ahead or not is_seen:
            super().action_scroll_by(lines)
            return
        goal = min(ahead) if lines > 0 else max(ahead)
        self.top = max(min(self.top, goal), goal - height + 2)
        self._move(self._links[goal])

    def on_click(self, event: events.Click) -> None:
        """A click on what leads to a rank moves the cursor to its line, a second one opens it."""
        line = self.line_at(event.y)
        rank = None if line is None else self._rank_at(line, event.x)
        if rank is not None:
            self._move(rank)
            if event.chain == 2:
                self.action_open()

    def _move(self, rank: int) -> None:
        self._rank = rank
        self.redraw()
        self.post_message(self.Moved())

    def action_open(self) -> None:
        """Open the rank under the cursor."""
        if self.rank is not None:
            self.post_message(self.Opened(self.rank))


def _without_first(line: Line) -> Line:
    """A line without its first cell, which is blank."""
    return [Segment(line[0].text[1:], line[0].style), *line[1:]]
