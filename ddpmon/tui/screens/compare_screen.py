"""Marked ranks side by side."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult

from ddpmon.report.verdicts import firing
from ddpmon.schema import PHASES
from ddpmon.tui.draw.panel import Keys
from ddpmon.tui.draw.peer_table import marked_lines
from ddpmon.tui.lines import Line
from ddpmon.tui.screens.base import ViewScreen
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
        return marked_lines(self.picture.snapshot, here, width, height, self.picture.look, blamed)

    def keys(self) -> Keys:
        """Back; how to mark others."""
        return (("esc", "back"), ("1-5", "views"), self.pause, ("?", "help"), ("q", "quit"))
