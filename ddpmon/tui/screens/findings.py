"""All findings in full."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from ddpmon.tui.draw.findings import all_findings
from ddpmon.tui.draw.footer import Keys
from ddpmon.tui.draw.header import header_line
from ddpmon.tui.screens.base import View
from ddpmon.tui.widgets.canvas import Canvas
from ddpmon.tui.widgets.reading import Reading


class FindingsScreen(View):
    """Sentence, evidence, advice, onset and cost of each finding; what is over comes last."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "app.overview", "Back", show=False)]

    def compose(self) -> ComposeResult:
        """Header, the findings, the keys."""
        yield Canvas(lambda w, _h: [header_line(self.picture, w)], id="head")
        yield Reading(lambda w: all_findings(self.picture, w))
        yield Canvas(self.foot, id="foot")

    def keys(self) -> Keys:
        """Back and scrolling."""
        pause = ("space", "go on" if self.picture.paused_s is not None else "freeze")
        return (("esc", "back"), ("1", "overview"), ("j k", "scroll"), pause, ("?", "help"), ("q", "quit"))
