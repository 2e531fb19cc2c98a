"""Plots of the run whose older steps are kept as means of several."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ddpmon.snapshot import Series
from ddpmon.tui.draw.decimation import decimate
from ddpmon.tui.draw.plot import GUTTER
from ddpmon.tui.draw.run_plots import plots_stacked
from ddpmon.tui.view_state import ViewState
from tests.tui.made_runs import Made, snapshot
from tests.tui.test_drawing import LOOKS, text_of

COLOUR = LOOKS["colour"]


def test_of_means_of_several_steps_no_range_is_drawn() -> None:
    """The range ended at 760 ms in older steps and at 900 ms in newer ones, as if the run had become less even."""
    made = snapshot(Made(ranks=8))
    assert made.series is not None
    step = np.concatenate([np.arange(0.0, 4800.0, 16.0), np.arange(4800.0, 5200.0)])
    step_ms = np.where(np.arange(len(step)) % 5 == 0, 900.0, 500.0)
    other = np.full(len(step), 4.0)
    series = Series(step, other, other, other, other, step_ms)

    def drawn(looked_at: Series, width: int = 100, zoom: int = 0) -> tuple[str, list[str]]:
        picture = ViewState(replace(made, series=looked_at, heat=None), COLOUR, zoom=zoom)
        lines = text_of(plots_stacked(picture, -1, width, 12, lateness=False))
        return lines[0], [line[GUTTER + 1 : -1] for line in lines[1:-1]]

    name, rows = drawn(series)
    assert ", median per 29 steps, range from step 4,800 " in name
    empty = {" ", COLOUR.glyphs.grid}
    reached = [any(line[column] not in empty for line in rows[:4]) for column in range(len(rows[0]))]
    assert not any(reached[:83]), "of means of 16 steps"
    assert all(reached[84:]), "of single steps"
    single = replace(series, step=np.arange(float(len(step))))
    assert ", median and range per 4 steps " in drawn(single)[0]
    assert ", median and range per 2 steps " in drawn(series, zoom=300)[0], "of the steps in sight all are single"
    hole = replace(single, step=single.step + np.where(np.arange(len(step)) > 200, 40.0, 0.0))
    assert "median and range per" in drawn(hole)[0], "a hole makes no means"


def test_between_means_and_single_steps_nothing_is_missing() -> None:
    """A newly opened dashboard drew a hole there: single steps lie nearer to each other than what a mean stands for."""
    step = np.concatenate([np.arange(0.0, 2720.0, 16.0), np.arange(2720.0, 2990.0)])
    whole, _ = decimate(step, np.ones(len(step)), 400, (0.0, 2989.0))
    assert np.isfinite(whole).all()
    for first, last in ((1300.0, 1500.0), (2720.0, 2850.0), (2640.0, 2760.0)):
        here = (step < first) | (step >= last)
        low, _ = decimate(step[here], np.ones(here.sum()), 400, (0.0, 2989.0))
        assert np.isnan(low).any(), "what is missing is"
    alone = (step < 2760) | (step == 2840) | (step >= 2920)
    low, _ = decimate(step[alone], np.ones(alone.sum()), 400, (0.0, 2989.0))
    assert np.isnan(low[372:377]).all()
    assert np.isnan(low[383:387]).all(), "on both sides of a step alone"
