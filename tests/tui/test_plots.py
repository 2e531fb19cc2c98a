"""Plots: spikes and gaps, ticks, bands, and what their titles and axes say."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ddpmon.snapshot import Course, Floats, Ints
from ddpmon.tui.draw.courses import METRICS, rank_plots
from ddpmon.tui.draw.decimation import decimate
from ddpmon.tui.draw.heat import heat_lines
from ddpmon.tui.draw.key_figures import figures_line
from ddpmon.tui.draw.plot import GUTTER, Curve, plot_lines, scale_of
from ddpmon.tui.draw.run_plots import lateness_plot, marked_plots, plots_stacked
from ddpmon.tui.theme import Look, make_look
from ddpmon.tui.view_state import ViewState
from tests.tui.made_runs import Made, snapshot
from tests.tui.test_drawing import LOOKS, text_of

COLOUR, ASCII = LOOKS["colour"], LOOKS["ascii"]


def test_spikes_survive_decimation() -> None:
    value = np.ones(5000)
    value[3210] = 9.0
    value[777] = -4.0
    low, high = decimate(np.arange(5000.0), value, 40, (0.0, 4999.0))
    assert high.max() == 9.0
    assert low.min() == -4.0


def test_missing_data_is_a_gap_and_sparse_data_is_not() -> None:
    step = np.arange(100.0)
    hole = np.where((step > 40) & (step < 60), np.nan, 1.0)
    assert np.isnan(decimate(step, hole, 100, (0.0, 99.0))[0][42:59]).all()
    sparse = np.where(step % 10 == 0, 1.0, np.nan)
    assert np.isfinite(decimate(step, sparse, 91, (0.0, 90.0))[0]).all()


def test_ticks_are_round_numbers_within_the_range() -> None:
    for low, high in ((0.0, 1.0), (2.17, 4.1), (1380.0, 2010.0), (5.0, 5.0), (-3.0, 8.0), (0.0, 0.0), (1e9, 1.1e9)):
        scale = scale_of(Curve("x", "", np.array([0.0, 1.0]), np.array([low, high])), 8)
        assert scale is not None
        assert scale.low <= low <= high <= scale.high
        assert len(scale.ticks) >= 1
        gaps = np.diff(scale.ticks)
        if len(gaps):
            assert np.allclose(gaps, gaps[0])
            assert f"{gaps[0]:.0e}"[0] in "125"


@pytest.mark.parametrize("rows", range(4, 15))
def test_ticks_are_as_many_rows_apart_and_their_labels_differ(rows: int) -> None:
    ranges = ((-15.0, 51.0), (0.0, 51.0), (1800.0, 1905.0), (3.9e3, 4.2e3), (9.6, 11.7), (12_345.0, 12_391.0))
    for low, high in ranges:
        curve = Curve("x", "", np.arange(2.0), np.array([low, high]))
        lines = text_of(plot_lines(curve, 40, rows + 2, ASCII))[1:-1]
        labels = [(row, line[:5].strip()) for row, line in enumerate(lines) if line[:5].strip()]
        assert labels, (low, high)
        assert len(set(np.diff([row for row, _ in labels]).tolist())) <= 1, (low, high, labels)
        assert len({text for _, text in labels}) == len(labels)
        scale = scale_of(curve, rows)
        assert scale is not None
        assert scale.high - scale.low <= 2 * max(high - low, high / 10), "half of the room at most stays empty"


def test_a_plot_is_drawn_again_whatever_of_its_curve_is_new() -> None:
    step, flat = np.arange(400.0), np.full(400, 40.0)
    curve = Curve("wait", "40", step, flat, flat - 9, flat + 9, onsets=(50,), times=((200, "12:00:00"),), floor=0.0)
    drawn = text_of(plot_lines(curve, 90, 12, make_look()))
    spike = np.where(step == 300, 90.0, 40.0)
    news: list[dict[str, Any]] = [
        {"value": spike},
        {"high": spike + 9},
        {"step": step + 7},
        {"times": ((200, "12:00:01"),)},
    ]
    news += [{"remark": "41"}, {"onsets": (90,)}, {"floor": -500.0}, {"is_filled": True}]
    for new in news:
        assert text_of(plot_lines(replace(curve, **new), 90, 12, make_look())) != drawn, new
    assert text_of(plot_lines(replace(curve, value=flat.copy()), 90, 12, make_look())) == drawn


def test_beside_a_band_a_line_in_ascii_has_one_mark_a_column() -> None:
    step = np.arange(400.0)
    noise = np.random.default_rng(0).normal(0.0, 5.0, 400)
    curve = Curve("lateness", "", step, noise, np.full(400, -12.0), np.full(400, 12.0))
    rows = text_of(plot_lines(curve, 60, 12, ASCII))[1:-1]
    for column in range(8, 59):
        assert sum(row[column] == "*" for row in rows) == 1


def test_in_ascii_one_long_step_in_five_does_not_lift_the_line_beside_a_band() -> None:
    """The wait of a rank that waits least seemed to grow from the onset on."""
    step, flat = np.arange(400.0), np.full(400, 0.0)
    curve = Curve("wait", "", step, np.where(step % 5 == 0, 100.0, 10.0), flat, flat + 100)
    rows = text_of(plot_lines(curve, 60, 12, ASCII))[1:-1]
    height = [row for row, line in enumerate(rows) if "*" in line]
    assert min(height) > len(rows) // 2, "at 10 of 100"


def test_of_more_steps_than_columns_the_median_and_the_range_are_drawn_and_no_slopes() -> None:
    """The line went from step to step within a column, so that one late step of five was slopes."""
    step = np.arange(400.0)
    late = Curve("late", "", step, np.where(step % 5 == 0, 360.0, 0.0), np.full(400, -9.0), np.full(400, 9.0))
    lines = text_of(plot_lines(late, 80, 10, COLOUR))
    assert "late, median and range per 3 steps" in lines[0]
    bodies = [line[GUTTER:] for line in lines[3:6]]
    assert len(set(bodies)) == 1, "every column is as wide at each height"
    assert bodies[0].strip()
    few = replace(late, step=step[:100], value=late.value[:100], low=step[:100] * 0, high=step[:100] * 0)
    assert "median" not in text_of(plot_lines(few, 80, 10, COLOUR))[0], "each step has a column"
    assert "late, median per 6 steps" in text_of(plot_lines(late, 80, 10, ASCII))[0]
    alone = text_of(plot_lines(replace(late, low=None, high=None), 80, 10, ASCII))
    assert "median and range" in alone[0]
    assert sum("*" in line for line in alone) == 1, "the median"
    assert sum(":" in line for line in alone) > 4, "the range"


def test_a_course_that_ends_early_says_since_when_it_is_not_known() -> None:
    step = np.arange(200.0)
    value = np.where(step <= 35, 4000.0, np.nan)
    assert "not known since step 35" in "\n".join(
        text_of(plot_lines(Curve("samples/s", "", step, value), 80, 9, COLOUR))
    )
    for known in (np.full(200, 4000.0), np.where(step <= 190, 4000.0, np.nan)):
        assert "not known" not in "\n".join(text_of(plot_lines(Curve("x", "", step, known), 80, 9, COLOUR)))


def test_a_course_of_few_points_goes_on_to_the_end() -> None:
    step = np.arange(500.0)
    for known in (np.where(step % 200 == 0, 2.3, np.nan), np.where(step == 0, 2.3, np.nan)):
        assert "not known" not in "\n".join(text_of(plot_lines(Curve("loss", "", step, known), 80, 9, COLOUR)))
    one = Curve("loss", "", np.zeros(1), np.full(1, 2.3))
    assert "not known" not in "\n".join(text_of(plot_lines(one, 80, 9, COLOUR)))


def test_the_line_of_a_constant_is_flat_and_the_plot_of_nothing_a_dash() -> None:
    curve = Curve("loss", "", np.arange(50.0), np.full(50, 2.0))
    rows = [line for line in text_of(plot_lines(curve, 40, 9, ASCII)) if "*" in line]
    assert len(rows) == 1
    assert rows[0].count("*") == 32
    nothing = Curve("loss", "", np.arange(50.0), np.full(50, np.nan))
    assert text_of(plot_lines(nothing, 40, 9, ASCII))[1].strip() == "-"


def test_a_faint_grid_line_at_each_tick_and_hatching_between_the_line_and_0() -> None:
    rising = Curve("late", "", np.arange(50.0), np.linspace(0.0, 100.0, 50), floor=0.0, is_filled=True)
    rows = plot_lines(rising, 47, 10, COLOUR)[1:-1]
    grid = COLOUR.glyphs.grid
    at_ticks = [COLOUR.glyphs.tick in row[1].text for row in rows]
    with_grid = [any(grid in segment.text for segment in row[2:]) for row in rows]
    assert with_grid[:-1] == at_ticks[:-1], "at a tick, and nowhere else; the last row is hatched"
    assert sum(with_grid) >= 2
    for row in rows:
        assert {segment.style for segment in row[2:] if set(segment.text) & {grid}} <= {COLOUR.faint}
    foot = "".join(segment.text for segment in rows[-2][2:])
    assert not foot[-20:].isspace(), "hatched below the line"
    for look in (LOOKS["ascii"], LOOKS["plain"]):
        plain, filled = (plot_lines(replace(rising, is_filled=whether), 47, 10, look) for whether in (False, True))
        assert plain == filled, "without colour the hatching would look like the line"


def test_a_value_at_a_tick_lies_on_its_grid_line() -> None:
    steady = Curve("late", "", np.arange(50.0), np.where(np.arange(50) < 25, 0.0, 100.0), floor=0.0)
    for height in (5, 6, 9, 14):
        rows = [line for line in text_of(plot_lines(steady, 60, height, COLOUR))[1:-1] if line[:5].strip()]
        lowest, highest = (ord(row[place]) - 0x2800 for row, place in ((rows[-1], 12), (rows[0], 55)))
        assert 0 < lowest <= 0x3F & ~0x09, "between the upper and the lower dots of the cell"
        assert 0 < highest <= 0x3F & ~0x09


def test_a_wide_axis_has_three_times_of_day_and_a_narrow_one_the_first() -> None:
    times = ((25, "10:00:25"), (12, "10:00:12"), (37, "10:00:37"))
    curve = Curve("loss", "", np.arange(50.0), np.arange(50.0), times=times)
    wide, narrow = (text_of(plot_lines(curve, width, 9, COLOUR))[-1].split() for width in (110, 60))
    assert wide == ["step", "0", "10:00:12", "10:00:25", "10:00:37", "49"]
    assert narrow == ["step", "0", "10:00:25", "49"]


@pytest.mark.parametrize(("onset", "shown"), [(10, True), (15, False), (18, False), (34, True)])
def test_the_time_of_another_step_does_not_stand_close_behind_a_mark(onset: int, shown: bool) -> None:
    """`▲ 60  11:23:05` was read as one pair, and step 60 had been at another time."""
    curve = Curve("loss", "", np.arange(50.0), np.arange(50.0), times=((25, "10:00:25"),), onsets=(onset,))
    line = text_of(plot_lines(curve, 74, 9, COLOUR))[-1]
    assert f"▲ {onset}" in line
    assert ("10:00:25" in line) is shown
    assert not re.search(r"▲ \d+ {0,9}\d\d:", line)


@pytest.mark.parametrize(
    ("onset", "begins"),
    [
        (0, "▲ step 0 "), (2, "▲ 2 · step 0 "), (5, "▲ 5 · step 0 "), (10, "0 "), (30, "step 0 "), (-1, "step 0 "),
    ],
)  # fmt: skip
def test_an_axis_has_its_first_step_and_its_last_one_wherever_a_trouble_began(onset: int, begins: str) -> None:
    curve = Curve("loss", "", np.arange(121.0), np.ones(121), onsets=(onset,) if onset >= 0 else ())
    line = text_of(plot_lines(curve, 42, 9, COLOUR))[-1]
    assert line[GUTTER:].strip().startswith(begins)
    assert line.endswith(" 120 ")
    if onset >= 0:
        assert line.index("▲") == GUTTER + round(onset / 120 * 33)


def test_an_axis_says_what_began_before_it_and_keeps_its_first_step() -> None:
    for first, width, begins in (
        (133, 60, "step 133 · ▲ since 60 "),
        (133, 38, "133 · ▲ since 60 "),
        (133, 31, "133 · ▲ 60 "),
        (12_300, 30, "12,300 · ▲ 60 "),
    ):
        curve = Curve("loss", "", np.arange(first, first + 50.0), np.ones(50), onsets=(60,))
        assert text_of(plot_lines(curve, width, 9, COLOUR))[-1][GUTTER:].startswith(begins)


def test_a_trouble_without_room_for_its_step_keeps_its_sign() -> None:
    curve = Curve("loss", "", np.arange(121.0), np.ones(121), onsets=(60, 48))
    line = text_of(plot_lines(curve, 42, 9, COLOUR))[-1]
    assert [place for place, char in enumerate(line) if char == "▲"] == [
        GUTTER + round(each / 120 * 33) for each in (48, 60)
    ]
    assert "60" in line
    assert "48" not in line


def test_a_large_loss_has_no_point_at_its_end() -> None:
    made = snapshot(Made(ranks=4))
    for loss, said in ((1234.4, "1234"), (2.3, "2.300")):
        shown = ViewState(replace(made, job=replace(made.job, loss=loss)), ASCII)
        lines = text_of(plots_stacked(shown, 1, 60, 40, lateness=False))
        (heading,) = [line for line in lines if line.startswith(("- loss", " - loss"))]
        assert heading.split()[-2] == said
        assert re.search(rf"loss \S+ {said} ", text_of([figures_line(shown, 160)])[0])


def test_a_plot_of_nothing_is_left_out_where_there_are_others_and_unknown_lateness_says_why() -> None:
    made = snapshot(Made(ranks=4))
    assert made.series is not None
    assert made.heat is not None
    silent = replace(made.series, throughput=np.full(len(made.series.step), np.nan))
    shown = ViewState(replace(made, series=silent, heat=None), COLOUR)
    beside = "\n".join(text_of(plots_stacked(shown, 1, 60, 30, lateness=True)))
    assert "step time" in beside
    assert "samples/s" not in beside
    unknown = np.full_like(made.heat.values, np.nan)
    for heat, why in (
        (None, "no step has been read yet"),
        (replace(made.heat, values=unknown), "none are on record"),
        (replace(made.heat, values=unknown[:1]), "it is the only rank"),
    ):
        assert why in "\n".join(text_of(lateness_plot(ViewState(replace(made, heat=heat), COLOUR), 0, 90, 10)))


def test_ranks_that_findings_name_belong_to_no_band_of_the_others() -> None:
    made = snapshot(Made(ranks=8, straggler=5, extra_ms=80.0))
    for findings, reaches in ((made.findings, False), ((), True)):
        shown = ViewState(replace(made, findings=findings), ASCII)
        rows = text_of(lateness_plot(shown, 0, 90, 14))[1:-1]
        ticks = [float(line[:5]) for line in rows if line[:5].strip()]
        assert (max(ticks) >= 50) == reaches, "up to the late rank"


def test_one_other_rank_is_no_band() -> None:
    """Beside ranks that cannot be compared a single other rank was drawn as the band of the others."""
    made = snapshot(Made(ranks=4, straggler=1, extra_ms=80.0))
    assert made.heat is not None
    for unknown, reaches in (((2, 3), False), ((), True)):
        values = made.heat.values.copy()
        values[list(unknown)] = np.nan
        shown = ViewState(replace(made, heat=replace(made.heat, values=values), findings=()), ASCII)
        rows = text_of(lateness_plot(shown, 0, 90, 14))[1:-1]
        assert (max(float(line[:5]) for line in rows if line[:5].strip()) >= 50) == reaches


@pytest.mark.parametrize("unknown", [(1,), (1, 2)])
def test_compared_ranks_fill_the_width_also_where_some_cannot_be_compared(unknown: tuple[int, ...]) -> None:
    """A quarter of the screen was empty beside the plot of the only rank that could be."""
    made = snapshot(Made(ranks=8))
    assert made.heat is not None
    values = made.heat.values.copy()
    values[list(unknown)] = np.nan
    shown = ViewState(replace(made, heat=replace(made.heat, values=values)), ASCII)
    lines = text_of(marked_plots(shown, [1, 2, 3], 120, 20))
    assert sum(line.count("lateness of rank") for line in lines) == 3 - len(unknown)
    assert all(line[60:119].strip() for line in lines if "lateness of rank" in line or " step " in line)


def stalled(values: float = 130.0, stall: float = 15_200.0) -> Curve:
    """Steps of nearly one length, and one long stall."""
    step = np.arange(200.0)
    durations = values + np.sin(step) * 20
    durations[135] = stall
    return Curve("step time, ms", "130", step, durations, is_cut=True)


@pytest.mark.parametrize("look", [make_look(), LOOKS["ascii"]], ids=["colour", "ascii"])
def test_one_long_stall_leaves_the_other_steps_the_room_and_is_said(look: Look) -> None:
    lines = text_of(plot_lines(stalled(), 100, 12, look))
    assert "step time, ms, 15.2 s at step 135 beyond" in lines[0]
    assert [cell for cell, sign in enumerate(lines[1]) if sign == look.glyphs.up] == [GUTTER + round(135 / 199 * 91)]
    heights = {row for row, line in enumerate(lines[1:-1]) if set(line[GUTTER : GUTTER + 30]) - set(" ┈.")}
    assert len(heights) > 5, "a line that is not flat"
    assert {len(line) for line in lines} == {100}


def test_a_run_that_is_slow_now_and_then_and_a_loss_are_not_cut() -> None:
    many = stalled()
    many.value[::10] = 15_200.0
    for curve in (many, replace(stalled(), is_cut=False)):
        lines = text_of(plot_lines(curve, 100, 12, make_look()))
        assert "beyond" not in lines[0]
        assert any("10k" in line for line in lines)


def ends(lines: list[str]) -> set[tuple[str, str]]:
    """The first and the last step of each axis of plots above each other."""
    return {
        (words[1], words[-1]) for line in lines if (words := line.split()) and words[0] == "step" and len(words) > 2
    }


def test_the_plots_of_a_screen_share_their_axis() -> None:
    """The run's own course ends with the step that all ranks have told of, a bit before the newest one."""
    made = snapshot(Made(ranks=8, step=299))
    assert made.heat is not None
    assert made.series is not None
    heat = replace(
        made.heat, step=made.heat.step[-300:], values=made.heat.values[:, -300:], base_ms=made.heat.base_ms[-300:]
    )
    names = ("step", "loss", "loss_low", "loss_high", "throughput", "step_ms")
    behind = replace(made.series, **{name: getattr(made.series, name)[2:-3] for name in names})
    shown = ViewState(replace(made, heat=heat, series=behind), make_look(ascii_only=True))
    first, last = f"{heat.step[0]:,}", f"{heat.step[-1]:,}"
    assert ends(text_of(plots_stacked(shown, 3, 60, 40, lateness=True))) == {(first, last)}
    drawn = text_of(heat_lines(shown, 120, 10))
    assert (drawn[9].split()[1], drawn[9].split()[-1]) == (first, last)


def test_a_plot_of_the_newest_steps_of_a_long_run_says_which_they_are() -> None:
    made = snapshot(Made(ranks=8, step=1204))
    assert made.heat is not None
    assert made.series is not None
    newest = slice(-200, None)
    heat = replace(
        made.heat, step=made.heat.step[newest], values=made.heat.values[:, newest], base_ms=made.heat.base_ms[newest]
    )
    lines = text_of(plots_stacked(ViewState(replace(made, heat=heat), make_look()), 3, 90, 40, lateness=True))
    first, last = f"{heat.step[0]:,}", f"{heat.step[-1]:,}"
    assert f"lateness of rank 3, ms, steps {first}-{last} of {last}, " in lines[0]
    assert not any(f" of {last}" in line for line in lines[1:])
    (begin,) = {begin for begin, _ in ends(lines[11:])}
    assert int(begin.replace(",", "")) == int(made.series.step[0]), "the others show the whole run"


def cpu_plot(own: Floats, step: Ints, *, from_zero: bool) -> list[str]:
    """A plot of the CPU of a rank whose last step was 4."""
    made = snapshot(Made(focus=3, step=4))
    assert made.detail is not None
    whole = Course(np.arange(5), np.full(5, 120.0), np.empty((0, 5)))
    courses = {**made.detail.courses, "work": whole, "cpu_pct": Course(step, own, np.empty((0, len(own))))}
    metric = next(metric for metric in METRICS if metric.key == "cpu_pct")
    plots = rank_plots(ViewState(made, LOOKS["ascii"]), replace(made.detail, courses=courses))
    return text_of(plots.plot(replace(metric, from_zero=from_zero), 60, 12))


def test_what_is_read_while_the_newest_step_hangs_is_drawn() -> None:
    """A rank whose CPU fell to 0 when the run hung had a flat line at 100 %: what came after the step was cut off."""
    step = np.r_[np.arange(4), np.full(60, 4)]
    busy = np.full(64, 100.0)
    hangs = np.where(np.arange(64) < 8, 100.0, 0.0)
    assert cpu_plot(hangs, step, from_zero=True)[-3:] != cpu_plot(busy, step, from_zero=True)[-3:]


def test_readings_in_long_steps_are_a_line_over_these_steps() -> None:
    """Of steps of 5 s each has five readings: they were a speck over each step, and nothing between two of them."""
    lines = cpu_plot(np.linspace(90.0, 110.0, 25), np.repeat(np.arange(5), 5), from_zero=False)
    drawn = {place for line in lines[1:-1] for place, char in enumerate(line[GUTTER:-1]) if char not in " ┄.-"}
    assert drawn >= {*range(60 - GUTTER - 1)}
