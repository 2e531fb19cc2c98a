"""The keys that do something now."""

from __future__ import annotations

from collections.abc import Callable

from textual import events
from textual.keys import _character_to_key  # no public way from a character to the name of its key

from ddpmon.tui.draw.clicked_key import key_of_key_line
from ddpmon.tui.draw.panel import Keys, footer_line
from ddpmon.tui.lines import Line
from ddpmon.tui.theme import Look
from ddpmon.tui.widgets.canvas import Canvas

_NAMES = {"esc": "escape", "arrows": "", "1-5": ""}


class KeyLine(Canvas):
    """A line of keys; a click on one does what the key does.

    Args:
        keys: those of now. look: how they are drawn.
    """

    def __init__(self, keys: Callable[[], Keys], look: Callable[[], Look]) -> None:
        super().__init__(self._lines, id="foot")
        self._keys, self._look = keys, look

    def _lines(self, width: int, _height: int) -> list[Line]:
        return [footer_line(self._keys(), width, self._look())]

    def on_click(self, event: events.Click) -> None:
        """Press the key that was clicked."""
        line = self._lines(self.size.width, 1)[0]
        key = key_of_key_line(line, event.x, self._look()) if event.y == 0 else None
        name = _NAMES.get(key, key) if key else ""
        if name:
            event.stop()
            self.app.simulate_key(_character_to_key(name) if len(name) == 1 else name)
