"""The help screen: the keys, the words, how to read the picture."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from ddpmon.tui.draw.help import help_lines
from ddpmon.tui.draw.panel import Keys
from ddpmon.tui.screens.base import ViewScreen
from ddpmon.tui.widgets.canvas import Canvas, ScrollText


class HelpScreen(ViewScreen):
    """The help of the view that it was opened over, and what holds everywhere.

    Args:
        of: that view.
    """

    view: ClassVar[str] = "help"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("question_mark", "app.back", "Back", show=False)]

    def __init__(self, of: str) -> None:
        super().__init__()
        self._of = of

    def compose(self) -> ComposeResult:
        """Header, the help, the keys."""
        yield Canvas(self.head, id="head")
        has_past = self.app.check_action("travel", ()) is not False
        own = self.dashboard.preferences.commands
        yield ScrollText(lambda w: help_lines(self.picture.look, w, self._of, has_past=has_past, own=own))
        yield self.foot()

    def keys(self) -> Keys:
        """Back and scrolling."""
        return (("esc", "back"), ("j k", "scroll"), ("q", "quit"))
