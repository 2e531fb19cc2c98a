"""The ticks of a plot stand on the rows of their values, in plots of every height."""

from __future__ import annotations

import numpy as np
import pytest

from ddpmon.tui.draw.plot import Curve, plot_lines, scale_of
from ddpmon.tui.draw.scale import ticked
from tests.tui.test_drawing import LOOKS, text_of

ASCII = LOOKS["ascii"]
RANGES = [
    (513.0, 603.0), (480.0, 605.0), (0.0, 21.0), (10.2, 10.8), (200.0, 296.0), (1_800.0, 1_905.0), (-15.0, 51.0),
    (9_000.0, 10_600.0), (12_345.0, 12_391.0), (0.3, 0.33), (-31.0, -28.0),
]  # fmt: skip


@pytest.mark.parametrize("rows", [2, 3, 4, 5, 8, 13])
@pytest.mark.parametrize(("low", "high"), RANGES)
def test_a_tick_stands_on_the_row_of_its_value(low: float, high: float, rows: int) -> None:
    """In two rows a step of 513 ms was drawn above the label 550."""
    curve = Curve("x", "", np.arange(2.0), np.array([low, high]))
    scale = scale_of(curve, rows)
    assert scale is not None
    assert scale.low <= low < high <= scale.high
    for tick in scale.ticks:
        place = (tick - scale.low) / (scale.high - scale.low) * (rows - 1)
        assert place == pytest.approx(round(place), abs=1e-6), (tick, scale)
    lines = [line[:5].strip() for line in text_of(plot_lines(curve, 40, rows + 1 + (rows > 2), ASCII))[1 : rows + 1]]
    labels = [text for text in lines if text]
    assert len(labels) >= 2
    assert len({*labels}) == len(labels)


@pytest.mark.parametrize("rows", range(8, 31))
def test_a_third_of_a_plot_at_most_stays_empty(rows: int) -> None:
    """Beside each other the lateness of two ranks, of up to 150 ms, had axes up to 250."""
    for low, high in [*RANGES, (-25.0, 160.0)]:
        scale = scale_of(Curve("x", "", np.arange(2.0), np.array([low, high])), rows)
        assert scale is not None
        assert scale.high - scale.low <= 1.5 * max(high - low, max(abs(low), abs(high)) * 0.1), (low, high, scale)


@pytest.mark.parametrize(("low", "high"), [(-20.0, 40.0), (-15.0, 51.0), (-100.0, 400.0), (-31.0, 27.0), (-5.0, 900.0)])
@pytest.mark.parametrize("rows", [4, 6, 9])
def test_an_axis_of_lateness_has_a_tick_at_0(low: float, high: float, rows: int) -> None:
    """Only `40` and `-20` stood there, and nobody could tell where late begins."""
    assert 0.0 in ticked(low, high, rows).ticks
