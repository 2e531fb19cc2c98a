"""Marked ranks side by side."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult

from ddpmon.report.verdicts import firing
from ddpmon.schema import PHASES
from ddpmon.tui.draw.heat import ranks_lines
from ddpmon.tui.draw.panel import Keys
from ddpmon.tui.draw.peer_table import marked_lines
from ddpmon.tui.draw.run_plots import marked_plots
from ddpmon.tui.lines import Line
from ddpmon.tui.screens.base import ViewScreen
from ddpmon.tui.view_state import fills_room
from ddpmon.tui.widgets.canvas import Canvas


class CompareScreen(ViewScreen):
    """Phases, waits and figures of two to four ranks, with their differences from the first.

    Args:
        ranks: which, in the order in which they were marked.
    """

    view: ClassVar[str] = "compare"

    def __init__(self, ranks: tuple[int, ...]) -> None:
        super().__init__()
        self.ranks = ranks

    def compose(self) -> ComposeResult:
        """Header, the table, the keys."""
        yield Canvas(self.head, id="head")
        yield Canvas(self._table, id="compared")
        yield Canvas(self.foot, id="foot")

    def _table(self, width: int, height: int) -> list[Line]:
        ranks, findings = self.picture.snapshot.ranks, firing(self.picture.snapshot.findings)
        here = [rank for rank in self.ranks if ranks is not None and rank < len(ranks)]
        if ranks is None or not here:
            return []
        blamed = next((f.phase for f in findings if f.phase in PHASES and set(f.ranks) & set(here)), None)
        lines = marked_lines(self.picture.snapshot, here, width, height, self.picture.look, blamed)
        return [*lines, *self._courses(here, width, height - len(lines))]

    def _courses(self, ranks: list[int], width: int, height: int) -> list[Line]:
        """Their lateness over the steps, where there is room below the table."""
        if not fills_room(self.picture):
            return []
        shown = ranks_lines(self.picture, ranks, width, height)
        return [*shown, *marked_plots(self.picture, ranks, width, height - len(shown))]

    def keys(self) -> Keys:
        """Back; how to mark others."""
        return (("esc", "back"), ("1-5", "views"), self.pause, ("?", "help"), ("q", "quit"))
