"""One rank in detail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, get_args

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from ddpmon.report.verdicts import naming
from ddpmon.snapshot import Finding
from ddpmon.tui.draw.courses import METRICS, offered
from ddpmon.tui.draw.detail import Panel, detail_lines
from ddpmon.tui.draw.panel import Keys
from ddpmon.tui.lines import Line
from ddpmon.tui.screens.base import COPY_KEYS, ViewScreen
from ddpmon.tui.view_tables import TableName, rank_csv
from ddpmon.tui.widgets.canvas import Canvas


@dataclass(slots=True)
class Plotted:
    """What is plotted of a rank: the key of the metric, and which panel stands alone. It outlives the screen.

    The key is "" until the reader chooses one: then it is what the rank's worst finding is about, else its work.
    """

    metric: str = ""
    alone: Panel | None = None


class RankScreen(ViewScreen):
    """Who a rank is, what it did in its last steps, and what its machine did meanwhile.

    Args:
        rank: which.
        plotted: what is plotted of it.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "app.step_rank(-1)", "The rank above", show=False),
        Binding("down,j", "app.step_rank(1)", "The rank below", show=False),
        Binding("h", "host", "Its host", show=False),
        Binding("v", "metric", "Plot the next metric", show=False),
    ]

    view: ClassVar[str] = "rank"
    exported: ClassVar[TableName] = "rank"

    def __init__(self, rank: int, plotted: Plotted) -> None:
        super().__init__()
        self.rank, self._plotted = rank, plotted

    def compose(self) -> ComposeResult:
        """Header, the rank, the keys."""
        yield Canvas(self.head, id="head")
        yield Canvas(self._detail, id="detail")
        yield self.foot()

    def _detail(self, width: int, height: int) -> list[Line]:
        plotted = self._plotted
        return detail_lines(self.picture, self.rank, width, height, plotted.metric, plotted.alone)

    def tells(self, finding: Finding) -> bool:
        """Whether it is about the rank: its sentence stands above the plots."""
        ranks = self.picture.snapshot.ranks
        host = ranks.host[self.rank] if ranks is not None and self.rank < len(ranks) else None
        return bool(naming([finding], self.rank, host))

    @property
    def detailed_rank(self) -> int | None:
        """This rank."""
        return self.rank

    def action_metric(self) -> None:
        """Plot the next metric of which anything is known."""
        detail = self.picture.snapshot.detail
        if detail is not None:
            known = [metric.key for metric in offered(detail)]
            shown = self._plotted.metric or METRICS[0].key
            place = known.index(shown) if shown in known else -1
            self.action_show_metric(known[(place + 1) % len(known)] if known else shown)

    def action_show_metric(self, key: str) -> None:
        """Plot this metric; where the figures stand alone, the plot comes back."""
        self._plotted.metric = key
        self._plotted.alone = "plot" if self._plotted.alone == "plot" else None
        self.show()

    @property
    def metrics(self) -> Sequence[tuple[str, str]]:
        """What can be plotted."""
        detail = self.picture.snapshot.detail
        return [] if detail is None else [(metric.key, f"Plot: {metric.name}") for metric in offered(detail)]

    def action_maximise(self) -> None:
        """Show the figures alone, then the plot, and after it all again."""
        panels: tuple[Panel | None, ...] = (None, *get_args(Panel))
        self._plotted.alone = panels[(panels.index(self._plotted.alone) + 1) % len(panels)]
        self.show()

    def action_host(self) -> None:
        """Open the rank's host."""
        self.dashboard.links.open_host(self.rank)

    def csv(self) -> str:
        """The figures of the rank beside those of the others."""
        return rank_csv(self.dashboard.shown, self.rank)

    def keys(self) -> Keys:
        """Back, along the table's order, its host, freeze."""
        more = (("5", "findings"), *self.pause, ("?", "help"), ("z Z", "zoom"), *COPY_KEYS, ("q", "quit"))
        return (*self.back_keys, ("j k", "next, previous rank"), ("v", "plot"), ("h", "host"), ("m", "mark"), *more)
