"""The line in which a filter is typed, and above it what is not understood, or what may come next."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from rich.segment import Segment
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.suggester import Suggester
from textual.widget import Widget
from textual.widgets import Input

from ddpmon.tui.filter.complete import completed, completions, is_unfinished
from ddpmon.tui.filter.fits import complaint
from ddpmon.tui.filter.words import LONGEST
from ddpmon.tui.lines import Line, clip, fit
from ddpmon.tui.widgets.canvas import Canvas

if TYPE_CHECKING:
    from ddpmon.tui.app import WatchApp

_EXAMPLES = "late>10   late>5%   gpu<50   rank=3-7   host=node1   host~^n[0-3]$   straggler   not lost   ... or ..."


class _Typed(Input):
    """The filter as it is typed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "drop", "All ranks", show=False),
        Binding("tab", "complete", "Complete the word", show=False),
    ]

    def __init__(self, suggester: Suggester) -> None:
        super().__init__(
            placeholder="filter",
            id="filter",
            compact=True,
            suggester=suggester,
            max_length=LONGEST,
            select_on_focus=False,
        )

    def action_drop(self) -> None:
        """Show all ranks again."""
        self.value = ""
        self.post_message(self.Submitted(self, ""))

    def action_complete(self) -> None:
        """Take the word that is offered, if one is."""
        self.cursor_position = len(self.value)
        self.action_cursor_right()


class FilterBar(Vertical):
    """Filters as one types; Enter keeps the filter, Esc drops it.

    While what is typed is not understood, the filter from before it was opened is in force, and Enter keeps that one.
    """

    HEIGHT = 2

    def __init__(self) -> None:
        super().__init__(id="filterbar")
        self.display = False
        self._before: Widget | None = None
        self._wanted_before = self._refused = ""

    def compose(self) -> ComposeResult:
        """What to know, and below it the line."""
        yield Canvas(self._hint, id="hint")
        yield _Typed(_Offer(self))

    @property
    def dashboard(self) -> WatchApp:
        """The app, by its own type."""
        return cast("WatchApp", self.app)

    @property
    def typed(self) -> Input:
        """The line."""
        return self.query_one(_Typed)

    @property
    def is_typing(self) -> bool:
        """Whether keys go to the line."""
        return self.typed.has_focus

    def open(self) -> None:
        """Type a filter, from the one that there is."""
        if not self.display:
            self._before = self.screen.focused
        self.display = True
        self._wanted_before, self._refused = self.dashboard.picture.wanted, ""
        with self.typed.prevent(Input.Changed):
            self.typed.value = self.dashboard.picture.wanted
        self.typed.cursor_position = len(self.typed.value)
        self.typed.focus()

    @on(Input.Changed, "#filter")
    def _narrow(self, event: Input.Changed) -> None:
        event.stop()
        picture, text = self.dashboard.picture, event.value
        is_wrong = is_unfinished(text) or complaint(picture.snapshot, text)
        wanted = self._wanted_before if is_wrong else text.strip()
        if wanted != picture.wanted:
            self.dashboard.filter_by(wanted)
        self.query_one("#hint", Canvas).redraw()

    @on(Input.Submitted, "#filter")
    def _close(self, event: Input.Submitted) -> None:
        event.stop()
        if complaint(self.dashboard.picture.snapshot, event.value):
            self._refused = event.value
            self.query_one("#hint", Canvas).redraw()
            return
        self.dashboard.filter_by(event.value.strip())
        self.display = False
        if self._before is not None:
            self._before.focus()

    def _hint(self, width: int, _height: int) -> list[Line]:
        picture, text = self.dashboard.picture, self.typed.value
        look, wrong = picture.look, complaint(picture.snapshot, text)
        offered = completions(text, picture.snapshot)
        ended = not text or text[-1].isspace()
        if wrong and (not offered or text == self._refused):
            said, style = f"{look.glyphs.mark} {look.clean(wrong)}", look.accent
        elif offered and not ended:
            said, style = "tab: " + "  ".join(look.clean(word) for word in offered), look.dim
        else:
            said, style = _EXAMPLES, look.dim
        return [fit([Segment(f" {clip(said, width - 2, look.glyphs.more)}", style)], width)]


class _Offer(Suggester):
    """Offers the first completion of the word under the cursor."""

    def __init__(self, bar: FilterBar) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._bar = bar

    async def get_suggestion(self, value: str) -> str | None:
        """The whole filter with its last word completed."""
        found = completions(value, self._bar.dashboard.picture.snapshot) if value.strip() else []
        return completed(value, found[0]) if found else None
