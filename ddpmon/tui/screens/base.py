"""What all screens share: they show the app's picture and draw a header and a key line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, cast

from textual import events
from textual.binding import Binding, BindingType
from textual.screen import Screen

from ddpmon.report.verdicts import headline, naming
from ddpmon.snapshot import Finding
from ddpmon.tui.draw.header import header_line, notice_line
from ddpmon.tui.draw.panel import Keys
from ddpmon.tui.draw.panel_sizes import LEAST
from ddpmon.tui.draw.too_small import too_small_lines
from ddpmon.tui.draw.verdict_lines import headline_line
from ddpmon.tui.draw.zoom import steps_on_record, zoomed
from ddpmon.tui.lines import Line
from ddpmon.tui.view_state import ViewState, notice
from ddpmon.tui.view_tables import TableName, ranks_csv
from ddpmon.tui.widgets.canvas import Canvas
from ddpmon.tui.widgets.filter_bar import FilterBar
from ddpmon.tui.widgets.key_line import KeyLine

if TYPE_CHECKING:
    from ddpmon.tui.app import WatchApp


FILTER_KEYS: Keys = (("enter", "keep the filter"), ("tab", "complete"), ("esc", "drop it"))
DROP = "drop filter"
COPY_KEYS: Keys = (("y", "copy"), ("w", "save"))  # of every view


class BaseScreen(Screen[None]):
    """A screen that can be given a new picture, once its widgets are there.

    Attributes:
        ready: whether they are.
        canvases: what is drawn, in the order of the tree: all of it is there from the beginning.
        bar: the line for a filter, on a screen that can be filtered.
        shows_steps: whether a plot or a heat-map is drawn now that can be zoomed in on.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "Filter", show=False),
        Binding("z", "zoom(1)", "Fewer steps", show=False),
        Binding("Z", "zoom(-1)", "More steps", show=False),
    ]
    ready = False
    canvases: tuple[Canvas, ...] = ()
    bar: FilterBar | None = None
    shows_steps = False
    view: ClassVar[str] = ""  # what help and files call it
    exported: ClassVar[TableName] = "ranks"  # the table that it writes as CSV

    def on_mount(self) -> None:
        """From now on there is something to draw on."""
        self.canvases = tuple(self.query(Canvas))
        self.bar = next(iter(self.query(FilterBar)), None)
        self.follow()
        self.ready = True

    def follow(self) -> None:
        """Put the cursor on what the reader has chosen in another view."""

    @property
    def dashboard(self) -> WatchApp:
        """The app, by its own type."""
        return cast("WatchApp", self.app)

    @property
    def picture(self) -> ViewState:
        """What is to be shown now."""
        return self.dashboard.picture

    @property
    def faded(self) -> bool:
        """Whether the whole picture is drawn dim."""
        return self.picture.faded

    @property
    def detailed_rank(self) -> int | None:
        """The rank whose detail this screen draws."""
        return None

    def show(self) -> None:
        """Draw the current picture."""
        for canvas in self.canvases:
            canvas.redraw()

    def on_screen_resume(self) -> None:
        """Hidden screens are not drawn; catch up."""
        self.dashboard.read_detail_of(self.detailed_rank)
        if self.ready:
            self.follow()
            self.show()

    def on_screen_suspend(self) -> None:
        """Hold no old picture behind another view: what its frames hold took 8 MB a view at 4,096 ranks."""
        if isinstance(self.app.screen, BaseScreen):  # what is smaller than the terminal leaves this one in sight
            for canvas in self.canvases:
                canvas.forget()

    def keys(self) -> Keys:
        """The keys that do something now."""
        return (("q", "quit"),)

    def panel_at(self, event: events.Click) -> str:
        """The id of the widget that was clicked; the event is relative to it."""
        widget, _ = self.get_widget_at(*event.screen_offset)
        return widget.id or ""

    @property
    def finding(self) -> Finding | None:
        """What `y` copies here: the worst finding about what the cursor is on; where there is none, the headline."""
        return self.finding_here or headline(self.picture.snapshot.findings)

    @property
    def finding_here(self) -> Finding | None:
        """The worst finding about what the cursor is on: a rank, unless the screen says otherwise."""
        rank, ranks = self.dashboard.links.rank_here, self.picture.snapshot.ranks
        host = ranks.host[rank] if rank is not None and ranks is not None and 0 <= rank < len(ranks) else None
        return None if rank is None else next(iter(naming(self.picture.snapshot.findings, rank, host)), None)

    @property
    def subject(self) -> str:
        """What the cursor is on, in words: a rank, unless the screen says otherwise; empty for nothing."""
        rank = self.dashboard.links.rank_here
        return "" if rank is None else f"rank {rank}"

    def csv(self) -> str:
        """The table `exported`: here that of the ranks, in the order of the overview's table."""
        return ranks_csv(self.dashboard.shown, self.dashboard.links.in_order)

    @property
    def metrics(self) -> Sequence[tuple[str, str]]:
        """What `v` goes through here: the key of each metric, and what the palette calls showing it."""
        return ()

    def action_show_metric(self, key: str) -> None:
        """Show one of `metrics`."""

    @property
    def sorts(self) -> Sequence[tuple[str, str, str, str]]:
        """What the table can be sorted by: shift and which letter, the key, its words, and what the figure is."""
        return ()

    def action_zoom(self, by: int) -> None:
        """Show fewer steps in all plots, or more; where nothing that is drawn here can show that, the bell rings."""
        records = steps_on_record(self.picture)
        if not any(self._zooms(by, steps) for steps in records):
            self.dashboard.bell()

    def _zooms(self, by: int, on_record: int) -> bool:
        """Zoom as a plot with so many steps on record can; where no plot here shows it, zoom back and return False."""
        before, zoom = self.dashboard.links.zoom, zoomed(self.dashboard.links.zoom, on_record, by)
        drawn = self._drawn_with(before)
        shown = self._drawn_with(zoom)
        if shown == drawn:
            self._drawn_with(before)
        elif by < 0 and self._drawn_with(0) != shown:  # as many as all here have may be fewer than another view has
            self._drawn_with(zoom)
        return shown != drawn

    def _drawn_with(self, zoom: int) -> list[list[Line]]:
        """Draw with this zoom; the lines without those at the top, which hold ages, and the keys."""
        if self.dashboard.links.zoom != zoom:
            self.dashboard.links.zoom = zoom
            self.dashboard.redraw()
        return [canvas.lines for canvas in self.canvases if canvas.display and canvas.id not in ("head", "foot")]

    @property
    def zoom_keys(self) -> Keys:
        """The keys that zoom, where the view draws steps now."""
        return (("z Z", "zoom"),) if self.shows_steps else ()

    @property
    def drop_keys(self) -> Keys:
        """The keys that drop the filter, where one is set: `esc` in its line, here or in the overview."""
        return (("1 / esc" if self.bar is None else "/ esc", DROP),) if self.picture.wanted else ()

    @property
    def is_typing(self) -> bool:
        """Whether a filter is being typed."""
        return self.bar is not None and self.bar.is_typing

    @property
    def typing_keys(self) -> Keys:
        """The keys while a filter is typed: `enter` keeps only what is understood."""
        return FILTER_KEYS if self.bar is not None and self.bar.is_understood else FILTER_KEYS[1:]

    def action_filter(self) -> None:
        """Type a filter, where there is something to filter."""
        if self.bar is not None and self.picture.snapshot.ranks is not None:
            self.bar.open()

    def on_descendant_focus(self) -> None:
        """The keys that work depend on what has the focus, and so does the room."""
        if self.ready:
            self.show()

    def on_descendant_blur(self) -> None:
        """What had the focus may have been hidden, and then nothing has it."""
        if self.ready and self.focused is None:
            self.show()

    def foot(self) -> KeyLine:
        """The key line."""
        return KeyLine(self.keys, lambda: self.picture.look)


class ViewScreen(BaseScreen):
    """A screen besides the overview: a header, a notice where there is one, and the headline unless the view tells it.

    Where no panel fits, it is the verdict alone.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.back", "Back", show=False),
        Binding("f", "maximise", "The next panel alone", show=False),
    ]
    view: ClassVar[str] = ""  # what it is called
    panels: ClassVar[tuple[str, ...]] = ()  # what can be shown alone, by id
    _alone: str | None = None

    def show(self) -> None:
        """Share out the room, then draw."""
        high = len(self.head(self.size.width, self.size.height))
        self.query_one("#head", Canvas).set_height(high)
        typing = FilterBar.HEIGHT if self.bar is not None and self.bar.display else 0
        self.share_out(self.size.height - 1 - high - typing)
        self._enlarge()
        self._focus_again()
        super().show()

    def share_out(self, room: int) -> None:
        """Share out the lines between the header and the key line."""

    def _focus_again(self) -> None:
        """Give the keys back to the list of the view, which loses them while another panel is shown alone."""
        usual = next(iter(self.query(self.AUTO_FOCUS)), None) if self.AUTO_FOCUS else None
        if self.focused is None and usual is not None and usual.display:
            usual.focus()

    def on_resize(self, _event: events.Resize) -> None:
        """Another size is another plan."""
        if self.ready:
            self.show()

    def action_maximise(self) -> None:
        """Show the first panel alone, then the next one, and after the last one all of them."""
        if self.panels:
            names = (None, *self.panels)
            self._alone = names[(names.index(self._alone) + 1) % len(names)]
            for name in self.panels:
                self.query_one(f"#{name}").display = True
            self.show()

    def _enlarge(self) -> None:
        """Give all room to the panel that is shown alone."""
        if self._alone is not None:
            for name in self.panels:
                self.query_one(f"#{name}").display = name == self._alone
            self.query_one(f"#{self._alone}").styles.height = "1fr"
            self.query_one(f"#{self._alone}").styles.width = "1fr"

    @property
    def fits(self) -> bool:
        """Whether the terminal has room for any picture."""
        return self.size.width >= LEAST[0] and self.size.height >= LEAST[1]

    def head(self, width: int, height: int) -> list[Line]:
        """Which run this is, what stands between it and us, and the headline; without room the verdict alone."""
        if not self.fits:
            return too_small_lines(self.picture, width, height)
        lines = [header_line(self.picture, width)]
        lines += [notice_line(self.picture, width)] if notice(self.picture) else []
        worst = self.headline
        lines += [] if worst is None else [headline_line(self.picture, worst, width)]
        return lines[:height]  # which is that of an earlier picture, without a notice or a headline

    @property
    def headline(self) -> Finding | None:
        """The headline of the overview, where this view does not tell it itself."""
        worst = headline(self.picture.below_notice)
        return None if worst is None or self.tells(worst) else worst

    def tells(self, finding: Finding) -> bool:  # noqa: ARG002 (of views that do)
        """Whether the view tells the finding itself."""
        return False

    def on_click(self, event: events.Click) -> None:
        """A click on the headline opens it in the list of findings."""
        if self.headline is not None and self.panel_at(event) == "head" and event.y == 1 + bool(notice(self.picture)):
            self.dashboard.links.open_finding(self.headline)

    @property
    def back_keys(self) -> Keys:
        """One level back; where a filter is set, also how to drop it."""
        return (("esc", "back"), *self.drop_keys)

    @property
    def pause(self) -> Keys:
        """The key that freezes the display, or plays a recording; none where nothing comes any more."""
        replay = self.picture.snapshot.replay
        if replay is not None:
            return (("space", "pause" if replay.playing else "play"),)
        if self.picture.paused_s is not None:
            return (("space", "resume"),)
        return () if self.picture.is_complete else (("space", "freeze"),)
