"""Screens of text to scroll: one rank in detail, all findings, and the help."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from ddpmon.report.verdicts import naming
from ddpmon.snapshot import Finding
from ddpmon.tui.draw.detail import detail_lines
from ddpmon.tui.draw.findings import all_findings
from ddpmon.tui.draw.header import header_line, notice_line
from ddpmon.tui.draw.help import help_lines
from ddpmon.tui.draw.panel import Keys
from ddpmon.tui.lines import Line
from ddpmon.tui.screens.base import FILTER_KEYS, BaseScreen
from ddpmon.tui.view_state import notice
from ddpmon.tui.widgets.canvas import Canvas, ScrollText
from ddpmon.tui.widgets.filter_bar import FilterBar


class RankScreen(BaseScreen):
    """Who a rank is, what it did in its last steps, and what its machine did meanwhile."""

    view = "rank"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.overview", "Back", show=False),
        Binding("up,k", "app.step_rank(-1)", "The rank above", show=False),
        Binding("down,j", "app.step_rank(1)", "The rank below", show=False),
    ]

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank = rank

    def compose(self) -> ComposeResult:
        """Header, the rank, the keys."""
        yield Canvas(self._head, id="head")
        yield Canvas(lambda w, h: detail_lines(self.picture, self.rank, w, h), id="detail")
        yield Canvas(self.foot, id="foot")

    def show(self) -> None:
        """Make room for a notice when there is one."""
        self.query_one("#head").styles.height = 2 if notice(self.picture) else 1
        super().show()

    def _head(self, width: int, height: int) -> list[Line]:
        lines = [header_line(self.picture, width)]
        return [*lines, notice_line(self.picture, width)] if height > 1 else lines

    @property
    def finding(self) -> Finding | None:
        """The worst finding on this rank."""
        ranks = self.picture.snapshot.ranks
        host = ranks.host[self.rank] if ranks is not None and 0 <= self.rank < len(ranks) else None
        return next(iter(naming(self.picture.snapshot.findings, self.rank, host)), None)

    def keys(self) -> Keys:
        """Back, along the table's order, freeze."""
        pause = ("space", "go on" if self.picture.paused_s is not None else "freeze")
        return (("esc", "back"), ("j k", "next rank, previous"), ("5", "findings"), pause, ("?", "help"), ("q", "quit"))


class FindingsScreen(BaseScreen):
    """Sentence, evidence, advice, onset and cost of each finding; what is over comes last."""

    view = "findings"

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "app.overview", "Back", show=False)]

    def compose(self) -> ComposeResult:
        """Header, the findings, the keys."""
        yield Canvas(lambda w, _h: [header_line(self.picture, w)], id="head")
        yield ScrollText(lambda w: all_findings(self.picture, w))
        yield FilterBar()
        yield Canvas(self.foot, id="foot")

    def keys(self) -> Keys:
        """Back, scrolling and the filter."""
        if self.is_typing:
            return FILTER_KEYS
        pause = ("space", "go on" if self.picture.paused_s is not None else "freeze")
        return (
            ("esc", "back"),
            ("1", "overview"),
            ("j k", "scroll"),
            ("/", "filter"),
            pause,
            ("?", "help"),
            ("q", "quit"),
        )


class HelpScreen(BaseScreen):
    """How to read the view that it was opened over, the keys, the words."""

    view = "help"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark", "app.back", "Back", show=False)]

    def __init__(self, of: str) -> None:
        super().__init__()
        self._of = of

    def compose(self) -> ComposeResult:
        """Header, the help, the keys."""
        yield Canvas(lambda w, _h: [header_line(self.picture, w)], id="head")
        yield ScrollText(lambda w: help_lines(self.picture.look, w, self._of))
        yield Canvas(self.foot, id="foot")

    def keys(self) -> Keys:
        """Back and scrolling."""
        return (("esc", "back"), ("j k", "scroll"), ("q", "quit"))
