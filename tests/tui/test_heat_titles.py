"""The title of the heat-map at every width: what the axes are, how many steps a cell shows, and the legend."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from ddpmon.snapshot import Snapshot
from ddpmon.tui.draw.grid import STOPS
from ddpmon.tui.draw.heat import heat_lines
from ddpmon.tui.draw.heat_layout import Cursor
from ddpmon.tui.view_state import ViewState
from tests.tui.made_runs import Made, snapshot
from tests.tui.test_drawing import LOOKS, text_of

COLOUR = LOOKS["colour"]


def last_steps(made: Snapshot, steps: int) -> Snapshot:
    """The run with so many steps in its heat-map."""
    assert made.heat is not None
    few = slice(-steps, None)
    heat = replace(made.heat, step=made.heat.step[few], values=made.heat.values[:, few], base_ms=made.heat.base_ms[few])
    return replace(made, heat=heat)


def test_the_axes_are_named_before_the_legend_is_long() -> None:
    """Of 78 cells; `rank x worst of 4 steps` was not understood."""
    title = text_of(heat_lines(ViewState(snapshot(Made(ranks=8)), COLOUR), 78, 12))[0]
    assert "─ lateness, rank x step, worst of 9 steps " in title
    assert " ■<5 ■5 ■10 ■20 ■50 ■100 % of base ─" in title


@pytest.mark.parametrize(
    ("ranks", "steps", "said"),
    [
        (8, 400, "lateness, rank x step, worst of 6 steps "),
        (64, 400, "lateness, host x step, worst of 6 steps "),
        (8, 60, "rank x step ─"),
    ],
)
def test_the_title_says_at_every_width_how_many_steps_a_cell_shows(ranks: int, steps: int, said: str) -> None:
    made = snapshot(Made(ranks=ranks, straggler=5))
    assert said in text_of(heat_lines(ViewState(last_steps(made, steps), COLOUR), 80, 12))[0]


@pytest.mark.parametrize(
    ("width", "stops"), [(36, (20,)), (39, (20,)), (49, (20,)), (57, STOPS), (72, STOPS), (80, STOPS)]
)
def test_a_narrow_map_leaves_words_of_its_title_out_before_stops_and_says_of_what_the_worst_is(
    width: int, stops: Sequence[int]
) -> None:
    """Beside two compared ranks in 120 columns the title had `worst of 7` and neither `<5` nor 10 and 50."""
    made = snapshot(Made(ranks=8, straggler=5))
    title = text_of(heat_lines(ViewState(last_steps(made, width * 3), COLOUR), width, 10))[0]
    swatch = COLOUR.glyphs.swatch
    assert f"{swatch}<5 {''.join(f'{swatch}{stop} ' for stop in stops)}%" in title
    assert re.search(r"worst of \d steps ", title)
    assert "late" in title, "the metric is named, at last in the legend"


def test_the_map_beside_two_compared_ranks_in_120_columns_names_its_metric() -> None:
    """It had all stops and no metric: what stops lie between is guessed more easily than what is shown."""
    title = text_of(heat_lines(ViewState(snapshot(Made(straggler=5)), COLOUR), 49, 4, only=[5, 0]))[0]
    swatch = COLOUR.glyphs.swatch
    assert title == f"─ lateness, worst of 15 steps a cell  {swatch}<5 {swatch}20 % ─"


def test_a_narrow_map_has_every_colour_that_it_shows_in_its_legend() -> None:
    """Cells of 50 to 100 % stood beside a legend of `<5 5 20 100`."""
    made = last_steps(snapshot(Made(ranks=8)), 30)
    assert made.heat is not None
    values = np.zeros_like(made.heat.values)
    values[2], values[5] = 0.12 * made.heat.base_ms, 0.7 * made.heat.base_ms
    shown = ViewState(replace(made, heat=replace(made.heat, values=values)), COLOUR)
    title = text_of(heat_lines(shown, 45, 12))[0]
    swatch = COLOUR.glyphs.swatch
    assert f" {swatch}<5 {swatch}10 {swatch}50 % " in title


def test_a_narrow_map_of_another_metric_keeps_its_name() -> None:
    made = snapshot(Made(ranks=8))
    assert made.heat is not None
    shown = ViewState(replace(made, chosen_heat=replace(made.heat, metric="wait")), COLOUR)
    assert all("wait, " in text_of(heat_lines(shown, width, 10))[0] for width in (36, 49, 80))


@pytest.mark.parametrize("step", [None, 800, 606])
def test_the_cursor_crosses_every_row_of_which_nothing_is_known(step: int | None) -> None:
    """Such a host in a map of few hosts had two lines, one of them without a cell: the cursor ended the dashboard."""
    made = snapshot(Made(ranks=64, per_node=8))
    assert made.heat is not None
    values = made.heat.values.copy()
    values[16:24] = np.nan
    shown = ViewState(replace(made, heat=replace(made.heat, values=values)), COLOUR)
    lines = text_of(heat_lines(shown, 160, 19, cursor=Cursor(16, step)))
    assert [COLOUR.glyphs.here in line for line in lines[1:6]] == [False, False, False, False, True]
    assert "known in these steps" in lines[5]


def test_in_ascii_what_is_not_known_does_not_look_like_a_calm_row() -> None:
    made = snapshot(Made(ranks=8))
    assert made.heat is not None
    values = made.heat.values.copy()
    values[2] = np.nan
    shown = ViewState(replace(made, heat=replace(made.heat, values=values)), LOOKS["ascii"])
    (row,) = (line for line in text_of(heat_lines(shown, 120, 12)) if "not known in these steps" in line)
    assert row.split() == ["2", "not", "known", "in", "these", "steps"]
