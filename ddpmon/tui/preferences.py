"""What a user has chosen for the dashboard, on the command line, in the environment or in the settings file."""

from __future__ import annotations

from dataclasses import dataclass

from ddpmon.snapshot import Metric
from ddpmon.tui.choices import GlyphSet, Notify, ThemeName, ViewName


@dataclass(frozen=True, slots=True)
class UserCommand:
    """A command of the user's own on a key.

    Attributes:
        key: Textual's name of the key, such as "f5" or "ctrl+t".
        name: what it is called in the palette and over its output.
        run: the program and its arguments, in which {rank}, {host}, {pid} and {gpu} stand for those of the chosen rank.
    """

    key: str
    name: str
    run: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Session:
    """Where a dashboard stood when it was left, to be restored for the same run.

    Attributes:
        view: the open one.
        sort, reverse, filter: of the overview.
        heat: the metric of the heat-map.
        hosts_metric, hosts_sort, hosts_reverse: of the table of hosts.
        theme: the one that was chosen in the palette; None where none was.
    """

    view: ViewName = "overview"
    sort: str = "worst"
    reverse: bool = False
    filter: str = ""
    heat: Metric = "lateness"
    hosts_metric: str = "util"
    hosts_sort: str = "worst"
    hosts_reverse: bool = False
    theme: ThemeName | None = None


@dataclass(frozen=True, slots=True)
class Preferences:
    """How the dashboard begins.

    Attributes:
        theme: "auto" asks the terminal for its background, and is dark until it answers; None is "auto" until a session
            is restored.
        glyphs: "blocks" is without braille, "ascii" with ASCII characters only.
        mouse: whether the mouse is the dashboard's; else the terminal selects text with it.
        view, sort, filter: where it begins; None where nothing is chosen, so that a session is restored.
        interval: seconds between two readings.
        notifications: what a new critical finding does besides being drawn.
        commands: the user's own.
        complaints: what is wrong in the settings file, one sentence each.
    """

    theme: ThemeName | None = None
    glyphs: GlyphSet = "full"
    mouse: bool = True
    view: ViewName | None = None
    sort: str | None = None
    filter: str | None = None
    interval: float = 1.0
    notifications: Notify = "off"
    commands: tuple[UserCommand, ...] = ()
    complaints: tuple[str, ...] = ()
