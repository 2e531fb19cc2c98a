"""Marked ranks side by side."""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from textual.app import ComposeResult

from ddpmon.report.verdicts import firing
from ddpmon.report.wording import format_ranks
from ddpmon.snapshot import Finding
from ddpmon.tui.draw.heat import ranks_lines
from ddpmon.tui.draw.panel import Keys
from ddpmon.tui.draw.peer_table import loud_findings, marked_lines, ranks_fitting, table_size
from ddpmon.tui.draw.run_plots import count_below, marked_plots, plots_below, run_plots
from ddpmon.tui.lines import Line, fit_all
from ddpmon.tui.screens.base import COPY_KEYS, ViewScreen
from ddpmon.tui.view_state import fills_room
from ddpmon.tui.view_tables import TableName, compare_csv
from ddpmon.tui.widgets.canvas import Canvas, ScrollText

SIDE_LEAST = 36  # cells beside the table from which on something stands there


class CompareScreen(ViewScreen):
    """Phases, waits and figures of two to four ranks, with their differences from the first.

    Args:
        ranks: which, in the order in which they were marked.
    """

    view: ClassVar[str] = "compare"
    exported: ClassVar[TableName] = "compare"

    def __init__(self, ranks: tuple[int, ...]) -> None:
        super().__init__()
        self.ranks = ranks
        self._scrolls = False

    def compose(self) -> ComposeResult:
        """Header, the table, the keys."""
        yield Canvas(self.head, id="head")
        yield ScrollText(self._text, id="compared", hint=": j and k scroll")
        yield self.foot()

    @property
    def finding_here(self) -> Finding | None:
        """The worst finding that names one of the ranks."""
        return next(
            (each for each in firing(self.picture.snapshot.findings) if set(self.ranks) & set(each.ranks)), None
        )

    def tells(self, finding: Finding) -> bool:
        """Whether it names one of the ranks: then it stands below the figures."""
        return finding in loud_findings(self.ranks, firing(self.picture.snapshot.findings))

    @property
    def subject(self) -> str:
        """The ranks."""
        return format_ranks(self.ranks)

    def _text(self, width: int) -> list[Line]:
        """The comparison; longer than the screen where not all figures have room."""
        return self._table(width, self.query_one("#compared").size.height)

    def _table(self, width: int, height: int) -> list[Line]:
        ranks, findings = self.picture.snapshot.ranks, firing(self.picture.snapshot.findings)
        here = [rank for rank in self.ranks if ranks is not None and rank < len(ranks)]
        if ranks is None or not here:
            return []
        wide, high = table_size(self.picture.snapshot, here, findings)
        self._scrolls = high > height
        if self._scrolls:
            self.shows_steps = False
            high += 2 * (len(here) > ranks_fitting(width))  # for the words on the ranks without room
            return marked_lines(self.picture.snapshot, here, width, high, self.picture.look, findings, scrolls=True)
        fills = fills_room(self.picture) and high <= height and len(here) <= ranks_fitting(width)
        beside = fills and width - wide >= SIDE_LEAST
        wide, high = wide if beside else width, high if fills else height
        lines = marked_lines(self.picture.snapshot, here, wide, high, self.picture.look, findings)
        shown = 0
        if beside:
            side, shown = self._beside_table(here, width - wide - 1, high)
            lines = [[*line, Segment(" "), *other] for line, other in zip(lines, side, strict=True)]
        below = marked_plots(self.picture, here, width, height - high)
        below = below or run_plots(self.picture, width, height - high, shown)
        self.shows_steps = beside or bool(below)
        return fit_all([*lines, *below], width, height)

    def _beside_table(self, ranks: list[int], width: int, height: int) -> tuple[list[Line], int]:
        """What stands beside the table of a wide terminal: the map of these ranks, and plots of the run; how many."""
        lines = ranks_lines(self.picture, ranks, width, height)
        room = height - len(lines)
        drawn = fit_all([*lines, *plots_below(self.picture, width, room)], width, height)
        return drawn, count_below(self.picture, room)

    def csv(self) -> str:
        """The figures of the compared ranks beside each other."""
        return compare_csv(self.dashboard.shown, self.ranks)

    def keys(self) -> Keys:
        """Back, scrolling, what can be taken along."""
        scroll = (("j k", "scroll"),) if self._scrolls else ()
        rest = (*self.pause, *self.zoom_keys, ("q", "quit"))
        return (*self.back_keys, *scroll, ("1-5", "views"), *COPY_KEYS, ("?", "help"), *rest)
