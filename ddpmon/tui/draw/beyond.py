"""A few durations far above all others: the axis of a plot ends below them, and they are marked and said."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from rich.segment import Segment

from ddpmon.format import count, ms
from ddpmon.run.medians import median
from ddpmon.snapshot import Floats
from ddpmon.tui.draw.zoom import Span, column_of
from ddpmon.tui.lines import Line
from ddpmon.tui.theme import Look

FAR = 5.0  # times the median of what is shown: a chosen number, above what a straggler costs as a rule
FEW = 0.05  # of the values: where more are far above the others, the run is so slow and the axis reaches up to them


def axis_end(values: Floats) -> float:
    """The highest of these known values; without those that are far above all others, where these are few."""
    is_near = values <= FAR * float(median(values))
    far = len(values) - int(is_near.sum())
    return float(values[is_near].max() if is_near.any() and far <= max(1, FEW * len(values)) else values.max())


def beyond_words(step: Floats, value: Floats, top: float) -> tuple[str, str]:
    """`15.2 s at step 135 beyond` of the highest of the durations in ms above the axis, and `15.2 s`; else empty."""
    if not (value > top).any():
        return "", ""
    highest = int(np.nanargmax(value))
    return f"{ms(float(value[highest]))} at step {count(int(step[highest]))} beyond", ms(float(value[highest]))


def with_signs(line: Line, step: Floats, span: Span, before: int, columns: int, look: Look) -> Line:
    """The upper line of a plot with a sign in the column of each of these steps, which are those beyond its axis.

    `before` are the cells left of the columns.
    """
    signed = {before + column_of(each, span, columns) for each in step.tolist()}
    ends = sorted({*signed, *(cell + 1 for cell in signed), before + columns})
    parts = zip(pairwise([0, *ends]), Segment.divide(line, ends), strict=True)
    sign = Segment(look.glyphs.up, look.strong)
    return [each for (start, _), part in parts for each in ([sign] if start in signed else part)]
