"""The timeline: what every step took, a cursor on the moment that is shown, and all ranks or the buckets of it."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container

from ddpmon.report.rank_places import is_hanging
from ddpmon.tui.draw.panel import Keys
from ddpmon.tui.draw.panel_sizes import TABLE_HEAD, WIDE
from ddpmon.tui.draw.place_table import STACK_LEAST, stuck_height, stuck_lines
from ddpmon.tui.draw.timeline_view import (
    BUCKET_HEAD,
    bucket_lines,
    no_buckets,
    step_at,
    timeline_height,
    timeline_lines,
)
from ddpmon.tui.draw.zoom import shown_timeline
from ddpmon.tui.lines import Line
from ddpmon.tui.screens.base import COPY_KEYS, ViewScreen
from ddpmon.tui.view_tables import TableName, timeline_csv
from ddpmon.tui.widgets.canvas import Canvas
from ddpmon.tui.widgets.filter_bar import FilterBar
from ddpmon.tui.widgets.virtual_table import RankTable


class TimelineScreen(ViewScreen):
    """The keys that travel in time move its cursor: they work in every view."""

    view: ClassVar[str] = "timeline"
    exported: ClassVar[TableName] = "timeline"
    panels: ClassVar[tuple[str, ...]] = ("timeline", "pair")
    BINDINGS: ClassVar[list[BindingType]] = [Binding("v", "buckets", "Ranks or buckets", show=False)]
    AUTO_FOCUS = "RankTable"

    def __init__(self) -> None:
        super().__init__()
        self._shows_buckets = False
        self._cuts_buckets = False  # whether some have no room beside the ranks

    def compose(self) -> ComposeResult:
        """Header, the rows, below them the ranks and the buckets, the keys."""
        yield Canvas(self.head, id="head")
        yield Canvas(lambda w, h: timeline_lines(self.picture, w, h), id="timeline")
        with Container(id="pair"):
            yield RankTable()
            yield Canvas(self._buckets, id="buckets")
        yield Canvas(lambda w, h: stuck_lines(self.picture, self.table.rank or 0, w, h), id="stacks")
        yield FilterBar()
        yield self.foot()

    @property
    def table(self) -> RankTable:
        """The ranks at that moment."""
        return self.query_one(RankTable)

    def on_click(self, event: events.Click) -> None:
        """A click on the rows goes to the step that is drawn there; `end` leads back."""
        if self.panel_at(event) == "timeline":
            step = step_at(self.picture, self.size.width, event.x)
            if step is not None:
                self.dashboard.action_travel("to_step", step)

    def follow(self) -> None:
        """The cursor of the table is on the chosen rank."""
        self.table.hold(self.dashboard.links.to_hold)

    def share_out(self, room: int) -> None:
        """The rows above; below the ranks, in wide terminals with the buckets beside them; or the buckets alone.

        While the run stands still the stacks take the room below.
        """
        self.table.show(self.picture)
        hangs, rows = is_hanging(self.picture.snapshot), len(self.table.view.order)
        hangs = hangs and rows > 0
        stuck = stuck_height(self.picture, self.table.rank or 0) if hangs else 0
        detail = self._has_buckets
        beside, alone = detail and self.size.width >= WIDE and not hangs, detail and self._shows_buckets
        needed = self._bucket_count + BUCKET_HEAD if alone or beside else 0
        below = max(0 if alone else rows + stuck, needed - TABLE_HEAD)
        high = timeline_height(room, below, first=alone)
        self._cuts_buckets = room - high < needed and not alone
        self.query_one("#timeline").styles.height = high
        pair = needed if alone else max(rows + TABLE_HEAD, needed)
        stacks, left = self.query_one("#stacks"), min(room - high - pair, stuck)
        stacks.display, stacks.styles.height = left >= STACK_LEAST, max(left, 1)
        buckets = self.query_one("#buckets")
        self.query_one("#pair").styles.layout = "horizontal"
        buckets.display, self.table.display = alone or beside, not alone
        buckets.styles.width = max(self.size.width // 3, 40) if self.table.display else "1fr"

    @property
    def _has_buckets(self) -> bool:
        """Whether the run tells what each bucket takes."""
        return self._bucket_count > 0

    @property
    def _bucket_count(self) -> int:
        """The buckets of which the run tells what they take."""
        timeline = self.picture.snapshot.timeline
        return 0 if timeline is None or timeline.buckets is None else len(timeline.buckets.ms)

    def _buckets(self, width: int, height: int) -> list[Line]:
        timeline, key = self.picture.snapshot.timeline, "f" if self._shows_buckets else "v"
        buckets = None if timeline is None else timeline.buckets
        return [] if buckets is None else bucket_lines(buckets, width, height, self.picture.look, key)

    def action_buckets(self) -> None:
        """Show the buckets instead of the ranks, or the ranks again; ring where both have room beside each other.

        Without buckets the ranks stay, and a message says why there are none.
        """
        if not self._has_buckets:
            run = self.picture.snapshot.run
            self.dashboard.habits.say(no_buckets(None if run is None else run.info))
        elif not self._hides_some:
            self.dashboard.bell()
        else:
            self._shows_buckets = not self._shows_buckets
            self.show()

    @property
    def _hides_some(self) -> bool:
        """Whether ranks or buckets have no room now."""
        hangs = is_hanging(self.picture.snapshot)  # then the stacks have the room
        return self.size.width < WIDE or self._shows_buckets or self._cuts_buckets or hangs

    def csv(self) -> str:
        """The steps that are drawn."""
        return timeline_csv(self.picture.over, shown_timeline(self.picture))

    def keys(self) -> Keys:
        """Along time, to a rank."""
        if self.is_typing:
            return self.typing_keys
        replay = self.picture.snapshot.replay
        back = () if replay is None else (("n N", "finding"), ("end", "live" if replay.is_live else "last moment"))
        past = (("[ ]", "step"), ("{ }", "minute"), ("t", "go to"), *back)
        zoom, hides_some = ("z Z", "zoom"), self._has_buckets and self._hides_some
        buckets = (("v", "ranks" if self._shows_buckets else "buckets"),) if hides_some else ()
        rank = (("enter", "rank"),) if self.table.display else ()
        more = (zoom, ("/", "filter"), *self.pause, *COPY_KEYS, ("q", "quit"))
        return (*self.back_keys, *past, *rank, *buckets, ("?", "help"), *more)
