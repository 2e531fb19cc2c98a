"""`ddpmon run --record`: a process beside the command that records its run, and ends with it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import psutil

from ddpmon.commands.console import complain
from ddpmon.commands.family import announced_by
from ddpmon.store.discovery import Announcement

if TYPE_CHECKING:
    from ddpmon.recording.recorder import Recorder

_EVERY_S = 1.0
_READY = "ready"


def start_recorder(path: Path) -> str | None:
    """Start a process that records the run of this process, which then becomes the command.

    The process is no child of the command, which may wait for all of its children. Call this while there is one thread.

    Returns:
        None once the file has been made; else what prevents it, in a sentence.
    """
    command, (reading, writing) = os.getpid(), os.pipe()
    between = os.fork()
    if between == 0:
        os.setsid()  # Ctrl-C is for the command
        if os.fork() == 0:
            os.close(reading)
            _beside(command, path, writing)
        os._exit(0)
    os.close(writing)
    os.waitpid(between, 0)
    with os.fdopen(reading, encoding="utf-8") as said:
        answer = said.read()
    return None if answer == _READY else answer or f"{path} cannot be recorded to: the recorder ended at once"


def _beside(command: int, path: Path, writing: int) -> NoReturn:
    """The life of the recorder's process; it prints only what it complains of."""
    code = 1
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        if (recorder := _made(path, writing)) is not None:
            code = _record(command, recorder, path)
    finally:
        sys.stderr.flush()
        os._exit(code)


def _made(path: Path, writing: int) -> Recorder | None:
    """The recorder of a new file; None with the reason sent to the command, which waits for either."""
    from ddpmon.recording.layout import RecordingError
    from ddpmon.recording.recorder import Recorder

    with os.fdopen(writing, "w", encoding="utf-8") as said:
        try:
            recorder = Recorder(path)
        except RecordingError as error:
            said.write(str(error))
            return None
        said.write(_READY)
        return recorder


def _record(command: int, recorder: Recorder, path: Path) -> int:
    from ddpmon.commands.record import account, follow
    from ddpmon.watcher.observer import Observer

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    run = _announced(command, stop)
    if run is None:
        recorder.close()
        path.unlink(missing_ok=True)
        complain("nothing was recorded: the command ended before it announced a run on this host")
        return 0
    observer = Observer(f"{run.url}/{run.run_id}", None, recorder)
    try:
        snapshot = follow(observer, recorder, stop)
    finally:
        observer.close()
        recorder.close()
    return account(path, recorder, snapshot)


def _lives(pid: int) -> bool:
    """Whether a process is still there; one that has ended and is not yet waited for is not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _announced(command: int, stop: threading.Event) -> Announcement | None:
    """The command's run; None if the command ends before, or this process is told to end."""
    while _lives(command):
        if (run := announced_by(command)) is not None:
            return run
        if stop.wait(_EVERY_S):
            return None
    return announced_by(command)
