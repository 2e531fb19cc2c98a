"""The ticks of a plot stand on the rows of their values, in plots of every height."""

from __future__ import annotations

import numpy as np
import pytest

from ddpmon.format import tick_labels
from ddpmon.tui.draw.plot import Curve, plot_lines, scale_of
from ddpmon.tui.draw.scale import LABEL, ticked
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


MAGNITUDES = [10.0**power for power in range(-8, 13)]


@pytest.mark.parametrize("size", MAGNITUDES, ids=lambda size: f"{size:.0e}")
def test_ticks_are_exact_and_differ_at_every_magnitude(size: float) -> None:
    """A loss of 0.00049 had the labels `0.000`, `0.000`, `0.000`."""
    for low, high in ((0.0, 4.9), (4.9, 5.1), (-4.9, 4.9), (-5.1, -4.9), (2.0, 2.0), (-2.0, -2.0)):
        value = np.array([low, high]) * size
        for rows in range(2, 20):
            scale = scale_of(Curve("x", "", np.arange(2.0), value), rows)
            assert scale is not None
            labels = tick_labels(scale.ticks, LABEL)
            assert len({*labels}) == len(labels) >= 2, (scale, labels)
            assert max(map(len, labels)) <= LABEL, labels
            apart = scale.ticks[1] - scale.ticks[0]
            assert [number(label) for label in labels] == pytest.approx(scale.ticks, abs=1e-6 * apart, rel=0)


UNITS = {"T": 1e12, "G": 1e9, "M": 1e6, "k": 1e3, "m": 1e-3, "µ": 1e-6, "n": 1e-9, "p": 1e-12}


def number(label: str) -> float:
    """What a label says."""
    digits = label.replace(",", "")
    return float(digits.rstrip("".join(UNITS))) * UNITS.get(digits[-1], 1.0)


def test_the_ticks_of_an_axis_have_one_unit() -> None:
    for ticks, said in (
        ((0.0, 500e3, 1e6), ("0", "0.5M", "1M")),
        ((0.0, 5e3, 1e4), ("0", "5k", "10k")),
        ((500.0, 1000.0, 1500.0), ("500", "1,000", "1,500")),
        ((0.0, 5e-4, 1e-3), ("0", "500µ", "1000µ")),
        ((-0.004, 0.0, 0.004), ("-4m", "0", "4m")),
    ):
        assert tick_labels(ticks, LABEL) == said


def test_labels_of_small_values_are_ascii_where_the_terminal_is() -> None:
    curve = Curve("loss", "", np.arange(50.0), np.full(50, 0.00049))
    labels = [line[:LABEL].strip() for line in text_of(plot_lines(curve, 60, 12, ASCII))[1:-1]]
    assert "500u" in labels
