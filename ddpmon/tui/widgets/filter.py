"""The line in which the filter is typed."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Input


class Filter(Input):
    """Filters as one types; Enter keeps the filter, Esc drops it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "drop", "All ranks", show=False)]

    class Closed(Message):
        """The reader is done typing."""

    def __init__(self) -> None:
        super().__init__(
            placeholder="filter ranks: 3  3-7  part of a host name  lost  straggler", id="filter", compact=True
        )
        self.max_length = 200
        self.display = False

    def action_drop(self) -> None:
        """Show all ranks again."""
        self.value = ""
        self.post_message(self.Closed())

    def on_input_submitted(self) -> None:
        """Keep the filter."""
        self.post_message(self.Closed())
