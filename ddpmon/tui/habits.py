"""What hands expect of a terminal program: copy, write a file, tell of something new, run a command of their own."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from textual.notifications import SeverityLevel

from ddpmon.format import json_line, plural
from ddpmon.report.finding_rows import what, who
from ddpmon.report.finding_text import finding_text
from ddpmon.report.new_file import stem_of, write_new
from ddpmon.report.status_json import finding_of_run, status_object
from ddpmon.report.verdicts import firing, identity, same_among
from ddpmon.snapshot import Finding, Snapshot
from ddpmon.tui.choices import VIEWS, Notify, ThemeName
from ddpmon.tui.lines import wrap
from ddpmon.tui.osc import clipboard, in_tmux, notification
from ddpmon.tui.preferences import Session, UserCommand
from ddpmon.tui.screens.base import BaseScreen
from ddpmon.tui.screens.findings_screen import FindingsScreen
from ddpmon.tui.screens.output_screen import OutputScreen
from ddpmon.tui.screens.overview import Overview
from ddpmon.tui.screens.write_as import WriteAs
from ddpmon.tui.user_commands import UnknownPlaceError, filled
from ddpmon.tui.view_files import (
    FINDING_FORMS,
    REPORT,
    REPORT_FORMS,
    finding_file,
    snapshot_json,
    view_forms,
    view_text,
)

if TYPE_CHECKING:
    from ddpmon.tui.app import WatchApp
    from ddpmon.tui.widgets.virtual_table import HostTable

_SAID_S, _COPIED_S = 6.0, 3.0
_MISTAKE_S, _FURTHER_S = 15.0, 5.0  # so long a mistake in the settings file is said, and longer for each further one
_TOAST_CELLS, _TOAST_FRAME = 76, 4  # its width, at most that of the screen (app.tcss)
_TOAST_ROWS = 8  # of the screen that a toast leaves: its own margins, the first lines, and the last ones
# No terminal says whether it has taken what was copied.
_IN_TERMINAL = "If pasting brings something else, the terminal does not allow OSC 52"
_IN_TMUX = "If pasting brings something else: `set -g set-clipboard on` in tmux, and OSC 52 in the terminal."


class Habits:
    """Works for one app, in its thread.

    Args:
        app: the dashboard.
        notify: what a new critical finding does at first.
        remembered: where a dashboard on the run of this id stood when it was left.

    Attributes:
        notify: what it does now, which the reader may change.
        theme: the one that was chosen in the palette; None where none was.
    """

    def __init__(self, app: WatchApp, notify: Notify, remembered: Callable[[str], Session | None]) -> None:
        self._app, self.notify, self._remembered = app, notify, remembered
        self.theme: ThemeName | None = None
        self._left: Session | None = None  # where the last dashboard on this run was left, once it is known
        self._begun = Session()  # where this one begins: there, or where the preferences say
        self._hosts: HostTable | None = None
        self._has_hinted = False  # what to do where the terminal does not take what is copied
        self._critical: set[tuple[object, ...]] | None = None  # lasting ones; None before the first picture

    def say(self, text: str) -> None:
        """A toast; the text may be foreign."""
        self._toast(self._rows(text), _SAID_S)

    def _toast(self, rows: Sequence[str], timeout: float, severity: SeverityLevel = "information") -> None:
        self._app.notify("\n".join(rows), severity=severity, timeout=timeout, markup=False)

    def _rows(self, text: str) -> list[str]:
        """All of a text in rows of a toast; a command between backquotes stands whole in one."""
        return wrap(self._app.picture.look.clean(text), min(_TOAST_CELLS, self._app.size.width) - _TOAST_FRAME)

    def tell_mistakes(self, mistakes: Sequence[str]) -> None:
        """Say in one toast what is wrong in the settings file: as many mistakes as fit, and how many more there are."""
        room, rows, said = self._app.size.height - _TOAST_ROWS, list[str](), 0
        for mistake in map(self._rows, mistakes):
            if rows and len(rows) + len(mistake) + (said + 1 < len(mistakes)) > room:
                rows += self._rows(f"{plural(len(mistakes) - said, 'more mistake')}: the terminal says all after q")
                break
            rows, said = [*rows, *mistake], said + 1
        if rows:
            self._toast(rows, _MISTAKE_S + _FURTHER_S * (said - 1), "warning")

    def copy(self, *, as_json: bool) -> None:
        """Put a finding into the clipboard of the terminal: `finding` of the screen; without one the verdict.

        The first time it says what to do where the terminal does not take it: a longer toast hides more of the view.
        """
        screen, snapshot = self._app.screen, self._app.picture.snapshot
        finding = screen.finding if isinstance(screen, BaseScreen) else None
        if as_json:
            exact = self._app.shown
            whole = status_object(exact) if finding is None else finding_of_run(exact, self._exact(finding))
            text = json_line(whole)
        else:
            text = finding_text(snapshot, finding)
        self._write(clipboard(text, os.environ))
        subject = "the verdict" if finding is None else f"{who(finding)}, {what(finding)}"
        if isinstance(screen, BaseScreen) and finding is not None and screen.finding_here is None:
            lacks = f", because {screen.subject} has no finding" if screen.subject else ""
            subject = f"the headline{lacks}: {subject}"
        form = f"{'JSON' if as_json else 'text'} ({len(text):,} characters)"
        hint = "" if self._has_hinted else f". {self._if_refused(finding)}"
        self._has_hinted = True
        self._toast(self._rows(f"copied: {subject}, as {form}{hint}"), _COPIED_S)

    def _if_refused(self, finding: Finding | None) -> str:
        """What to do where the terminal has not taken what was copied: only in the findings `w` writes a finding."""
        if in_tmux(os.environ):
            return _IN_TMUX
        if finding is None:
            return f"{_IN_TERMINAL}."
        in_findings = isinstance(self._app.screen, FindingsScreen)
        return f"{_IN_TERMINAL}: {'w' if in_findings else '5, then w,'} writes a finding to a file."

    def ask_what_to_write(self) -> None:
        """Ask for a form, and write the view in it."""
        screen = self._app.screen
        if self._app.picture.snapshot.run is not None and isinstance(screen, BaseScreen):
            self._app.push_screen(WriteAs("view", view_forms(screen.exported)), self._write_once_closed)

    def ask_how_to_write(self, finding: Finding) -> None:
        """Ask for a form, and write this finding in it; with a past also offer a report of the run."""
        has_past = bool(self._app.check_action("travel", ()))
        forms = {**FINDING_FORMS, **REPORT_FORMS} if has_past else FINDING_FORMS
        self._app.push_screen(WriteAs("finding", forms), lambda form: self._write_finding(form, finding))

    def _write_finding(self, form: str | None, finding: Finding) -> None:
        if form == REPORT:
            self._app.action_write()
        elif form is not None:
            text = finding_file(self._app.shown, self._exact(finding), form)
            self._write_file(f"finding-{finding.kind.replace('_', '-')}", form, text)

    def _exact(self, finding: Finding) -> Finding:
        """A finding that is drawn, with the figures of the last reading."""
        return same_among(self._app.shown.findings, finding)

    def _write_once_closed(self, form: str | None) -> None:
        """The line that asked for the form shall not be in the picture."""
        if form is not None:
            self._app.call_after_refresh(self._write_without_toasts, form)

    async def _write_without_toasts(self, form: str) -> None:
        """Write once no toast covers the view; what was said before makes room for the place of the file."""
        self._app.clear_notifications()
        await self._app.screen.query("Toast").remove()
        self._app.call_after_refresh(self._write_view, form)

    def _write_view(self, form: str) -> None:
        screen = self._app.screen
        if isinstance(screen, BaseScreen):
            self._write_file(screen.exported if form == "csv" else screen.view, form, self._written(form, screen))

    def _write_file(self, what: str, form: str, text: str) -> None:
        """Write a new file that is named after what it holds and the run, and say where it is."""
        run = self._app.picture.snapshot.run
        if run is None:
            return
        try:
            path = write_new(stem_of(what, run), f".{form}", text)
        except OSError as error:
            self.say(f"nothing was written: {error}")
        else:
            self.say(f"written: {path}")

    def _written(self, form: str, screen: BaseScreen) -> str:
        if form == "svg":
            return self._app.export_screenshot(title=f"ddpmon {screen.view}")
        if form == "txt":
            return view_text(screen)
        if form == "json":
            return snapshot_json(self._app.shown)
        return screen.csv()

    def look_for_news(self, snapshot: Snapshot) -> None:
        """Ring, or notify, if critical findings have come since the picture before; the first picture has no news.

        A critical finding that is a warning for a while and critical again is no news.
        """
        replay = snapshot.replay
        if snapshot.run is None or (replay is not None and not replay.is_live):
            return
        lasting = {identity(each): each for each in firing(snapshot.findings_now if replay else snapshot.findings)}
        critical = {key for key, each in lasting.items() if each.severity == "critical"}
        known, self._critical = self._critical, critical | ((self._critical or set()) & lasting.keys())
        new = [] if known is None else [each for key, each in lasting.items() if key in critical - known]
        if new and self.notify == "bell":
            self._write("\a")
        elif new and self.notify == "desktop":
            several = f"{len(new)} new critical findings: " if len(new) > 1 else ""
            self._write(notification(f"{snapshot.run.name}: {several}{new[0].summary}", os.environ))

    def choose_notify(self, kind: Notify) -> None:
        """From now on a new critical finding does this."""
        self.notify = kind
        self.say(f"notifications: {kind}")

    def run(self, command: UserCommand) -> None:
        """Run a command of the user's own on the chosen rank, and show what it prints."""
        ranks, screen = self._app.picture.snapshot.ranks, self._app.screen
        here = self._app.links.rank_here
        rank = self._overview.table.rank if here is None else here
        if ranks is None or rank is None or not 0 <= rank < len(ranks) or not isinstance(screen, BaseScreen):
            self.say(f"{command.name}: no rank is chosen")
            return
        try:
            argv = filled(command, ranks, rank)
        except UnknownPlaceError as error:
            self.say(str(error))
        else:
            self._app.push_screen(OutputScreen(f"{command.name}, rank {rank}", argv))

    def begin(self) -> None:
        """With the first picture of a run, go where the user asks for, or where the last dashboard on it was left."""
        app, run, chosen = self._app, self._app.latest_run, self._app.preferences
        if self._left is not None or run is None:
            return
        self._left = left = self._remembered(run.id) or Session()
        self._begun = begun = replace(
            left,
            view=chosen.view or left.view,
            sort=chosen.sort or left.sort,
            reverse=left.reverse and chosen.sort is None,
            filter=left.filter if chosen.filter is None else chosen.filter,
        )
        self._overview.table.rearrange(sort=begun.sort, reverse=begun.reverse)
        self._arrange_hosts()
        app.choose_metric([left.heat])
        if left.theme is not None and chosen.theme is None:
            app.action_choose_theme(left.theme)
        app.filter_by(begun.filter)
        if begun.view != VIEWS[0] and len(app.screen_stack) == 1:
            app.call_later(app.action_open_view, begun.view)

    def take_hosts(self, table: HostTable) -> None:
        """Arrange the table of hosts as it was left, and note how it is left now."""
        self._hosts = table
        self._arrange_hosts()

    def _arrange_hosts(self) -> None:
        """Once the table is there, and it is known how it was left."""
        if self._hosts is not None and self._left is not None:
            self._hosts.metric = self._left.hosts_metric
            self._hosts.rearrange(sort=self._left.hosts_sort, reverse=self._left.hosts_reverse)

    def session(self) -> Session | None:
        """Where the dashboard was left: as before but for what was changed; None before the first picture of a run."""
        return None if self._left is None else _with_changes(self._left, self._begun, self._standing())

    def _standing(self) -> Session:
        """Where the dashboard stands now."""
        open_views = {screen.view for screen in self._app.screen_stack if isinstance(screen, BaseScreen)}
        view = next((name for name in VIEWS[1:] if name in open_views), VIEWS[0])
        table, hosts = self._overview.table.view, self._hosts
        now = replace(
            self._begun,
            view=view,
            sort=table.sort,
            reverse=table.reverse,
            filter=self._app.picture.wanted,
            heat=self._app.heat_metric,
            theme=self.theme or self._begun.theme,
        )
        if hosts is None:  # never opened
            return now
        return replace(now, hosts_metric=hosts.metric, hosts_sort=hosts.view.sort, hosts_reverse=hosts.view.reverse)

    @property
    def _overview(self) -> Overview:
        overview = self._app.screen_stack[0]
        assert isinstance(overview, Overview)
        return overview

    def _write(self, sequence: str) -> None:
        """Say something to the terminal besides the picture."""
        if self._app._driver is not None:  # as Textual's own copy_to_clipboard does
            self._app._driver.write(sequence)
            self._app._driver.flush()


def _with_changes(left: Session, begun: Session, now: Session) -> Session:
    """`left` with what differs between the beginning and now: what only a preference has chosen is not kept."""
    names = {each.name for each in fields(Session) if getattr(now, each.name) != getattr(begun, each.name)}
    names |= {"sort", "reverse"} if names & {"sort", "reverse"} else set()  # they belong together
    return replace(left, **{name: getattr(now, name) for name in names})
