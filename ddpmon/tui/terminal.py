"""The terminal under the dashboard: where it draws, what must not reach it, and whether it is far away."""

from __future__ import annotations

import os
import selectors
import sys
import tempfile
import termios
from codecs import getincrementaldecoder
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import IO, Any

from rich.console import Console
from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver
from textual.events import MouseEvent
from textual.message import Message

from ddpmon.tui.osc import BACKGROUND_QUERY, Answers, can_be_asked, is_dark

REPLAYED_BYTES = 16_384
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_CHUNK = 4096
_TICK_S = 0.1  # between two looks at the parser's timeouts


class Screen:
    """A text stream on the terminal; that the terminal has vanished meanwhile is no error.

    An error here would kill Textual's writer thread, and the app would then wait for it without end.
    """

    def __init__(self, descriptor: int) -> None:
        self._stream = os.fdopen(descriptor, "w", encoding="utf-8", errors="replace")

    def write(self, text: str) -> None:
        """Write, if there still is a terminal."""
        with suppress(OSError):
            self._stream.write(text)

    def flush(self) -> None:
        """Flush, if there still is a terminal."""
        with suppress(OSError):
            self._stream.flush()

    def fileno(self) -> int:
        """The terminal's descriptor."""
        return self._stream.fileno()

    def close(self) -> None:
        """Close it."""
        with suppress(OSError):
            self._stream.close()


@dataclass
class Stage:
    """A terminal of our own while file descriptor 2 leads elsewhere.

    Attributes:
        screen: the stream to draw on, or None when no terminal was found.
        replay: give what was set aside to the real descriptor 2 once the screen is restored.
    """

    screen: Screen | None = None
    replay: bool = False


_stage = Stage()


def screen() -> Screen | None:
    """The stream that the driver draws on while `own_terminal` is open, else None."""
    return _stage.screen


@contextmanager
def own_terminal() -> Iterator[Stage]:
    """Draw on a descriptor of our own and lead descriptor 2 into a file.

    Native libraries write warnings straight to descriptor 2, and Textual draws on the very same one.
    """
    terminal = _terminal_descriptor()
    if terminal is None:
        yield _stage
        return
    saved = os.dup(2)
    with tempfile.TemporaryFile() as aside, closing(Screen(terminal)) as stream:
        sys.stderr.flush()
        os.dup2(aside.fileno(), 2)
        _stage.screen, _stage.replay = stream, False
        try:
            yield _stage
        finally:
            sys.stderr.flush()
            os.dup2(saved, 2)
            os.close(saved)
            _stage.screen = None
            if _stage.replay:
                _replay(aside)


def _terminal_descriptor() -> int | None:
    """A fresh descriptor of the terminal: that of stderr, stdout or stdin, whichever is one."""
    for number in (2, 1, 0):
        try:
            if os.isatty(number):
                return os.open(os.ttyname(number), os.O_WRONLY | os.O_NOCTTY)
        except OSError:  # a terminal that cannot be opened by name still is one
            return os.dup(number)
    return None


def _replay(aside: IO[bytes]) -> None:
    """Give the last of what was set aside to the real descriptor 2."""
    size = aside.seek(0, os.SEEK_END)
    aside.seek(max(size - REPLAYED_BYTES, 0))
    os.write(2, aside.read())


def has_few_colours(console: Console) -> bool:
    """Whether the terminal has 16 colours, as far as its environment tells, such as the console of Linux."""
    return console.color_system == "standard"


def is_remote(environ: Mapping[str, str]) -> bool:
    """Whether the terminal is at the far end of an SSH connection."""
    return bool(environ.get("SSH_CONNECTION") or environ.get("SSH_TTY"))


class TerminalBackground(Message):
    """The terminal has said which background it has; `dark` is None if it said it in another form."""

    def __init__(self, dark: bool | None) -> None:
        super().__init__()
        self.dark = dark


class SteadyDriver(LinuxDriver):
    """Draws on the terminal that `own_terminal` opened, and outlives input that is not UTF-8.

    After a reattach a terminal may report the mouse in the old X10 bytes, which are not UTF-8; Textual's input
    thread dies of them, and the app with it. So the thread is one of ours.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._file: Any = screen() or self._file

    def _get_terminal_size(self) -> tuple[int, int]:
        """The size of the terminal drawn on, whatever stdout is."""
        try:
            width, height = os.get_terminal_size(self._file.fileno())
            return (width or 80), (height or 24)
        except OSError:
            return super()._get_terminal_size()

    @property
    def alive(self) -> bool:
        """Whether the terminal that was there at the start still is."""
        if self.attrs_before is None:
            return True
        try:
            termios.tcgetattr(self.fileno)
        except termios.error:
            return False
        return True

    def start_application_mode(self) -> None:
        """Start, and ask the terminal for its background if the app wants to know; nobody waits for the answer."""
        super().start_application_mode()  # type: ignore[no-untyped-call]
        if getattr(self._app, "asks_background", False) and can_be_asked(os.environ):
            self.write(BACKGROUND_QUERY)
            self.flush()

    def run_input_thread(self) -> None:
        """Read input until the end; answers of the terminal are taken out of it, however late they come."""
        parser, answers = XTermParser(self._debug), Answers()
        decode = getincrementaldecoder("utf-8")("replace").decode
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                if selector.select(answers.wait_s or _TICK_S):
                    try:
                        data = os.read(self.fileno, _CHUNK)
                    except OSError:
                        data = b""
                    if not data:
                        break  # the terminal has gone
                    text = self._keys(answers, decode(data))
                else:
                    text = answers.release()
                for event in (*parser.feed(text), *parser.tick()) if text else parser.tick():
                    if self._mouse or not isinstance(event, MouseEvent):  # a terminal may send it unasked
                        self.process_message(event)

    def _keys(self, answers: Answers, text: str) -> str:
        """What of the input are keys and mouse; what else is in it is dealt with."""
        if REPLACEMENT in text:
            self._enable_mouse_support()  # asks for the mouse in UTF-8 safe reports again
        before = answers.background
        text = answers.take(text)
        if answers.background is not None and answers.background != before:
            self._app.post_message(TerminalBackground(is_dark(answers.background)))
        return text
