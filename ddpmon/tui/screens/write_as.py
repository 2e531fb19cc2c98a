"""A line that asks in which form the view is to be written."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import Static

from ddpmon.tui.view_files import Form

_NAMES: dict[str, tuple[Form, str]] = {
    "s": ("svg", "SVG picture"),
    "t": ("txt", "text"),
    "c": ("csv", "CSV of the rank table"),
    "j": ("json", "JSON"),
}


class WriteAs(ModalScreen[Form | None]):
    """Answers with a form, or with None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss(None)", "Write nothing", show=False),
        *(Binding(key, f"dismiss('{form}')", f"Write {name}", show=False) for key, (form, name) in _NAMES.items()),
    ]

    def compose(self) -> ComposeResult:
        """One line at the foot of the screen."""
        offered = "   ".join(f"[b]{key}[/b] {name}" for key, (_, name) in _NAMES.items())
        yield Static(f"write the view as   {offered}   [b]esc[/b] nothing", id="writeas")
