"""The commands of the palette (ctrl+p): ours and nothing else, with their keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from textual.app import SystemCommand
from textual.screen import Screen

from ddpmon.tui.choices import NOTIFY, THEMES, Notify, ThemeName
from ddpmon.tui.preferences import UserCommand
from ddpmon.tui.screens.base import BaseScreen

if TYPE_CHECKING:
    from ddpmon.tui.habits import Habits

_EVERYWHERE = (
    ("Overview", "verdict, rank table, heat-map, plots", "1", "overview"),
    ("Timeline", "steps, all-reduce, loss and events over time", "2", "timeline"),
    ("Hosts", "hosts, their GPUs and who is on them", "3", "hosts"),
    ("The run", "configuration, versions, hours used and lost", "4", "run"),
    ("Findings", "every finding with evidence and advice", "5", "findings"),
    ("Freeze or resume the display", "in a recording: play or pause", "space", "freeze"),
    ("Mark the rank", "again takes the mark away", "m", "mark"),
    ("Compare the marked ranks", "two to four side by side", "c", "compare"),
    ("Copy the finding as text", "that of the rank or host under the cursor, or the headline", "y", "copy(False)"),
    ("Copy the finding as JSON", "that of the rank or host under the cursor, or the headline", "Y", "copy(True)"),
    ("Write a report", "one HTML page in the current folder", "w", "write"),
    ("Export the view", "SVG, text, its table as CSV, or JSON in the current folder", "ctrl+s", "write_view"),
    ("Read more often", "the interval: down to 0.25 s", "+", "rate(-1)"),
    ("Read less often", "the interval: up to 10 s", "-", "rate(1)"),
    ("Go to a step or a time", "1200, 03:12, or 2 min ago; over what was seen", "t", "go_to"),
    ("Back by a minute", "over what was seen", "{", "travel('seconds', -60)"),
    ("Forward by a minute", "over what was seen", "}", "travel('seconds', 60)"),
    ("To the beginning of what was seen", "the first moment on record", "home", "travel_to('start')"),
    ("To the end", "back to the live run", "end", "travel_to('end')"),
    ("Help", "how to read this view, and its keys", "?", "help"),
    ("Quit", "leaves one line with the last state", "q", "quit"),
)
_HERE = (
    ("Filter", "only ranks, hosts and findings that fit, such as late>10", "/", "filter"),
    ("Sort by the next column", "the table of ranks or hosts", ".", "sort(1)"),
    ("Sort by the column before", "the table of ranks or hosts", ",", "sort(-1)"),
    ("Sort: the worst first", "the usual order", "0", "sort_by('worst')"),
    ("Zoom in", "half of the steps in all plots, around the moment shown", "z", "zoom(1)"),
    ("Zoom out", "twice as many steps in all plots, up to all on record", "Z", "zoom(-1)"),
    ("The next metric", "of the heat-map, of the GPUs, of the plot", "v", "metric"),
    ("The next panel alone", "and after the last one all of them", "f", "maximise"),
    ("The host", "of the rank or of the finding", "h", "host"),
    ("Write the finding", "as text or JSON in the current folder", "w", "write_finding"),
    ("Reverse the order", "the table of ranks or hosts", "r", "reverse"),
)

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


def commands(screen: Screen[Any], own: tuple[UserCommand, ...], habits: Habits) -> Iterator[SystemCommand]:
    """What can be done now on this screen.

    Args:
        screen: the one under the palette.
        own: the user's commands.
        habits: knows what a new critical finding does.
    """
    app = screen.app
    here = [row for row in _HERE if hasattr(screen, f"action_{row[-1].partition('(')[0]}")]
    has_past = app.check_action("travel", ()) is not False
    own_keys = {key for _, _, key, _ in here}  # the screen takes these before the app does
    for title, what, key, action in here:
        yield SystemCommand(title, f"{key}   {what}", partial(screen.run_action, action))
    for name, words in screen.metrics if isinstance(screen, BaseScreen) else ():
        yield SystemCommand(words, "v   goes through all of them", partial(screen.run_action, f"show_metric('{name}')"))
    for letter, name, words in screen.sorts if isinstance(screen, BaseScreen) else ():
        yield SystemCommand(f"Sort by {words}", letter, partial(screen.run_action, f"sort_by('{name}')"))
    for title, what, key, action in _EVERYWHERE:
        if not has_past and action == "write":  # it then exports the view, as ctrl+s does
            continue
        if app.check_action(action.partition("(")[0], ()) is not False:
            words = what if key in own_keys else f"{key}   {what}"
            yield SystemCommand(title, words, partial(screen.run_action, f"app.{action}"))
    for theme in THEMES:
        choose = partial(screen.run_action, f"app.choose_theme('{theme}')")
        yield SystemCommand(f"Theme: {theme}", _THEMES[theme], choose)
    for kind in NOTIFY:
        now = "set now: " if kind == habits.notify else ""
        yield SystemCommand(f"Notifications: {kind}", now + _NOTIFIED[kind], partial(habits.choose_notify, kind))
    for place, command in enumerate(own):
        run = partial(screen.run_action, f"app.user_command({place})")
        yield SystemCommand(command.name, f"{command.key}   your own", run)
