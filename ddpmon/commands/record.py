"""`ddpmon record`: writes a run into a file until the run is over, without a screen."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ddpmon.commands.console import NO_RUN, NOT_WRITTEN, OK, USAGE, complain, printable
from ddpmon.commands.recordings import SUFFIX, recording_at
from ddpmon.commands.run_end import RunEnd
from ddpmon.commands.target import Route, reached
from ddpmon.format import size
from ddpmon.report.summary_line import summary_line
from ddpmon.snapshot import Snapshot
from ddpmon.store.base import StoreUnavailable, TargetError

if TYPE_CHECKING:
    from ddpmon.recording.recorder import Recorder
    from ddpmon.watcher.observer import Observer

_EVERY_S = 1.0


def record(target: str | None, out: str | None, max_mb: int, ssh: str | None = None, slurm: str | None = None) -> int:
    """Record the run until it is over or the user ends it; returns the exit code.

    Without a run on this host it waits for one.
    """
    from ddpmon.recording.layout import RecordingError

    if ssh is None and slurm is None and recording_at(target) is not None:
        complain(f"{target!r} is a recording already; TARGET is a run")
        return USAGE
    try:
        with reached(target, ssh, slurm, waits=True) as route:
            return _record(route, Path(out or default_name()), max_mb)
    except (TargetError, RecordingError) as error:
        complain(str(error))
        return USAGE
    except StoreUnavailable as error:
        complain(str(error))
        return NO_RUN


def default_name() -> str:
    """What a recording that begins now is called."""
    return time.strftime(f"recording-%Y%m%d-%H%M%S{SUFFIX}")


def _record(route: Route, path: Path, max_mb: int) -> int:
    from ddpmon.recording.bounds import Bounds
    from ddpmon.recording.recorder import Recorder
    from ddpmon.watcher.observer import Observer

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    recorder = Recorder(path, Bounds(bytes=max_mb << 20))
    print(f"recording to {printable(str(path))}; Ctrl-C ends it", flush=True)
    observer = Observer(route.target, route.way, recorder)
    try:
        snapshot = follow(observer, recorder, stop)
    finally:
        observer.close()
        recorder.close()
    return account(path, recorder, snapshot)


def follow(observer: Observer, recorder: Recorder, stop: threading.Event) -> Snapshot:
    """Tick once a second until the run is over, or somebody ends it; the last picture."""
    began, said, end = time.monotonic(), "", RunEnd()
    while True:
        snapshot = observer.tick()
        if recorder.trouble and recorder.trouble != said:
            complain(f"the recording cannot be written: {recorder.trouble}; ddpmon keeps trying")
        said = recorder.trouble
        if end.is_reached(snapshot):
            return snapshot
        began = max(began + _EVERY_S, time.monotonic() - _EVERY_S)
        if stop.wait(max(0.0, began - time.monotonic())):
            return snapshot


def account(path: Path, recorder: Recorder, snapshot: Snapshot) -> int:
    """Say what was recorded; the exit code."""
    if not recorder.looks:
        complain(f"nothing was recorded: {snapshot.link.message or recorder.trouble or 'no run was seen'}")
        return NO_RUN
    print(f"recorded {summary_line(snapshot)}")
    name = printable(str(path))
    print(f"{name}: {recorder.looks:,} s, {size(path.stat().st_size)}; to look at it: ddpmon watch {name}")
    if recorder.missed:
        complain(f"{recorder.missed:,} ticks are missing: they could not be written")
        return NOT_WRITTEN
    return OK
