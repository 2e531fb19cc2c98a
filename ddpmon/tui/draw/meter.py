"""A level between nothing and full as a bar: solid for the level, faint dots for the rest."""

from __future__ import annotations

import math

from rich.segment import Segment

from ddpmon.tui.draw.bars import EIGHTHS
from ddpmon.tui.lines import Line
from ddpmon.tui.look import Look, ink

STRONG, USUAL, FAINT = 1, 2, 3  # shades of the one hue, by how much a meter should draw the eye


def meter(share: float | None, width: int, look: Look, shade: int = USUAL) -> Line:
    """A bar of `width` cells; `share` is 0..1, None or NaN where unknown, which leaves the bar empty."""
    if width <= 0:
        return []
    if share is None or not math.isfinite(share):
        return [Segment(" " * width, look.text)]
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    full, part = divmod(eighths, 8)
    tone = ink(look.phases[shade])
    if not look.smooth:
        full, part = (full + (part >= 4), 0)
    line = [Segment(_solid(look) * full, tone)]
    if part:
        line.append(Segment(EIGHTHS[part], tone))
    rest = width - full - bool(part)
    return [*line, Segment(look.glyphs.dot * rest, look.faint)]


def _solid(look: Look) -> str:
    return "#" if look.ascii_only else "█"
