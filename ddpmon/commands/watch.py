"""`ddpmon watch`: the dashboard."""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ddpmon.commands.console import GC_THRESHOLDS, NO_RUN, OK, STDIN, STDOUT, USAGE, complain, has_terminal
from ddpmon.commands.target import reached
from ddpmon.store.base import StoreUnavailable, TargetError

if TYPE_CHECKING:
    from ddpmon.tui.reader import Source


def watch(
    target: str | None, interval: float, ascii_only: bool, ssh: str | None = None, slurm: str | None = None
) -> int:
    """Show the run until the user quits, here, on an ssh host or of a Slurm job; returns the exit code."""
    if not (has_terminal(STDIN, STDOUT) or in_browser(os.environ)):
        complain("the dashboard needs a terminal; without one, use `ddpmon status`")
        return USAGE
    try:
        with reached(target, ssh, slurm) as address:
            return show(address, interval, ascii_only)
    except TargetError as error:
        complain(str(error))
        return USAGE
    except StoreUnavailable as error:
        complain(str(error))
        return NO_RUN


def in_browser(environ: Mapping[str, str]) -> bool:
    """Whether `ddpmon serve` has started this process, to draw in a page."""
    return "web_driver" in environ.get("TEXTUAL_DRIVER", "")


def show(target: str | None, interval: float = 1.0, ascii_only: bool = False) -> int:
    """Open the dashboard on a run and leave a summary behind when the user has quit; returns the exit code.

    It is 3 where no run was ever read, with the reason on stderr.

    Raises:
        TargetError: a TARGET that makes no sense.
    """
    from ddpmon.watcher.observer import Observer

    return show_source(Observer(target), interval, ascii_only)


def show_source(source: Source, interval: float = 1.0, ascii_only: bool = False) -> int:
    """The same with pictures from any source."""
    from ddpmon.tui.app import WatchApp

    # The app's reader thread closes the source once it can: waiting for that could outlast the user's patience.
    app = WatchApp(source, interval=interval, ascii_only=ascii_only)
    usual = gc.get_threshold()
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        app.run()
    finally:
        gc.set_threshold(*usual)
    if not (app.has_seen_a_run or app.return_code):
        complain(app.summary())
        return NO_RUN
    print(app.summary())
    return app.return_code or OK
