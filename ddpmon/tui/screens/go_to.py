"""A line in which a moment is typed: a step, a time of day, or how far back it lies from what is shown."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from ddpmon.format import clean
from ddpmon.recording.travel import Request
from ddpmon.tui.lines import clip

if TYPE_CHECKING:
    from ddpmon.tui.app import WatchApp

MOST_DIGITS = 15  # of a step
SHOWN_MOST = 20  # cells of what was not understood
_HINT = "a step (1200), a time of day (03:12) or how far back (2 min)"
_AGO = re.compile(
    r"-?\s*(\d{1,6}(?:\.\d{1,3})?)\s*(s|sec|seconds?|m|min|minutes?|h|hours?)(?:\s+(?:ago|back|earlier))?",
    re.IGNORECASE,
)
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


class GoTo(ModalScreen[Request | None]):
    """Answers with the moment that was typed, or with None; what it does not understand it says so and asks again."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Stay here", show=False)]

    def compose(self) -> ComposeResult:
        """A line at the foot of the screen, and above it what was not understood."""
        yield Static("", id="refused", markup=False)
        yield Input(placeholder=f"go to {_HINT}", id="goto", compact=True)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter: that is it, if it is a moment."""
        text = event.value.strip()
        there = moment(text, cast("WatchApp", self.app).picture.snapshot.taken_at)
        if text and there is None:
            refused = self.query_one("#refused", Static)
            refused.update(f"'{clean(clip(text, SHOWN_MOST))}' is not understood: type {_HINT}")
            refused.display, event.input.value = True, ""
        else:
            self.dismiss(there)


def moment(text: str, near: float) -> Request | None:
    """The moment that was typed, None where it is no time of day, no step, and not how far back.

    Args:
        text: what was typed.
        near: seconds since the epoch; a time of day is the one nearest to it, and how far back is counted from it.
    """
    wall, ago = _wall_of(text, near), _AGO.fullmatch(text)
    if ago is not None:
        wall = near - float(ago[1]) * _SECONDS[ago[2][0].lower()]
    if wall is not None:
        return Request("to_wall", wall)
    digits = text.lower().removeprefix("step").strip().replace(",", "")  # as the timeline calls it
    is_step = digits.isascii() and digits.isdecimal() and len(digits) < MOST_DIGITS
    return Request("to_step", float(digits)) if is_step else None


def _wall_of(text: str, near: float) -> float | None:
    """The Unix time of a clock time such as 03:12 or 03:12:40 here, on the day that makes it nearest to `near`."""
    parts = text.split(":")
    if len(parts) not in (2, 3) or not all(part.isascii() and part.isdecimal() and len(part) < 3 for part in parts):
        return None
    hour, minute, second = (*map(int, parts), *(0,) * (3 - len(parts)))
    if hour > 23 or minute > 59 or second > 59:
        return None
    day = datetime.fromtimestamp(near).replace(hour=hour, minute=minute, second=second, microsecond=0).timestamp()
    return min((day - 86_400.0, day, day + 86_400.0), key=lambda wall: abs(wall - near))
