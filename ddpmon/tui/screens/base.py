"""What all screens share: they show the app's picture and draw a header and a key line."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from textual.binding import Binding, BindingType
from textual.screen import Screen

from ddpmon.report.verdicts import headline
from ddpmon.snapshot import Finding
from ddpmon.tui.draw.panel import Keys, footer_line
from ddpmon.tui.lines import Line
from ddpmon.tui.view_state import ViewState
from ddpmon.tui.widgets.canvas import Canvas
from ddpmon.tui.widgets.filter_bar import FilterBar

if TYPE_CHECKING:
    from ddpmon.tui.app import WatchApp


FILTER_KEYS: Keys = (("enter", "keep the filter"), ("tab", "complete"), ("esc", "drop it"))


class BaseScreen(Screen[None]):
    """A screen that can be given a new picture, once its widgets are there."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("slash", "filter", "Filter", show=False)]
    ready = False
    view: ClassVar[str] = ""  # what help and files call it

    def on_mount(self) -> None:
        """From now on there is something to draw on."""
        self.ready = True

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

    def show(self) -> None:
        """Draw the current picture."""
        for canvas in self.query(Canvas):
            canvas.redraw(faded=self.faded and canvas.id not in ("head", "foot"))

    def on_screen_resume(self) -> None:
        """Hidden screens are not drawn; catch up."""
        if self.ready:
            self.show()

    def keys(self) -> Keys:
        """The keys that do something now."""
        return (("q", "quit"),)

    @property
    def finding(self) -> Finding | None:
        """What `y` copies here: the chosen finding, or the headline."""
        return headline(self.picture.snapshot.findings)

    @property
    def bar(self) -> FilterBar | None:
        """The line for a filter, on a screen that can be filtered."""
        return next(iter(self.query(FilterBar)), None)

    @property
    def is_typing(self) -> bool:
        """Whether a filter is being typed."""
        return self.bar is not None and self.bar.is_typing

    def action_filter(self) -> None:
        """Type a filter, where there is something to filter."""
        if self.bar is not None and self.picture.snapshot.ranks is not None:
            self.bar.open()

    def on_descendant_focus(self) -> None:
        """The keys that work depend on what has the focus, and so does the room."""
        if self.ready:
            self.show()

    def foot(self, width: int, _height: int) -> list[Line]:
        """The key line."""
        return [footer_line(self.keys(), width, self.picture.look)]
