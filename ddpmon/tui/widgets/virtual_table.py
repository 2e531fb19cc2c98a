"""Virtual tables of ranks and hosts: only visible rows are formatted, and the cursor follows what it stands on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, cast

import numpy as np
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from ddpmon.report.rank_places import is_hanging
from ddpmon.snapshot import Ints
from ddpmon.tui.draw.columns import GPU_COLUMNS, SORTS
from ddpmon.tui.draw.host_cells import METRICS, metric_of, offered
from ddpmon.tui.draw.host_table import host_heading_at, host_table_lines
from ddpmon.tui.draw.order import HOST_SORTS, ODD, StandingOut, ordered, ordered_hosts
from ddpmon.tui.draw.place_table import first_ranks, leader_of, place_lines
from ddpmon.tui.draw.table import HEAD, TableView, heading_at, table_lines
from ddpmon.tui.lines import Line
from ddpmon.tui.view_state import ViewState
from ddpmon.tui.widgets.canvas import Canvas

if TYPE_CHECKING:
    from ddpmon.tui.app import WatchApp


class VirtualTable(Canvas, can_focus=True):
    """What the tables of ranks and of hosts share: rows are numbers in some order.

    The cursor follows the number that was chosen when rows are sorted again. Until one is chosen it stays on the first
    row, whatever that shows; in the order `worst` that is the worst one. A number that was chosen elsewhere does not
    scroll the first rows out of sight: until the cursor is moved here, its row stands last where it is below them.

    Attributes:
        opens_at_first: whether that is so; else the table scrolls to a number that was chosen elsewhere.
    """

    opens_at_first: ClassVar[bool] = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home,g", "first", "First", show=False),
        Binding("end,G", "last", "Last", show=False),
        Binding("enter", "open", "Detail", show=False),
    ]

    class Moved(Message):
        """Another number is under the cursor."""

    def __init__(self) -> None:
        super().__init__(self._lines, id="table")
        self.picture: ViewState | None = None
        self.view = TableView(np.zeros(0, dtype=np.int64))
        self._held: int | None = None
        self._is_at_first = False  # whether the first rows stay in sight, wherever the cursor is

    def arranged(self, picture: ViewState, wanted: str) -> Ints:
        """The numbers that the filter `wanted` fits, first row first."""
        raise NotImplementedError

    def drawn(self, picture: ViewState, view: TableView, width: int, height: int) -> list[Line]:
        """The table's lines."""
        raise NotImplementedError

    def opened(self, number: int) -> None:
        """The reader has chosen a row."""
        raise NotImplementedError

    @property
    def chosen(self) -> int | None:
        """The number in the row under the cursor."""
        return int(self.view.order[self.view.cursor]) if len(self.view.order) else None

    def hold(self, number: int | None) -> None:
        """Put the cursor on a number, wherever its row is or will be; None: on the first row, whatever it shows."""
        if number != self._held:
            self.adopt(number)
            self._is_at_first = self.opens_at_first
            if self.picture is not None:
                self._settle(self.view.order)

    def keep(self, number: int | None) -> None:
        """Follow this number from now on."""
        self._held = number

    def adopt(self, number: int | None) -> None:
        """Follow a number that was chosen elsewhere; None: the first row, whatever it shows."""
        self.keep(number)

    def line_of(self, number: int) -> int:
        """The number of the row that stands for a number."""
        return number

    def show(self, picture: ViewState) -> None:
        """Take over a new picture; the screen draws it, with all its other panels."""
        self.picture = picture
        order = self.arranged(picture, picture.wanted)
        if picture.wanted != self.view.wanted:
            self.view = replace(self.view, top=0, cursor=0, wanted=picture.wanted)
        if not np.array_equal(order, self.view.order):  # the worst come first: in sight wherever the cursor lets them
            self.view = replace(self.view, top=0)
        self._place(order)

    def forget(self) -> None:
        """Let go of the picture; the order and the cursor stay."""
        self.picture = None

    def _settle(self, order: Ints) -> None:
        self._place(order)
        self.redraw()

    def _place(self, order: Ints) -> None:
        """Find the cursor's row in the new order and keep it in sight."""
        before, row = self.chosen, 0
        if self._held is not None:
            found = np.flatnonzero(order == self.line_of(self._held))
            row = int(found[0]) if len(found) else min(self.view.cursor, max(len(order) - 1, 0))
        self.view = replace(self.view, order=order, cursor=row, top=self._top(row, len(order)))
        if self.chosen != before:
            self.post_message(self.Moved())

    @property
    def _room(self) -> int:
        return max(self.size.height - HEAD, 1)

    def _top(self, row: int, total: int) -> int:
        """The first row in sight: the view moves no further than the cursor needs, and not before it has a size."""
        if not self.size.height or self._is_at_first:
            return 0
        top = min(max(self.view.top, row - self._room + 1), row)
        return max(min(top, total - self._room), 0)

    def _lines(self, width: int, height: int) -> list[Line]:
        if self.picture is None:
            return []
        return self.drawn(self.picture, replace(self.view, focused=self.has_focus), width, height)

    def rearrange(self, *, sort: str | None = None, reverse: bool | None = None) -> None:
        """Sort differently; the cursor follows what was chosen, whose row stands last if it is not among the first."""
        changes = {"sort": sort, "reverse": reverse}
        self.view = replace(self.view, top=0, cursor=0, **{k: v for k, v in changes.items() if v is not None})  # type: ignore[arg-type]
        if self.picture is not None:
            self._place(self.arranged(self.picture, self.view.wanted))
            if self.view.top:
                self.adopt(None)
                self._place(self.view.order)
            self.redraw()

    def action_move(self, rows: int) -> None:
        """Move the cursor, and hold on to what it lands on."""
        total, self._is_at_first = len(self.view.order), False
        if total:
            self.keep(int(self.view.order[max(0, min(self.view.cursor + rows, total - 1))]))
            self._settle(self.view.order)

    def action_page(self, pages: int) -> None:
        """Move by what is in sight."""
        self.action_move(pages * max(self._room - 1, 1))

    def action_first(self) -> None:
        """Go to the first row."""
        self.action_move(-len(self.view.order))

    def action_last(self) -> None:
        """Go to the last row."""
        self.action_move(len(self.view.order))

    def action_open(self) -> None:
        """Open what is under the cursor, which is chosen then."""
        self.action_move(0)
        if self.chosen is not None:
            self.opened(self.chosen)

    def on_resize(self, _event: events.Resize) -> None:
        """Another height shows other rows: a table that has grown shows the first ones with the cursor, if it can."""
        self.view = replace(self.view, top=0)
        self._place(self.view.order)

    def on_focus(self) -> None:
        """Show the cursor."""
        self.redraw()

    def on_blur(self) -> None:
        """Hide the cursor."""
        self.redraw()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """The wheel moves the cursor."""
        event.stop()
        self.action_move(3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """The wheel moves the cursor."""
        event.stop()
        self.action_move(-3)

    def sort_by(self, key: str) -> None:
        """Sort by a column; by the one that it is sorted by already, the other way round.

        The worst come first already: let go of what was chosen.
        """
        again = key == self.view.sort
        if again and key == "worst" and not self.view.reverse:
            self.keep(None)
        self.rearrange(sort=key, reverse=again and key != "worst" and not self.view.reverse)

    def _sort_next(self, names: Sequence[str], step: int) -> None:
        place = names.index(self.view.sort) if self.view.sort in names else 0
        self.rearrange(sort=names[(place + step) % len(names)], reverse=False)

    def heading_at(self, x: int) -> str | None:
        """The key of the column whose heading stands at the cell `x`; None where nothing is sorted by a click."""
        del x
        return None

    def on_click(self, event: events.Click) -> None:
        """A click on a row moves the cursor, a second one opens what is there; one on a heading sorts."""
        key = self.heading_at(event.x) if event.y == HEAD - 1 else None
        row = self.row_at(event.y)
        if key is not None:
            self.sort_by(key)
        elif row is not None and row < len(self.view.order):
            self.action_move(row - self.view.cursor)
            if event.chain == 2:
                self.action_open()

    def row_at(self, line: int) -> int | None:
        """The row that is drawn in this line of the widget."""
        return dict(enumerate(self.view.places(self._room), HEAD)).get(line)


class RankTable(VirtualTable):
    """One row a rank."""

    class Opened(Message):
        """A rank was chosen."""

        def __init__(self, rank: int) -> None:
            super().__init__()
            self.rank = rank

    def arranged(self, picture: ViewState, wanted: str) -> Ints:
        """The ranks in row order; of a run that stands still the first rank of each group."""
        if self._is_grouped(picture, wanted):
            return self._groups(picture)
        return ordered(picture.snapshot, self.view.sort, self.view.reverse, wanted)

    def keep(self, number: int | None) -> None:
        """Follow this rank from now on; it is the chosen one of all views."""
        super().keep(number)
        cast("WatchApp", self.app).links.choose(number)

    def _place(self, order: Ints) -> None:
        """Tell all views which rank is under the cursor: the chosen one, or another while the filter hides that."""
        super()._place(order)
        held = self._held
        is_held = held is not None and self.line_of(held) == self.chosen
        cast("WatchApp", self.app).links.under_cursor = held if is_held else self.chosen

    def line_of(self, number: int) -> int:
        """The rank itself, or the first rank of its group."""
        if self.picture is None or not self._is_grouped(self.picture, self.view.wanted):
            return number
        return leader_of(self.picture, number)

    def drawn(self, picture: ViewState, view: TableView, width: int, height: int) -> list[Line]:
        """The table's lines."""
        if not self._is_grouped(picture, view.wanted):
            return table_lines(picture, view, width, height)
        cursor = self.chosen if view.focused else None
        return place_lines(picture, view.order[list(view.places(height - HEAD))].tolist(), cursor, width, height)

    def _is_grouped(self, picture: ViewState, wanted: str) -> bool:
        """Whether the rows are groups of ranks: while the run stands still and the reader asks for nothing else."""
        return self.view.sort == "worst" and not wanted and is_hanging(picture.snapshot)

    def _groups(self, picture: ViewState) -> Ints:
        firsts = np.array(first_ranks(picture), dtype=np.int64)
        return firsts[::-1] if self.view.reverse else firsts

    def opened(self, number: int) -> None:
        """Say that a rank was chosen."""
        self.post_message(self.Opened(number))

    @property
    def rank(self) -> int | None:
        """The rank under the cursor."""
        return self.chosen

    def next_sort(self, step: int = 1) -> None:
        """Sort by the next column that has anything to show, or by the one before."""
        ranks = self.picture.snapshot.ranks if self.picture else None
        bare = ranks is not None and not any(ranks.gpu)
        self._sort_next([name for name in SORTS if not (bare and name in GPU_COLUMNS)], step)

    def heading_at(self, x: int) -> str | None:
        """The column whose heading stands there; groups of ranks have an order of their own."""
        if self.picture is None or self._is_grouped(self.picture, self.view.wanted):
            return None
        return heading_at(self.picture, self.view, self.size.width, x)


class HostTable(VirtualTable):
    """One row a host.

    Attributes:
        metric: the key of what the cells of GPUs and ranks show.
    """

    metric = METRICS[0].key

    class Opened(Message):
        """A host was chosen."""

        def __init__(self, node: int) -> None:
            super().__init__()
            self.node = node

    def __init__(self) -> None:
        super().__init__()
        self._standing_out = StandingOut()

    def keep(self, number: int | None) -> None:
        """Follow this host from now on; a rank of it is the chosen one of all views."""
        super().keep(number)
        cast("WatchApp", self.app).links.choose_host(number)

    def adopt(self, number: int | None) -> None:
        """Follow a host; the chosen rank stays as it is."""
        self._held = number

    def arranged(self, picture: ViewState, wanted: str) -> Ints:
        """The node numbers in row order."""
        sort, reverse = self.view.sort, self.view.reverse
        return ordered_hosts(picture.snapshot, sort, reverse, wanted, self.metric, self._standing_out)

    def drawn(self, picture: ViewState, view: TableView, width: int, height: int) -> list[Line]:
        """The table's lines."""
        return host_table_lines(picture, view, width, height, self.metric)

    def opened(self, number: int) -> None:
        """Say that a host was chosen."""
        self.post_message(self.Opened(number))

    def next_sort(self, step: int = 1) -> None:
        """Sort by the next column, or by the one before; cells of ranks are ordered as the lateness is."""
        of_ranks = self.picture is not None and metric_of(self.picture.snapshot, self.metric).of_gpu is None
        self._sort_next([name for name in HOST_SORTS if not (of_ranks and name == ODD)], step)

    def heading_at(self, x: int) -> str | None:
        """The column whose heading stands there."""
        if self.picture is None:
            return None
        return host_heading_at(self.picture.snapshot, self.view.sort, self.size.width, x, self.metric)

    def next_metric(self) -> None:
        """Show the next metric that this run can have; the order by what the cells show follows it."""
        if self.picture is not None:
            known = offered(self.picture.snapshot)
            here = metric_of(self.picture.snapshot, self.metric)
            self.metric = known[(known.index(here) + 1) % len(known)].key
            self._settle(self.arranged(self.picture, self.view.wanted))
