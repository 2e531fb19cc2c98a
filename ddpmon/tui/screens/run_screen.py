"""The run: configuration, versions, model, store, what the monitor takes, and hours used and lost."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult

from ddpmon.tui.draw.panel import Keys
from ddpmon.tui.draw.run_plots import run_plots
from ddpmon.tui.draw.run_view import run_lines
from ddpmon.tui.filter.fits import fitting_findings
from ddpmon.tui.lines import Line
from ddpmon.tui.own_cost import OwnCost
from ddpmon.tui.screens.base import COPY_KEYS, ViewScreen
from ddpmon.tui.view_tables import TableName, run_csv
from ddpmon.tui.widgets.canvas import Canvas, ScrollText
from ddpmon.tui.widgets.filter_bar import FilterBar


class RunScreen(ViewScreen):
    """What the run is and how it was set up."""

    view: ClassVar[str] = "run"
    exported: ClassVar[TableName] = "run"

    _count = 0  # lines that were drawn last

    def __init__(self) -> None:
        super().__init__()
        self._own = OwnCost()

    def compose(self) -> ComposeResult:
        """Header, the sections, the keys."""
        yield Canvas(self.head, id="head")
        yield ScrollText(self._lines)
        yield FilterBar()
        yield self.foot()

    def _lines(self, width: int) -> list[Line]:
        lines = run_lines(self.picture, width, self._own.words())
        plots = run_plots(self.picture, width, self.query_one(ScrollText).size.height - len(lines))
        self._count, self.shows_steps = len(lines) + len(plots), bool(plots)
        return [*lines, *plots]

    def csv(self) -> str:
        """What is known of the run; the lost hours of the causes that the filter fits."""
        return run_csv(self.dashboard.shown, fitting_findings(self.dashboard.shown, self.picture.wanted))

    def keys(self) -> Keys:
        """Back, scrolling, the filter."""
        if self.is_typing:
            return self.typing_keys
        scroll = (("j k", "scroll"),) if self._count > self.query_one(ScrollText).size.height else ()
        views = (("1-5", "views"), ("/", "filter"))
        rest = (*self.pause, ("?", "help"), *self.zoom_keys, *COPY_KEYS, ("q", "quit"))
        return (*self.back_keys, *scroll, *views, *rest)
