"""A line in which a moment is typed: a step, or a time of day."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import Input

from ddpmon.recording.travel import Request, wall_of

MOST_DIGITS = 15  # of a step


class GoTo(ModalScreen[str]):
    """Answers with what was typed, or with nothing."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss('')", "Stay here", show=False)]

    def compose(self) -> ComposeResult:
        """One line at the foot of the screen."""
        yield Input(placeholder="go to a step (1200) or a time of day (03:12)", id="goto", compact=True)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter: that is it."""
        self.dismiss(event.value.strip())


def moment(text: str, near: float) -> Request | None:
    """The moment that was typed, None where it is neither a time of day nor a step.

    Args:
        text: what was typed.
        near: seconds since the epoch; a time of day is the one nearest to it.
    """
    wall = wall_of(text, near)
    if wall is not None:
        return Request("to_wall", wall)
    digits = text.replace(",", "")
    is_step = digits.isascii() and digits.isdecimal() and len(digits) < MOST_DIGITS
    return Request("to_step", float(digits)) if is_step else None
