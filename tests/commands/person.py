"""A person at a terminal: a command that has a pty as its controlling terminal, where ssh asks for passwords."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
from collections.abc import Iterator, Mapping

from tests.commands.served_runs import ROOT

_ESCAPES = re.compile(r"\x1b(\[[0-9;?>=]*[a-zA-Z]|\][^\x07\x1b]*(\x07|\x1b\\))")


class Person:
    """Runs `ddpmon` with these words, reads what it writes, and types.

    Args:
        words: the command line behind `ddpmon`.
        environment: variables beside those of this process.
    """

    def __init__(self, *words: str, environment: Mapping[str, str] | None = None) -> None:
        self.written = ""
        variables = {**os.environ, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT), **(environment or {})}
        self.pid, self._screen = pty.fork()
        if self.pid == 0:
            os.chdir(ROOT)
            os.execvpe(sys.executable, [sys.executable, "-m", "ddpmon", *words], variables)
        fcntl.ioctl(self._screen, termios.TIOCSWINSZ, struct.pack("HHHH", 34, 160, 0, 0))

    def reads(self, *texts: str) -> str:
        """All that has been written, once one of these texts stands in what is new; the suite's timeout ends a wait."""
        begun = len(self.written)
        while not any(text in self.written[begun:] for text in texts):
            assert self._take(), f"ended without {texts}: {self.written[-2000:]}"
        return self.written

    def types(self, text: str) -> None:
        """Press keys."""
        os.write(self._screen, text.encode())

    def ends(self) -> int:
        """The exit code, once the command has ended."""
        while self._take():
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def leaves(self) -> None:
        """Close the terminal, whatever runs there."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        os.close(self._screen)

    def _take(self) -> bool:
        """Read what there is; False where nothing more will come."""
        if not select.select([self._screen], [], [], 1.0)[0]:
            return True
        try:
            piece = os.read(self._screen, 1 << 16)
        except OSError:  # the other end is closed
            return False
        self.written += _ESCAPES.sub("", piece.decode(errors="replace"))
        return bool(piece)


@contextlib.contextmanager
def person(*words: str, environment: Mapping[str, str] | None = None) -> Iterator[Person]:
    """A person who leaves at the end of the block."""
    there = Person(*words, environment=environment)
    try:
        yield there
    finally:
        there.leaves()
