"""`ddpmon watch`: the dashboard."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddpmon.commands.console import GC_THRESHOLDS, NO_RUN, OK, STDOUT, USAGE, complain, has_terminal, why_no_dashboard
from ddpmon.commands.recordings import recording_at
from ddpmon.commands.target import Route, reached
from ddpmon.store.base import StoreUnavailable, TargetError

if TYPE_CHECKING:
    from ddpmon.recording.recorder import Recorder
    from ddpmon.recording.rewindable import Followed
    from ddpmon.tui.picture_reader import Source


_CLOSE_S = 2.0  # so long the end waits for the reader's thread, which may hang in the store
REPLAY_INTERVAL_S = 0.5  # between two pictures of a recording: as smooth as a slow terminal draws
MEMORY_BYTES, MEMORY_RANKS = 32 << 20, 1024  # what a live run can be rewound over without a file, and for which runs


def watch(
    target: str | None,
    chosen: Mapping[str, Any],
    ssh: str | None = None,
    slurm: str | None = None,
    record: str | None = None,
    k8s: str | None = None,
    job: str | None = None,
) -> int:
    """Show the run until the user quits, here, on an ssh host, of a job, or recorded; returns the exit code.

    `chosen` are settings by name, None where neither the command line nor the environment has one.
    """
    from ddpmon.recording.layout import RecordingError

    if (trouble := why_no_dashboard(os.environ)) and not in_browser(os.environ):
        complain(trouble)
        return USAGE
    try:
        path = recording_at(target) if ssh is slurm is k8s is job is None else None
        if path is not None:
            return _replay(path, chosen, record)
        with reached(target, ssh, slurm, k8s, job, waits=True) as route:
            return show(route, chosen, record)
    except (TargetError, RecordingError) as error:
        complain(str(error))
        return USAGE
    except StoreUnavailable as error:
        complain(str(error))
        return NO_RUN


def in_browser(environ: Mapping[str, str]) -> bool:
    """Whether `ddpmon serve` has started this process, to draw in a page."""
    return "web_driver" in environ.get("TEXTUAL_DRIVER", "")


def _replay(path: Path, chosen: Mapping[str, Any], record: str | None) -> int:
    """Open the dashboard on a recording."""
    from ddpmon.recording.travel import Replay

    if record is not None:
        raise TargetError(f"{str(path)!r} is a recording already: leave --record out")
    return show_source(Replay(path), {**chosen, "interval": REPLAY_INTERVAL_S})


def show(route: Route, chosen: Mapping[str, Any] | None = None, record: str | None = None) -> int:
    """Open the dashboard on a run and leave a summary behind when the user has quit; returns the exit code.

    It is 3 where no run was ever read, with the reason on stderr.

    Raises:
        TargetError: a TARGET that makes no sense.
        RecordingError: the file for the recording is there already, or cannot be made.
    """
    from ddpmon.watcher.observer import Observer

    return show_live(lambda recorder: Observer(route.target, route.way, recorder), chosen, record)


def show_live(
    follow: Callable[[Recorder], Followed], chosen: Mapping[str, Any] | None = None, record: str | None = None
) -> int:
    """`show` for what `follow` returns, which tells the recorder what it reads.

    What is seen is recorded, into memory or a file, so that the run can be rewound.
    """
    from ddpmon.recording.bounds import Bounds
    from ddpmon.recording.recorder import Recorder
    from ddpmon.recording.rewindable import Rewindable

    if record is None:
        recorder = Recorder(None, Bounds(bytes=MEMORY_BYTES, ranks=MEMORY_RANKS))
    else:
        recorder = Recorder(Path(record))
    source = Rewindable(follow(recorder), recorder)
    code = show_source(source, chosen)
    source.closed.wait(_CLOSE_S)
    return code


def _broken_at_words(text: str) -> str:
    """The text in lines that the terminal has room for; as it is where stdout is no terminal."""
    from ddpmon.tui.lines import wrap

    if not has_terminal(STDOUT):
        return text
    width = os.get_terminal_size(STDOUT).columns
    return "\n".join(wrap(text, width)) if width else text


def show_source(source: Source, chosen: Mapping[str, Any] | None = None) -> int:
    """The same with pictures from any source."""
    from ddpmon.commands.sessions import remember, remembered
    from ddpmon.commands.settings import preferences
    from ddpmon.tui.app import WatchApp

    # The app's reader thread closes the source once it can: waiting for that could outlast the user's patience.
    app = WatchApp(source, preferences(chosen), remembered)
    usual = gc.get_threshold()
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        app.run()
    finally:
        gc.set_threshold(*usual)
    for sentence in app.preferences.complaints:
        complain(sentence)
    if app.latest_run is not None and app.session is not None:
        remember(app.latest_run.id, app.session)
    if app.latest_run is None and not app.return_code:
        complain(app.summary())
        return NO_RUN
    print(_broken_at_words(app.summary()))
    return app.return_code or OK
