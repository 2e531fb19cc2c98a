"""An all-reduce time that is measured in one step of a hundred, beside one that has gaps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ddpmon.snapshot import Floats, Snapshot
from ddpmon.tui.draw.decimation import forward_fill, one_step_in
from ddpmon.tui.draw.plot import GUTTER, Curve, plot_lines, zoomed_curve
from ddpmon.tui.draw.run_plots import lateness_plot
from ddpmon.tui.draw.timeline_view import NAME, timeline_lines
from ddpmon.tui.theme import Look
from ddpmon.tui.view_state import ViewState
from tests.tui.made_runs import Made, snapshot
from tests.tui.test_drawing import LOOKS, text_of
from tests.tui.test_views import timed

COLOUR, ASCII = LOOKS["colour"], LOOKS["ascii"]
STEPS = np.arange(400)
# Of two ranks that each sample a step in 100, at steps of their own.
RARE = np.where(np.isin(STEPS, [6, 13, 103, 105, 201, 203, 300, 302]), 70.0 + STEPS / 100, np.nan)
SERIES = ("step", "loss", "loss_low", "loss_high", "throughput", "step_ms")
GAP = np.where((STEPS < 60) | (STEPS >= 350), 70.0, np.nan)


def reduced(allreduce_ms: Floats) -> Snapshot:
    """A run whose timeline ends with these all-reduce times and knows no others."""
    made = timed(snapshot(Made(ranks=2)))
    assert made.timeline is not None
    names = ("step", "late_pct", "late_rank", "step_ms", "allreduce_ms", "busbw_gb_s", "loss")
    kept = {name: getattr(made.timeline, name)[-len(allreduce_ms) :] for name in names}
    return replace(made, timeline=replace(made.timeline, **{**kept, "allreduce_ms": allreduce_ms}))


def rows_of(allreduce_ms: Floats, look: Look, height: int = 44) -> list[str]:
    """The rows of the all-reduce time in the timeline."""
    lines = text_of(timeline_lines(ViewState(reduced(allreduce_ms), look), 160, height))
    first, end = (next(at for at, line in enumerate(lines) if line.startswith(f" {name}")) for name in REDUCE_TO_LOSS)
    return lines[first:end]


REDUCE_TO_LOSS = ("all-reduce", "loss")


@pytest.mark.parametrize("look", [COLOUR, ASCII], ids=["colour", "ascii"])
def test_a_sampled_series_is_held_between_samples_and_has_a_mark_at_each(look: Look) -> None:
    """Four lonely specks stood in 136 columns."""
    rows = rows_of(RARE, look)
    assert rows[2].startswith(" 1 step in 49 ")
    columns = [[row[at] for row in rows] for at in range(NAME + GUTTER, 159)]
    marked = [at for at, column in enumerate(columns) if look.glyphs.note in column]
    expected = {round(step / 399 * (len(columns) - 1)) for step in np.flatnonzero(np.isfinite(RARE)).tolist()}
    assert {*marked} == expected
    signs = {" ", look.glyphs.grid}
    assert all({*column} - signs for column in columns[marked[0] :]), "the line goes on to the end"


def test_what_is_not_measured_is_as_faint_as_a_band() -> None:
    curve = Curve("all-reduce", "", STEPS.astype(float), forward_fill(RARE), samples=RARE)
    segments = [segment for line in plot_lines(curve, 100, 12, COLOUR)[1:-1] for segment in line[2:]]
    bright = {segment.text.strip() for segment in segments if segment.style == COLOUR.line and segment.text.strip()}
    assert {*"".join(bright)} == {COLOUR.glyphs.note}
    assert any(segment.style == COLOUR.band and segment.text.strip() for segment in segments)


def test_a_series_with_a_gap_goes_on_showing_it() -> None:
    rows = rows_of(GAP, ASCII)
    assert not any("1 step in" in row for row in rows)
    middle = [row[NAME + GUTTER + 40 : NAME + GUTTER + 100] for row in rows]
    assert all({*row} <= {" ", ASCII.glyphs.grid} for row in middle)


def test_which_series_are_sampled() -> None:
    alone = np.where(STEPS % 100 == 0, 1.0, np.nan)
    assert one_step_in(alone) == 100
    assert one_step_in(np.where(STEPS == 7, 1.0, np.nan)) == 0, "of one sample no rate is known"
    for dense in (GAP, np.full(400, 1.0), np.full(400, np.nan), np.where(STEPS < 20, 1.0, np.nan)):
        assert one_step_in(dense) == 0
    assert one_step_in(np.where((STEPS < 20) | (STEPS > 380), 1.0, np.nan)) == 0, "two stretches with a gap"


def test_in_the_place_of_an_unknown_lateness_a_sampled_series_says_so_in_its_title() -> None:
    made = replace(reduced(RARE), heat=None)
    text = "\n".join(text_of(lateness_plot(ViewState(made, ASCII), 0, 120, 14)))
    assert "all-reduce, ms, 1 step in 49" in text
    assert "median" not in next(line for line in text.split("\n") if "all-reduce" in line)


def test_a_long_sample_beyond_the_axis_is_signed_once() -> None:
    value = np.where(np.isnan(RARE), np.nan, 70.0)
    value[203] = 7_000.0
    curve = Curve("all-reduce", "", STEPS.astype(float), forward_fill(value), samples=value, is_cut=True)
    lines = text_of(plot_lines(curve, 100, 12, ASCII))
    assert "at step 203 beyond" in lines[0]
    assert lines[1].count(ASCII.glyphs.up) == 1
    between = text_of(plot_lines(zoomed_curve(curve, 50), 100, 12, ASCII))
    assert any(":" * 20 in line for line in between[1:-1]), "between two samples the line stands alone"


def test_a_sample_beyond_an_end_of_the_axis_has_its_mark_at_that_end() -> None:
    """One behind the last step ended the dashboard, and one before the first step had its mark at the newest one."""
    value = np.where(np.isin(STEPS, [0, 200, 399]), 70.0, np.nan)
    curve = Curve("all-reduce", "", STEPS.astype(float), forward_fill(value), span=(3.0, 396.0), samples=value)
    rows = text_of(plot_lines(curve, 101 + GUTTER + 1, 12, ASCII))[1:-1]
    assert {at - GUTTER for row in rows for at, sign in enumerate(row) if sign == ASCII.glyphs.note} == {0, 50, 100}


def test_the_timeline_may_tell_of_a_sample_in_a_step_behind_the_record() -> None:
    made = reduced(np.where(STEPS == 399, 70.0, RARE))
    assert made.heat is not None
    assert made.series is not None
    shorter = {name: getattr(made.series, name)[:-2] for name in SERIES}
    heat = replace(made.heat, step=made.heat.step[:-2], values=made.heat.values[:, :-2] * np.nan)
    made = replace(made, series=replace(made.series, **shorter), heat=replace(heat, base_ms=heat.base_ms[:-2]))
    title, _, *rows, axis = text_of(lateness_plot(ViewState(made, ASCII), 0, 120, 14))
    assert axis.rstrip().endswith(" 1,202")
    assert any(row[118] == ASCII.glyphs.note for row in rows), (title, rows)


@pytest.mark.parametrize("height", range(16, 48, 4))
def test_a_row_of_three_lines_or_more_says_what_lies_beyond_its_axis(height: int) -> None:
    """In three lines how seldom the time is measured took the line of it."""
    value = np.where(STEPS == 203, 15_200.0, RARE)
    rows = rows_of(value, ASCII, height)
    assert len(rows) >= 3
    assert rows[2].startswith(f" {ASCII.glyphs.up} 15.2 s ")
    assert len(rows) == 3 or rows[3].startswith(" 1 step in 49 ")
