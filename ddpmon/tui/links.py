"""What all views share: the chosen rank, the marked ranks, the zoom, and the ways from one view to another."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ddpmon.snapshot import Finding
from ddpmon.tui.draw.host_courses import plotted_rank
from ddpmon.tui.draw.order import ordered
from ddpmon.tui.screens.compare_screen import CompareScreen
from ddpmon.tui.screens.findings_screen import FindingsScreen
from ddpmon.tui.screens.host_screens import HostScreen
from ddpmon.tui.screens.overview import Overview
from ddpmon.tui.screens.rank_screen import Plotted, RankScreen
from ddpmon.tui.widgets.heat_map import HeatMap
from ddpmon.tui.widgets.linked_text import LinkedText
from ddpmon.tui.widgets.virtual_table import RankTable

if TYPE_CHECKING:
    from ddpmon.tui.app import WatchApp

MOST_MARKED = 4  # ranks, side by side


class Links:
    """Opens ranks and hosts from wherever the reader is, over what is open.

    Args:
        app: the dashboard.

    Attributes:
        chosen: the rank that the reader has chosen in any view: the cursor of each view goes to it once that view is
            open; None as long as none is chosen, and the cursor is on the first row.
        under_cursor: the rank that the cursor was seen on last: the chosen one, that of the first row, or
            another one while the filter hides the chosen one. None where no row was in sight.
        marked: the ranks that are marked, in the order in which they were.
        zoom: how many steps all plots show, 0 for all on record.
        plotted: what is plotted of any rank in detail.
    """

    def __init__(self, app: WatchApp) -> None:
        self._app = app
        self.chosen: int | None = None
        self.under_cursor: int | None = None
        self.marked: tuple[int, ...] = ()
        self.zoom = 0
        self.plotted = Plotted()

    @property
    def _overview(self) -> Overview:
        return cast("Overview", self._app.screen_stack[0])

    @property
    def current(self) -> int | None:
        """The rank that the cursor was seen on last; before that the one under the overview's cursor."""
        return self._overview.table.rank if self.under_cursor is None else self.under_cursor

    @property
    def to_hold(self) -> int | None:
        """The rank that the cursor of another view goes to; None for its worst one."""
        return None if self.chosen is None else self.current

    @property
    def has_worst_first(self) -> bool:
        """Whether the overview's table has the worst rank in its first row."""
        view = self._overview.table.view
        return view.sort == "worst" and not view.reverse

    def choose(self, rank: int | None) -> None:
        """Choose a rank for all views, or with None the worst one."""
        self.chosen = self.under_cursor = rank

    def hold(self, rank: int) -> None:
        """Choose a rank for all views; the cursor of the overview's table is on it."""
        self._overview.table.hold(rank)
        self.choose(rank)

    def choose_host(self, number: int | None) -> None:
        """Choose a host for all views: its current rank, else the one that is plotted; None: the worst rank."""
        if number is None:
            self.choose(None)
        elif self.host_of(self.current) == number:
            self.choose(self.current)
        else:
            rank = plotted_rank(self._app.picture.snapshot, number)
            self.choose(self.chosen if rank is None else rank)

    def open_rank(self, rank: int) -> None:
        """Open a rank in detail; it is the chosen one in all views."""
        self.hold(rank)
        self._app.push_screen(RankScreen(rank, self.plotted))

    def open_host(self, rank: int) -> None:
        """Open the host of a rank, which is the chosen one then."""
        number = self.host_of(rank)
        if number is None:
            self._app.bell()
        else:
            self.hold(rank)
            self._app.push_screen(HostScreen(number))

    def open_finding(self, finding: Finding) -> None:
        """Open the list of findings with the cursor on this one; say so where the filter hides it."""
        if finding not in self._app.picture.found:
            self._app.habits.say("the filter hides this finding")
            return
        cast("FindingsScreen", self._app.get_screen("findings")).sought = finding
        self._app.action_open_view("findings")

    def host_of(self, rank: int | None) -> int | None:
        """The number of the host that a rank runs on, None where that is not known."""
        nodes = self._app.picture.snapshot.nodes
        return None if rank is None else next((node.node for node in nodes if rank in node.ranks), None)

    @property
    def in_order(self) -> list[int]:
        """The ranks that the filter fits, in the order of the overview's table."""
        view, picture = self._overview.table.view, self._app.picture
        order: list[int] = ordered(picture.snapshot, view.sort, view.reverse, picture.wanted).tolist()
        return order

    def step_rank(self, rows: int) -> int | None:
        """Choose the rank so many places further in `in_order`, where that has an end the one there; returns it."""
        order, here = self.in_order, self.rank_here
        if not order:
            return None
        place = order.index(here) + rows if here in order else 0
        rank = order[max(0, min(place, len(order) - 1))]
        self.hold(rank)
        return rank

    def mark(self) -> None:
        """Mark the rank of the screen, or take its mark away; ring where there is no rank, or no room for its mark."""
        rank = self.rank_here
        others = tuple(other for other in self.marked if other != rank)
        if rank is None or (others == self.marked and len(others) >= MOST_MARKED):
            self._app.bell()
            return
        self.marked = (*others, rank) if others == self.marked else others
        self._app.redraw()

    def compare(self) -> None:
        """Open the marked ranks side by side; a single one beside the rank of the screen."""
        rank, ranks = self.rank_here, self.marked
        if len(ranks) == 1 and rank is not None and rank not in ranks:
            ranks = (*ranks, rank)
        if isinstance(self._app.screen, CompareScreen):
            self._app.bell()
        elif len(ranks) < 2:
            self._app.habits.say("mark two ranks with m first, then compare them with c")
        else:
            self._app.push_screen(CompareScreen(ranks))

    @property
    def rank_here(self) -> int | None:
        """The rank that the screen is about, or the one under its cursor; of a screen without, None."""
        if isinstance(self._app.screen, RankScreen):
            return self._app.screen.rank
        if isinstance(self._app.screen.focused, HeatMap):
            return self.current
        lists = (*self._app.screen.query(RankTable), *self._app.screen.query(LinkedText))
        return next((each.rank for each in lists if each.display), None)
