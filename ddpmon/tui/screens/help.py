"""The help screen."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from ddpmon.tui.draw.footer import Keys
from ddpmon.tui.draw.header import header_line
from ddpmon.tui.draw.help import help_lines
from ddpmon.tui.screens.base import View
from ddpmon.tui.widgets.canvas import Canvas
from ddpmon.tui.widgets.reading import Reading


class HelpScreen(View):
    """How to read the picture, the keys, the words."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark", "app.back", "Back", show=False)]

    def compose(self) -> ComposeResult:
        """Header, the help, the keys."""
        yield Canvas(lambda w, _h: [header_line(self.picture, w)], id="head")
        yield Reading(lambda w: help_lines(self.picture.look, w))
        yield Canvas(self.foot, id="foot")

    def keys(self) -> Keys:
        """Back and scrolling."""
        return (("esc", "back"), ("j k", "scroll"), ("q", "quit"))
