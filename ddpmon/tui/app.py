"""The dashboard: it asks the reader for pictures, keeps the latest, and shows one on whichever screen is open."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from textual.app import SystemCommand
from textual.binding import Binding, BindingType
from textual.filter import LineFilter
from textual.screen import Screen
from textual.theme import Theme
from textual.timer import Timer

from ddpmon.recording.travel import Move, Request, Travel
from ddpmon.report.frozen import as_of
from ddpmon.report.summary_line import summary_line
from ddpmon.snapshot import Metric, RunView, Snapshot
from ddpmon.tui.ascii_only import AsciiOnly
from ddpmon.tui.choices import ThemeName, ViewName
from ddpmon.tui.habits import Habits
from ddpmon.tui.key_order import OrderedKeys
from ddpmon.tui.links import Links
from ddpmon.tui.messages import Arrived, ReaderFailed
from ddpmon.tui.palette import Palette, commands
from ddpmon.tui.picture_reader import Reader, Source, tells_the_same
from ddpmon.tui.preferences import Preferences, Session
from ddpmon.tui.screens.base import BaseScreen
from ddpmon.tui.screens.findings_screen import FindingsScreen
from ddpmon.tui.screens.go_to import GoTo
from ddpmon.tui.screens.help_screen import HelpScreen
from ddpmon.tui.screens.host_screens import HostsScreen
from ddpmon.tui.screens.overview import Overview
from ddpmon.tui.screens.rank_screen import RankScreen
from ddpmon.tui.screens.run_screen import RunScreen
from ddpmon.tui.screens.timeline_screen import TimelineScreen
from ddpmon.tui.steady import steady
from ddpmon.tui.terminal import SteadyDriver, TerminalBackground, has_few_colours, is_remote, own_terminal
from ddpmon.tui.theme import DARK_THEME, LIGHT_THEME, THEMES, Look, make_look
from ddpmon.tui.view_state import LONG_MOVE_S, NOTHING_YET, ViewState, furthest, silence_s
from ddpmon.tui.widgets.virtual_table import RankTable

INTERVALS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0)
CRASHED = 1


class WatchApp(OrderedKeys):
    """Watches one run through a source until the reader quits.

    Args:
        source: where pictures come from; used by one thread of ours.
        preferences: how it begins.
        remembered: where a dashboard on the run of this id stood when it was left, None if none did.

    Attributes:
        session: where this one stood when it was left; None until then.
        shown: what is drawn, with exact figures.
    """

    TITLE = "ddpmon"
    CSS_PATH = "app.tcss"
    ALLOW_SELECT = False
    COMMANDS = {Palette}  # noqa: RUF012 (Textual's own type)
    SCREENS: ClassVar[dict[str, Callable[[], Screen[Any]]]] = {  # a view stays as it is while another one is open
        "timeline": TimelineScreen,
        "hosts": HostsScreen,
        "run": RunScreen,
        "findings": FindingsScreen,
    }
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c,ctrl+q", "quit", "Quit", show=False),
        Binding("question_mark", "help", "Help", show=False),
        Binding("space", "freeze", "Freeze the display", show=False),
        Binding("1", "overview", "Overview", show=False),
        Binding("2", "open_view('timeline')", "Timeline", show=False),
        Binding("3", "open_view('hosts')", "Hosts", show=False),
        Binding("4", "open_view('run')", "The run", show=False),
        Binding("m", "mark", "Mark the rank", show=False),
        Binding("c", "compare", "Compare marked ranks", show=False),
        Binding("5", "open_view('findings')", "Findings", show=False),
        Binding("plus,equals_sign", "rate(-1)", "Read more often", show=False),
        Binding("minus", "rate(1)", "Read less often", show=False),
        Binding("left_square_bracket", "travel('step', -1)", "Back by a step", show=False),
        Binding("right_square_bracket", "travel('step', 1)", "Forward by a step", show=False),
        Binding("left_curly_bracket", "travel('seconds', -60)", "Back by a minute", show=False),
        Binding("right_curly_bracket", "travel('seconds', 60)", "Forward by a minute", show=False),
        Binding("n", "travel('finding', 1)", "To the next finding", show=False),
        Binding("N", "travel('finding', -1)", "To the finding before", show=False),
        Binding("w", "write", "Write a report on what is shown", show=False),
        Binding("ctrl+s", "write_view", "Write the view: SVG, text, CSV, JSON", show=False),
        Binding("y", "copy(False)", "Copy the finding as text", show=False),
        Binding("Y", "copy(True)", "Copy the finding as JSON", show=False),
        Binding("t", "go_to", "Go to a step or a time of day", show=False),
        Binding("end", "travel_to('end')", "To the end, live", show=False, priority=True),
        Binding("home", "travel_to('start')", "To the beginning", show=False, priority=True),
    ]

    def __init__(
        self,
        source: Source,
        preferences: Preferences = Preferences(),  # noqa: B008 (it is frozen)
        remembered: Callable[[str], Session | None] = lambda _run_id: None,
    ) -> None:
        plain = "NO_COLOR" in os.environ
        terminal = None if "TEXTUAL_DRIVER" in os.environ else SteadyDriver  # which names another one, as for a browser
        super().__init__(driver_class=terminal, ansi_color=True if plain else None)
        self._source = source
        self._reader = Reader(source, self._deliver, self._fail)
        self.preferences, self._colour = preferences, not plain
        self._ascii = [AsciiOnly()] if preferences.glyphs == "ascii" else []
        self.habits = Habits(self, preferences.notifications, remembered)
        self.session: Session | None = None
        self._theme_name, self._is_light = preferences.theme or "auto", False
        self._latest = self.shown = replace(NOTHING_YET, taken_monotonic=time.monotonic())
        self._whole: Snapshot | None = None
        self.links = Links(self)
        self._interval = min(max(preferences.interval, INTERVALS[0]), INTERVALS[-1])
        self._frozen_at: float | None = None
        self._wanted = preferences.filter or ""
        self._travel: Travel | None = getattr(source, "travel", None)
        self._beat: Timer | None = None
        self._look: Look = self._make_look(DARK_THEME.name)
        self.picture = ViewState(self.shown, self._look, interval=self._interval)

    def run(self, **options: Any) -> None:
        """Run with the terminal to ourselves: what native code writes to stderr does not reach the screen."""
        with own_terminal() as stage:
            super().run(**{"mouse": self.preferences.mouse, **options})
            stage.replay = self.return_code == CRASHED

    @property
    def latest_run(self) -> RunView | None:
        """The run that was read last."""
        return self._latest.run

    def summary(self) -> str:
        """One line on what was seen last."""
        return summary_line(self._latest)

    def get_default_screen(self) -> Overview:
        """The overview is what everything goes back to."""
        return Overview()

    def on_mount(self) -> None:
        """Start reading; restore the terminal when told to end."""
        for theme in THEMES.values():
            self.register_theme(theme)
        self.theme = THEMES.get(self._theme_name, DARK_THEME).name
        self.theme_changed_signal.subscribe(self, self._restyle)
        self._restyle(THEMES.get(self._theme_name, DARK_THEME))
        for place, command in enumerate(self.preferences.commands):
            self.bind(command.key, f"user_command({place})", description=command.name, show=False)
        if is_remote(os.environ):
            self.animation_level = "none"
        for number in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, self._terminated, number)
        self.habits.tell_mistakes(self.preferences.complaints)
        self._reader.start()
        self._keep_time()

    def on_unmount(self) -> None:
        """Let the reader go; it may be in the middle of a read and nobody waits for it."""
        self._reader.stop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().remove_signal_handler(number)

    def _terminated(self, number: int) -> None:
        self.exit(return_code=128 + number)

    def _keep_time(self) -> None:
        if self._beat is not None:
            self._beat.stop()
        self._beat = self.set_interval(self._interval, self._tick)
        self._reader.wake()

    def _tick(self) -> None:
        """Ask for the next picture; say so when one takes long; end when the terminal has."""
        if isinstance(self._driver, SteadyDriver) and not self._driver.alive:
            self._terminated(signal.SIGHUP)
        self._reader.wake()
        if self._frozen_at is not None or self._stuck() is not None or self._moving_s is not None:
            self.redraw()

    def _deliver(self, snapshot: Snapshot) -> None:
        self.post_message(Arrived(snapshot))

    def _fail(self, error: BaseException) -> None:
        self.post_message(ReaderFailed(error))

    def on_arrived(self, message: Arrived) -> None:
        """Keep the newest picture; show it unless the display is frozen: then only what it knows of that moment."""
        before, self._latest = self._latest, message.snapshot
        is_same = self.shown is before and tells_the_same(before, message.snapshot)
        self.shown = message.snapshot if self._frozen_at is None else as_of(self.shown, message.snapshot)
        if not is_same or self.picture.stuck_s is not None or self.picture.moving_s is not None:
            self.habits.look_for_news(message.snapshot)
            self.redraw()

    def on_reader_failed(self, message: ReaderFailed) -> None:
        """End with the traceback: without a reader there is nothing to show."""
        raise message.error

    def _stuck(self) -> float | None:
        """Seconds since the store last answered, when that is too long; on the way to another moment nobody asks."""
        return silence_s(self._latest, self._interval) if self._moving_s is None else None

    @property
    def _moving_s(self) -> float | None:
        """For how many seconds the reader has been on the way to another moment; None if it is not."""
        return None if self._travel is None else self._travel.moving_s

    def _tell_way(self) -> None:
        """Say that the reader is on the way, if that takes long."""
        if self._moving_s is not None:
            self.redraw()

    def redraw(self) -> None:
        """Draw what is shown now, as the reader wants it now."""
        frozen = None if self._frozen_at is None else time.monotonic() - self._frozen_at
        shown = steady(self.picture.snapshot, self.shown) if frozen is None else self.shown
        self._whole = furthest(self._whole, shown)
        shared = (self._interval, self._wanted, self._whole, self.links.marked, self.links.zoom, self._moving_s)
        self.picture = ViewState(shown, self._look, self._stuck(), frozen, *shared)
        views = (screen for screen in reversed(self.screen_stack) if isinstance(screen, BaseScreen))
        view = next(views, None) if self.is_running else None  # also below a line that is typed, and below the palette
        if view is not None and view.ready:
            with self.batch_update():
                view.show()

    def filter_by(self, wanted: str) -> None:
        """Show only the ranks, hosts and findings that this filter fits; it has to be one that is understood."""
        self._wanted = wanted
        self.redraw()

    def _restyle(self, theme: Theme) -> None:
        self._look = self._make_look(theme.name)
        self.redraw()

    def _make_look(self, theme: str) -> Look:
        few, kind = has_few_colours(self.console), self.preferences.glyphs
        return make_look(colour=self._colour, few=few, ascii_only=kind == "ascii", theme=theme, braille=kind == "full")

    @property
    def asks_background(self) -> bool:
        """Whether the theme is to follow the terminal's background."""
        return self._theme_name == "auto" and self._colour

    def on_terminal_background(self, message: TerminalBackground) -> None:
        """Be light in a light terminal, until the user chooses otherwise."""
        self._is_light = message.dark is False
        if self.asks_background:
            self.theme = (LIGHT_THEME if self._is_light else DARK_THEME).name

    def action_choose_theme(self, name: ThemeName) -> None:
        """Take a theme; "auto" is the one that fits the terminal, as far as it has told."""
        self._theme_name = self.habits.theme = name
        self.theme = THEMES.get(self._theme_name, LIGHT_THEME if self._is_light else DARK_THEME).name

    def exit(self, *args: Any, **options: Any) -> None:
        """Note where the dashboard is left, and end."""
        self.session = self.habits.session()
        super().exit(*args, **options)

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Our own commands, and none of Textual's."""
        return commands(screen, self.preferences.commands, self.habits)

    def action_copy(self, as_json: bool) -> None:
        """Copy the chosen finding, or the headline."""
        self.habits.copy(as_json=as_json)

    def action_write_view(self) -> None:
        """Ask for a form, and write the view in it."""
        self.habits.ask_what_to_write()

    def action_user_command(self, place: int) -> None:
        """Run a command of the user's own on the chosen rank."""
        self.habits.run(self.preferences.commands[place])

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 (Textual's)
        """Without a past, and while a run is live, `home` and `end` are the table's."""
        if action in ("travel", "go_to", "travel_to") and self._travel is None:
            return False
        return (
            action != "travel_to"
            or self.shown.replay is not None
            or (self._travel is not None and self._travel.is_under_way)
        )

    @property
    def heat_metric(self) -> Metric:
        """What the heat-map shows."""
        return self._source.metric

    def choose_metric(self, names: Sequence[Metric]) -> None:
        """Show the metric that follows the present one in the heat-map."""
        place = names.index(self._source.metric) if self._source.metric in names else -1
        self._source.metric = names[(place + 1) % len(names)]
        self._reader.refocus()

    def action_travel(self, move: Move, amount: float = 0.0) -> None:
        """Go from the moment that is shown to another one of what was recorded, or change how that is played."""
        if self._travel is not None:
            if self._frozen_at is not None and self.shown.run is not None:  # the look shown is just before its picture
                self._travel.ask(Request("to_wall", self.shown.taken_at - self._interval / 2))
            self._frozen_at = None
            self._travel.ask(Request(move, amount))
            self._reader.refocus()
            self.set_timer(LONG_MOVE_S, self._tell_way)

    def action_write(self) -> None:
        """Write a report on what is shown, as a page in the current folder; without a past, the view."""
        if self._travel is None:
            self.habits.ask_what_to_write()
        else:
            self._travel.ask(Request("write", shown=None if self._frozen_at is None else self.shown))
            self._reader.refocus()

    def action_travel_to(self, end: Move) -> None:
        """Go to the beginning or to the end."""
        self.action_travel(end)

    def action_go_to(self) -> None:
        """Ask for a step or a time of day, and go there."""
        self.push_screen(GoTo(), lambda there: self.action_travel(there.move, there.amount) if there else None)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """In ASCII mode also what Textual draws by itself is ASCII."""
        return (*super().get_line_filters(), *self._ascii)

    def action_freeze(self) -> None:
        """Freeze the display, or let it go on with the latest picture; play a recording, or pause it."""
        if self.shown.replay is not None:
            self.action_travel("play")
            return
        self._frozen_at = time.monotonic() if self._frozen_at is None else None
        if self._frozen_at is None:
            self.shown = self._latest
        self.redraw()

    def action_rate(self, slower: int) -> None:
        """Read more or less often; play a recording faster or slower."""
        if self.shown.replay is not None:
            self.action_travel("speed", -slower)
            return
        nearest = min(range(len(INTERVALS)), key=lambda place: abs(INTERVALS[place] - self._interval))
        self._interval = INTERVALS[max(0, min(nearest + slower, len(INTERVALS) - 1))]
        self._keep_time()
        self.redraw()

    def action_help(self) -> None:
        """Open the help over whatever is open."""
        if isinstance(self.screen, BaseScreen) and not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen(self.screen.view))

    def action_overview(self) -> None:
        """Go back to the overview."""
        while len(self.screen_stack) > 1:
            self.pop_screen()

    def action_open_view(self, name: ViewName) -> None:
        """Open a view over the overview alone, as it was left: `esc` leads back there."""
        if len(self.screen_stack) != 2 or self.screen is not self.get_screen(name):
            self.action_overview()
            self.push_screen(name)

    def on_rank_table_opened(self, message: RankTable.Opened) -> None:
        """Open a rank in detail."""
        self.links.open_rank(message.rank)

    def action_mark(self) -> None:
        """Mark the rank under the cursor, or take its mark away."""
        self.links.mark()

    def action_compare(self) -> None:
        """Open the marked ranks side by side."""
        self.links.compare()

    def read_detail_of(self, rank: int | None) -> None:
        """From now on pictures carry the detail of this rank, or of none."""
        if self._source.focus != rank:
            self._source.focus = rank
            self._reader.refocus()

    def action_step_rank(self, rows: int) -> None:
        """Go to the next rank of the table's order without leaving the detail."""
        if isinstance(self.screen, RankScreen):
            rank = self.links.step_rank(rows)
            self.screen.rank = self.screen.rank if rank is None else rank
            self.read_detail_of(self.screen.rank)
            self.redraw()
