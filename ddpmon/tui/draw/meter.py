"""A level between nothing and full as a thin bar: a heavy line for the level, a light one for the rest."""

from __future__ import annotations

import math

from rich.segment import Segment

from ddpmon.tui.lines import Line
from ddpmon.tui.look import Look, ink

STRONG, USUAL, FAINT = 1, 2, 3  # shades of the one hue, by how much a meter should draw the eye
HEAVY, HALF, LIGHT = "━", "╸", "─"


def meter(share: float | None, width: int, look: Look, shade: int = USUAL) -> Line:
    """A bar of `width` cells; `share` is 0..1, None or NaN where unknown, which leaves the place empty."""
    if width <= 0:
        return []
    if share is None or not math.isfinite(share):
        return [Segment(" " * width, look.text)]
    halves = round(min(max(share, 0.0), 1.0) * width * 2)
    tone = ink(look.phases[shade])
    if look.ascii_only:
        full = (halves + 1) // 2
        return [Segment("#" * full, tone), Segment(look.glyphs.dot * (width - full), look.faint)]
    level = HEAVY * (halves // 2) + HALF * (halves % 2)
    return [Segment(level, tone), Segment(LIGHT * (width - len(level)), look.faint)]
