"""What is shown when there is no picture yet, or no room for one."""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style

from ddpmon.format import age
from ddpmon.tui.lines import Line, fit, fit_all, wrap
from ddpmon.tui.look import Look
from ddpmon.tui.picture import Picture

TITLES = {
    "waiting": "waiting for a run",
    "live": "a run is there; no rank has spoken yet",
    "silent": "the store does not answer",
    "gone": "the store is gone",
}
HINT = "ddpmon goes on looking: a run appears here by itself as soon as its first rank has published."


def waiting_lines(picture: Picture, width: int, height: int) -> list[Line]:
    """A calm screen: what we wait for, and the sentence of the link."""
    look, link = picture.look, picture.snapshot.link
    block = [(TITLES[link.state], look.strong), ("", look.text)]
    block += [(row, look.text) for row in wrap(look.clean(link.message), min(width - 4, 76)) if row]
    if picture.stuck_s is not None:
        block += [("", look.text), (f"no answer for {age(picture.stuck_s)}", look.accent)]
    if link.state in ("waiting", "live"):
        block += [("", look.text), *((row, look.dim) for row in wrap(HINT, min(width - 4, 76)))]
    return _centred(block, width, height)


def too_small_lines(width: int, height: int, least: tuple[int, int], look: Look) -> list[Line]:
    """Too little room: say how much is needed and how to leave."""
    block = [
        ("too small", look.strong),
        (f"{width}x{height}, needs {least[0]}x{least[1]}", look.text),
        ("q quits", look.dim),
    ]
    return _centred(block, width, height)


def _centred(block: list[tuple[str, Style]], width: int, height: int) -> list[Line]:
    above = max((height - len(block)) // 2, 0)
    lines: list[Line] = [[] for _ in range(above)]
    for text, style in block:
        lines.append(fit([Segment(" " * max((width - len(text)) // 2, 0)), Segment(text, style)], width))
    return fit_all(lines, width, height)
