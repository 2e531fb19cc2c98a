"""Textual's driver for Linux, with two repairs for a monitor that stays open for days."""

from __future__ import annotations

import os
import termios
from typing import Any

from textual.drivers.linux_driver import LinuxDriver

from ddpmon.tui.terminal import screen


class SteadyDriver(LinuxDriver):
    """Draws on the terminal that `own_terminal` opened, and outlives input that is not UTF-8.

    After a reattach a terminal may report the mouse in the old X10 bytes, which are not UTF-8; Textual's input
    thread dies of them, and the app with it.
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

    def run_input_thread(self) -> None:
        """Read input until the end, starting over after bytes that cannot be decoded."""
        while True:
            try:
                return super().run_input_thread()
            except UnicodeDecodeError:
                self._enable_mouse_support()  # asks for the mouse in UTF-8 safe reports again
