"""What all screens share: they show the app's picture and draw a header and a key line."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from textual.screen import Screen

from ddpmon.tui.draw.panel import Keys, footer_line
from ddpmon.tui.lines import Line
from ddpmon.tui.view_state import ViewState
from ddpmon.tui.widgets.canvas import Canvas

if TYPE_CHECKING:
    from ddpmon.tui.app import WatchApp


class BaseScreen(Screen[None]):
    """A screen that can be given a new picture, once its widgets are there."""

    ready = False

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

    def foot(self, width: int, _height: int) -> list[Line]:
        """The key line."""
        return [footer_line(self.keys(), width, self.picture.look)]
