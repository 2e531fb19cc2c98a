"""The output of a command of the user's own."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import ClassVar

from rich.segment import Segment
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from ddpmon.tui.draw.header import header_line
from ddpmon.tui.draw.panel import Keys, title
from ddpmon.tui.lines import Line, wrap
from ddpmon.tui.screens.base import BaseScreen
from ddpmon.tui.widgets.canvas import Canvas, ScrollText

_MOST_BYTES = 256 << 10  # of the output; what comes after is not shown
_MOST_S = 60.0  # a command that takes longer is ended: it would go on unseen


class OutputScreen(BaseScreen):
    """Runs a command while it is open, and ends it when it is closed.

    Args:
        name: what the command is called.
        argv: the program and its arguments. It gets no input and no terminal.
    """

    view = "output"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "app.back", "Back", show=False)]

    def __init__(self, name: str, argv: Sequence[str]) -> None:
        super().__init__()
        self._called, self._argv = name, list(argv)
        self._output, self._state = "", "running"

    def compose(self) -> ComposeResult:
        """Header, the output, the keys."""
        yield Canvas(lambda w, _h: [header_line(self.picture, w)], id="head")
        yield ScrollText(self._lines)
        yield self.foot()

    def on_mount(self) -> None:
        """Start the command."""
        super().on_mount()
        self.run_worker(self._run(), exit_on_error=False)

    def keys(self) -> Keys:
        """Back and scrolling."""
        return (("esc", "back, and end it" if self._state == "running" else "back"), ("j k", "scroll"), ("q", "quit"))

    def _lines(self, width: int) -> list[Line]:
        look = self.picture.look
        lines: list[Line] = [title(look.clean(self._called), look.clean(self._state), width, look)]
        lines += [[Segment(f" {row}", look.dim)] for row in wrap(look.clean(shlex.join(self._argv)), width - 2)]
        rows = self._output.expandtabs(8).splitlines()
        return [*lines, [], *([Segment(f" {look.clean(row)}", look.text)] for row in rows)]

    async def _run(self) -> None:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._argv, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            self._end(f"{self._argv[0]!r} cannot be started: {getattr(error, 'strerror', None) or error}")
            return
        try:
            await asyncio.wait_for(self._read(process), _MOST_S)
            self._end("done" if process.returncode == 0 else f"failed with exit code {process.returncode}")
        except asyncio.TimeoutError:
            self._end(f"ended after {_MOST_S:.0f} s")
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        read = 0
        while data := await process.stdout.read(1 << 16):
            kept = data[: max(_MOST_BYTES - read, 0)]
            read += len(data)
            self._output += kept.decode(errors="replace")
            self.show()
        await process.wait()

    def _end(self, state: str) -> None:
        self._state = state
        self.show()
