"""The vertical axis of a plot: a range whose ticks are round numbers, lie on rows and are as many rows apart."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

LABEL = 5  # cells of a tick's label
MOST_WASTE, FEW_ROWS = 0.45, 8  # of the range that is asked for: so much is left empty for more ticks at most; chosen
FEW_WASTE = 0.8  # the same in fewer rows, of which few ticks lie on one: a tick at 0 is worth more than the room
ENDS_WASTE = 0.5  # of the range that is asked for, where only the ends have ticks: so rounder numbers stand there
TICK_WORTH = 0.1  # of the range: the room that a tick more or less than wanted is worth, two four times as much; chosen
_FACTORS = (10.0, 5.0, 2.0, 1.0, 0.5, 0.2, 0.1)
_MORE_FACTORS = (*_FACTORS, 4.0, 3.0, 0.4, 0.3)


@dataclass(frozen=True, slots=True)
class Scale:
    """The range of the vertical axis and where its ticks are."""

    low: float
    high: float
    ticks: tuple[float, ...]


def ticked(low: float, high: float, rows: int) -> Scale:
    """The range from low to high, a little wider where ticks would lie between two rows else."""
    wanted = 2 if rows < 6 else 3 if rows < 12 else 4

    def cost(scale: Scale) -> float:
        return (scale.high - scale.low) / (high - low) + TICK_WORTH * (len(scale.ticks) - 1 - wanted) ** 2

    most = (1 + (FEW_WASTE if rows < FEW_ROWS else MOST_WASTE)) * (high - low)
    found = [scale for scale in _candidates(low, high, rows) if scale.high - scale.low <= most]
    if not found and low < 0.0 < high:  # a tick at 0 parts what is late from what is early: 30 may stand above it then
        found = [*_candidates(low, high, rows, _MORE_FACTORS)]
    if found:
        return min(found, key=cost)
    return _ends(low, high) if rows > 1 else Scale(low, high, _within(low, high))


def _candidates(low: float, high: float, rows: int, factors: Sequence[float] = _FACTORS) -> Iterator[Scale]:
    """Ranges of so many rows with at least two ticks, 1-2-5 apart, a whole number of rows between two of them."""
    unit = 10.0 ** math.floor(math.log10(high - low))
    for spacing in (unit * factor for factor in factors if unit * factor >= _least_spacing(low, high)):
        most = math.floor((rows - 1) * spacing / (high - low) + 1e-9)
        for apart in (most, most - 1):
            row = spacing / max(apart, 1)
            bottom = math.floor(low / row + 1e-9) * row
            top = bottom + (rows - 1) * row
            ticks = _multiples(spacing, bottom, top)
            if apart >= 1 and top >= high - 1e-9 * (high - low) and len(ticks) >= 2:
                yield Scale(bottom, max(top, high), ticks)


def _multiples(spacing: float, low: float, high: float) -> tuple[float, ...]:
    first, last = math.ceil(low / spacing - 1e-9), math.floor(high / spacing + 1e-9)
    return tuple(place * spacing for place in range(first, last + 1))


def _least_spacing(low: float, high: float) -> float:
    """Ticks that are closer have labels that need more than `LABEL` cells: three digits, in the thousands four.

    A sign takes the cell of one digit, where the unit takes another one.
    """
    size = max(abs(low), abs(high))
    digits = 3 if 1e3 <= size < 1e4 and low >= 0 else 1 if low < 0 and not 5e-3 <= size < 1e3 else 2
    least = 10.0 ** (math.floor(math.log10(size)) - digits) if size > 0 else 0.0
    return max(least, 1e-3) if size >= 5e-3 else least


def _ends(low: float, high: float) -> Scale:
    """The range with round numbers at its ends, which alone are ticks: none lies elsewhere than on its row."""
    unit, least = 10.0 ** math.floor(math.log10(high - low)), _least_spacing(low, high)
    for spacing in [*(unit * factor for factor in _FACTORS if unit * factor > least), least]:
        bottom, top = math.floor(low / spacing + 1e-9) * spacing, math.ceil(high / spacing - 1e-9) * spacing
        if top - bottom <= (1 + ENDS_WASTE) * (high - low):
            break
    return Scale(min(bottom, low), max(top, high), (bottom, top))


def _within(low: float, high: float) -> tuple[float, ...]:
    """A round number within the range."""
    spacing = 10.0 ** math.ceil(math.log10(high - low))
    while not (found := _multiples(spacing, low, high)):
        spacing /= 2 if f"{spacing:e}"[0] in "12" else 2.5
    return found[:1]
