"""Plain words on a plain terminal: what a run calls itself is data, never an escape code; and how a command ends."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from collections.abc import Mapping
from types import FrameType
from typing import Any, NoReturn

# Exit codes: done; found what --fail-on asks for; wrong usage; no run can be read; the output cannot be written; a
# fault of ddpmon itself; and what a shell reports of a process that SIGINT or SIGPIPE has ended.
OK, FOUND, USAGE, NO_RUN, NOT_WRITTEN, BROKEN, INTERRUPTED, READER_GONE = 0, 1, 2, 3, 4, 70, 130, 141
NOT_EXECUTABLE, NOT_FOUND = 126, 127  # what a shell reports of a command that it cannot start
STDIN, STDOUT, STDERR = 0, 1, 2
# Of the garbage collector, in a process of our own. Neither imports nor thousands of frames a second make cycles: with
# the usual thresholds it took 8 % of the imports' CPU, and a quarter of that of a dashboard of 4,096 ranks.
GC_THRESHOLDS = 20_000, 10, 20


class _Stream(io.FileIO):
    """Standard output or error: after the first write that fails, the rest goes to /dev/null.

    A command without its output has failed: it ends with an exit code of its own. One without stderr goes on.
    """

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            if self.fileno() == STDOUT:
                _end_without_output(error)
            return len(data)


def _end_without_output(error: OSError) -> NoReturn:
    if error.errno == errno.EPIPE:
        raise SystemExit(READER_GONE) from None
    why = "it is closed" if error.errno == errno.EBADF else error.strerror
    complain(f"standard output cannot be written: {why}")
    raise SystemExit(NOT_WRITTEN) from None


def open_streams() -> None:
    """Let stdout and stderr say in one way that they cannot be written, and hold the number of one that is closed."""
    for number, name in ((STDOUT, "stdout"), (STDERR, "stderr")):
        stream = getattr(sys, name)
        if stream is None:  # else the next file or socket would be taken for it; a write here fails as on a closed one
            os.dup2(os.open(os.devnull, os.O_RDONLY), number)
        buffer = io.BufferedWriter(_Stream(number, "w", closefd=False))
        encoding = "utf-8" if stream is None else stream.encoding
        setattr(sys, name, io.TextIOWrapper(buffer, encoding, "replace", line_buffering=True))


def has_terminal(*numbers: int) -> bool:
    """Whether all of these standard streams are a terminal; one that is closed is none."""
    return all(os.isatty(number) for number in numbers)


def shows_dashboards(environ: Mapping[str, str]) -> bool:
    """Whether standard input and output are a terminal that can show the dashboard."""
    return has_terminal(STDIN, STDOUT) and environ.get("TERM") != "dumb"


def why_no_dashboard(environ: Mapping[str, str]) -> str:
    """Why this terminal cannot show the dashboard, and what can be used instead; empty if it can."""
    if shows_dashboards(environ):
        return ""
    if has_terminal(STDIN, STDOUT):
        return "this terminal cannot show the dashboard, because TERM is dumb; use `ddpmon status --watch`"
    return "the dashboard needs a terminal; without one, use `ddpmon status`"


def printable(text: str) -> str:
    """The text with everything unprintable (control characters, escape codes, direction marks) made visible."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def complain(message: str) -> None:
    """Say on stderr, line by line, what went wrong."""
    for line in message.splitlines():
        print(f"ddpmon: {printable(line)}", file=sys.stderr)


def close_on_signals() -> None:
    """Let SIGTERM and SIGHUP end the main thread as an exception does, so that tunnels and their folders are closed.

    A command that handles these signals itself replaces this. A signal that is ignored, as by nohup, stays ignored.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _unwind)


def _unwind(number: int, _frame: FrameType | None) -> NoReturn:
    signal.signal(number, signal.SIG_DFL)  # the second one ends the process at once
    raise SystemExit(-number)


def leave(code: int) -> NoReturn:
    """End the process at once: a thread may still hang in the store, and waiting for it would hang us too.

    Args:
        code: the exit code, or the negative number of the signal of which the process dies, as its parent expects.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)
