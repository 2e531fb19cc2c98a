"""The commands of the palette (ctrl+p): ours and nothing else, with their keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from textual.app import SystemCommand
from textual.command import DiscoveryHit, Hits
from textual.screen import Screen
from textual.system_commands import SystemCommandsProvider

from ddpmon.tui.choices import NOTIFY, THEMES, Notify, ThemeName
from ddpmon.tui.preferences import UserCommand
from ddpmon.tui.screens.base import BaseScreen

if TYPE_CHECKING:
    from ddpmon.tui.habits import Habits

_APP = "app."  # before the name of an action of the app; the others are those of the screen, where it has them
_VIEWS = (
    ("Overview", "verdict, rank table, heat-map, plots", "1", "app.overview"),
    ("Timeline", "steps, all-reduce, loss and events over time", "2", "app.open_view('timeline')"),
    ("Hosts", "hosts, their GPUs and who is on them", "3", "app.open_view('hosts')"),
    ("The run", "configuration, versions, hours used and lost", "4", "app.open_view('run')"),
    ("Findings", "every finding with evidence and advice", "5", "app.open_view('findings')"),
)
_FINDING = (
    ("The host", "of the rank or of the finding", "h", "host"),
    ("Copy the finding as text", "that of the rank or host under the cursor, or the headline", "y", "app.copy(False)"),
    ("Copy the finding as JSON", "that of the rank or host under the cursor, or the headline", "Y", "app.copy(True)"),
    ("Write the finding", "as text or JSON in the current folder", "w", "write_finding"),
    ("Mark the rank", "again takes the mark away", "m", "app.mark"),
    ("Compare the marked ranks", "two to four side by side", "c", "app.compare"),
    ("Filter", "only ranks, hosts and findings that fit, such as late>10", "/", "filter"),
)
_SORT = (
    ("Sort by the next column", "the table of ranks or hosts", ".", "sort(1)"),
    ("Sort by the column before", "the table of ranks or hosts", ",", "sort(-1)"),
    ("Sort: the worst first", "the usual order", "0", "sort_by('worst')"),
    ("Reverse the order", "the table of ranks or hosts", "r", "reverse"),
)
_WRITE = (
    ("Write a report", "one HTML page in the current folder", "w", "app.write"),
    ("Export the view", "SVG, text, its table as CSV, or JSON in the current folder", "ctrl+s", "app.write_view"),
)
_SHOW = (
    ("The next panel alone", "and after the last one all of them", "f", "maximise"),
    ("Zoom in", "half of the steps in all plots, around the moment shown", "z", "zoom(1)"),
    ("Zoom out", "twice as many steps in all plots, up to all on record", "Z", "zoom(-1)"),
    ("The next metric", "of the heat-map, of the GPUs, of the plot", "v", "metric"),
)
_TIME = (
    ("Freeze or resume the display", "in a recording: play or pause", "space", "app.freeze"),
    ("Go to a step or a time", "1200, 03:12, or 2 min back; over what was seen", "t", "app.go_to"),
    ("Back by a minute", "over what was seen", "{", "app.travel('seconds', -60)"),
    ("Forward by a minute", "over what was seen", "}", "app.travel('seconds', 60)"),
    ("To the beginning of what was seen", "the first moment on record", "home", "app.travel_to('start')"),
    ("To the end", "back to the live run", "end", "app.travel_to('end')"),
    ("Read more often", "the interval: down to 0.25 s", "+", "app.rate(-1)"),
    ("Read less often", "the interval: up to 10 s", "-", "app.rate(1)"),
)
_LAST = (
    ("Help", "how to read this view, and its keys", "?", "app.help"),
    ("Quit", "leaves one line with the last state", "q", "app.quit"),
)
Row = tuple[str, str, str, str]  # title, what it does, key, action

_THEMES: Mapping[ThemeName, str] = {
    "auto": "light or dark, as the terminal is",
    "dark": "for dark terminals",
    "light": "for light terminals",
    "colour-blind": "blue, yellow and pink",
    "mono": "greys; shades tell the phases apart",
}
_NOTIFIED: Mapping[Notify, str] = {
    "off": "a new critical finding is only drawn",
    "bell": "a new critical finding rings the terminal's bell",
    "desktop": "a new critical finding is shown by the desktop",
}


class Palette(SystemCommandsProvider):
    """Our commands: all in our order until something is typed, then those that match, the best match first."""

    async def discover(self) -> Hits:
        """All commands, in the order of `commands`; Textual has them by the alphabet."""
        for title, words, run, _ in self.app.get_system_commands(self.screen):
            yield DiscoveryHit(title, run, help=words)


def commands(screen: Screen[Any], own: tuple[UserCommand, ...], habits: Habits) -> Iterator[SystemCommand]:
    """What can be done now on this screen: views, the finding, filter, order, files, what is shown, time, and the rest.

    Args:
        screen: the one under the palette.
        own: the user's commands.
        habits: knows what a new critical finding does.
    """
    view = screen if isinstance(screen, BaseScreen) else None
    sorts = [
        (f"Sort by {words}", what, key, f"sort_by('{name}')") for key, name, words, what in (view.sorts if view else ())
    ]
    metrics = [
        (words, "goes through all of them", "v", f"show_metric('{name}')")
        for name, words in (view.metrics if view else ())
    ]
    yours = [(each.name, "your own", each.key, f"app.user_command({place})") for place, each in enumerate(own)]
    yield from _of_rows((*_VIEWS, *_FINDING, *_SORT, *sorts, *_WRITE, *_SHOW, *metrics, *_TIME, *yours), screen)
    for theme in THEMES:
        choose = partial(screen.run_action, f"app.choose_theme('{theme}')")
        yield SystemCommand(f"Theme: {theme}", _THEMES[theme], choose)
    for kind in NOTIFY:
        now = "set now: " if kind == habits.notify else ""
        yield SystemCommand(f"Notifications: {kind}", now + _NOTIFIED[kind], partial(habits.choose_notify, kind))
    yield from _of_rows(_LAST, screen)


def _of_rows(rows: Sequence[Row], screen: Screen[Any]) -> Iterator[SystemCommand]:
    """The commands that work on this screen now; a key that the screen takes is not named for the app's command."""
    here = [row for row in rows if _is_possible(row[-1], screen)]
    own_keys = {key for _, _, key, action in here if not action.startswith(_APP)}
    for title, what, key, action in here:
        words = what if action.startswith(_APP) and key in own_keys else f"{key}   {what}"
        yield SystemCommand(title, words, partial(screen.run_action, action))


def _is_possible(action: str, screen: Screen[Any]) -> bool:
    """Whether the screen has the action, or the app allows it; without a past there is no report to write."""
    name = action.partition("(")[0]
    if not action.startswith(_APP):
        return hasattr(screen, f"action_{name}")
    name = name.removeprefix(_APP)
    return screen.app.check_action("travel" if name == "write" else name, ()) is not False
