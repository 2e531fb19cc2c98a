"""The line in which a filter is typed, and above it what is not understood, or what may come next."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, cast

from rich.segment import Segment
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.suggester import Suggester
from textual.widget import Widget
from textual.widgets import Input

from ddpmon.tui.filter.complete import Choice, as_far_as_common, completions, is_unfinished
from ddpmon.tui.filter.fits import complaint
from ddpmon.tui.filter.words import LONGEST
from ddpmon.tui.lines import Line, cells_of, clip_words, fit
from ddpmon.tui.theme import Look
from ddpmon.tui.widgets.canvas import Canvas

if TYPE_CHECKING:
    from ddpmon.tui.app import WatchApp

_EXAMPLES = "late>10   late>5%   gpu<50   rank=3-7   host=node1   host~^n[0-3]$   straggler   not lost   ... or ..."


class _Typed(Input):
    """The filter as it is typed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "drop", "All ranks", show=False),
        Binding("tab", "complete(1)", "Complete the word", show=False),
        Binding("shift+tab", "complete(-1)", "The candidate before", show=False),
    ]

    def __init__(self, suggester: Suggester, complete: Callable[[str, int], str]) -> None:
        super().__init__(
            placeholder="filter",
            id="filter",
            compact=True,
            suggester=suggester,
            max_length=LONGEST,
            select_on_focus=False,
        )
        self._complete = complete

    def action_drop(self) -> None:
        """Show all ranks again."""
        self.value = ""
        self.post_message(self.Submitted(self, ""))

    def action_complete(self, by: int) -> None:
        """Complete the last word, or take the next candidate or the one before."""
        self.value = self._complete(self.value, by)
        self.cursor_position = len(self.value)


class FilterBar(Vertical):
    """Filters as one types; Enter keeps the filter, Esc drops it.

    While what is typed is not understood, the filter from before it was opened is in force. Enter then says what is
    wrong and leaves the line open.
    """

    HEIGHT = 2

    def __init__(self) -> None:
        super().__init__(id="filterbar")
        self.display = False
        self._before: Widget | None = None
        self._wanted_before = self._refused = ""
        self._choice: Choice | None = None

    def compose(self) -> ComposeResult:
        """What to know, and below it the line."""
        yield Canvas(self._hint, id="hint")
        yield _Typed(_Offer(self), self._complete)

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
        """Whether keys go to the line: the line itself is told later that it has lost them."""
        return self.screen.focused is self.typed

    @property
    def is_understood(self) -> bool:
        """Whether what is typed is a filter, so that Enter keeps it."""
        return not complaint(self.dashboard.picture.snapshot, self.typed.value)

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
        for canvas in (self.query_one("#hint", Canvas), self.screen.query_one("#foot", Canvas)):
            canvas.redraw()

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

    def choice_in(self, text: str) -> Choice | None:
        """The candidates that the reader goes through, if `text` is still what the last tab has made."""
        return self._choice if self._choice is not None and self._choice.text == text else None

    def _complete(self, text: str, by: int) -> str:
        """What a tab makes of `text`: as far as all candidates begin alike, then one candidate after the other."""
        choice = self.choice_in(text)
        words = () if choice else tuple(completions(text, self.dashboard.picture.snapshot))
        longer = as_far_as_common(text, words) if words else text
        if longer != text:
            return longer
        if choice is None and words:
            choice = Choice(text, words, -1 if by > 0 else 0)
        self._choice = None if choice is None else choice.moved(by)
        return text if self._choice is None else self._choice.text

    def _hint(self, width: int, _height: int) -> list[Line]:
        picture, text = self.dashboard.picture, self.typed.value
        look, wrong = picture.look, complaint(picture.snapshot, text)
        choice, ended = self.choice_in(text), not text or text[-1].isspace() or text[-1] == "("
        offered = [] if ended else completions(text, picture.snapshot)
        if choice is not None and text != self._refused:
            return [fit(_candidates(choice.words, choice.place, width, look), width)]
        if wrong and (not offered or text == self._refused):
            said, style = f"{look.glyphs.mark} {look.clean(wrong)}", look.accent
        elif offered:
            return [fit(_candidates(offered, None, width, look), width)]
        else:
            said, style = _EXAMPLES, look.dim
        return [fit([Segment(f" {clip_words(said, width - 2, look.glyphs.more)}", style)], width)]


def _candidates(words: Sequence[str], place: int | None, width: int, look: Look) -> Line:
    """The words that a tab may lead to, those in sight around the one at `place`, which is marked."""
    lead, more, here = " tab:", look.glyphs.more, place or 0
    room = width - len(lead) - 4
    first = here + 1 - len(_in_room(words[here::-1], room, look))
    names = _in_room(itertools.islice(words, first, None), room, look)
    line: Line = [Segment(lead, look.dim), Segment(f" {more}" if first else "", look.dim)]
    for at, name in enumerate(names, first):
        taken = Segment(f"{look.glyphs.cursor}{name[1:]}", look.strong)
        line.append(taken if at == place else Segment(name, look.dim))
    return [*line, Segment(f" {more}" if first + len(names) < len(words) else "", look.dim)]


def _in_room(words: Iterable[str], room: int, look: Look) -> list[str]:
    """The first words, cleaned and with a gap on both sides, that fit into so many cells together; at least one."""
    names = list[str]()
    for word in words:
        name = f" {look.clean(word)} "
        room -= cells_of(name)
        if names and room < 0:
            break
        names.append(name)
    return names


class _Offer(Suggester):
    """Offers what a tab adds to the word under the cursor."""

    def __init__(self, bar: FilterBar) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._bar = bar

    async def get_suggestion(self, value: str) -> str | None:
        """The whole filter with its last word completed as far as all candidates begin alike."""
        is_chosen = not value.strip() or self._bar.choice_in(value) is not None
        found = [] if is_chosen else completions(value, self._bar.dashboard.picture.snapshot)
        return as_far_as_common(value, found) if found else None
