"""A line that asks in which form something is to be written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import Static


class WriteAs(ModalScreen[str | None]):
    """Answers with a form, or with None.

    Args:
        what: is written.
        offered: key -> the form that it stands for, and what that is called.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "dismiss(None)", "Write nothing", show=False)]

    def __init__(self, what: str, offered: Mapping[str, tuple[str, str]]) -> None:
        super().__init__()
        self._what, self._offered = what, offered

    def compose(self) -> ComposeResult:
        """One line at the foot of the screen; more of them where it is narrow."""
        offered = "   ".join(f"[b]{key}[/b] {name}" for key, (_, name) in self._offered.items())
        yield Static(f"write the {self._what} as   {offered}   [b]esc[/b] nothing", id="writeas")

    def on_key(self, event: events.Key) -> None:
        """A key that stands for a form is the answer."""
        if event.key in self._offered:
            event.stop()
            self.dismiss(self._offered[event.key][0])
