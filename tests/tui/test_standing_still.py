"""While the run stands still, plots and tables of a rank's steps say with which step they end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ddpmon.snapshot import Timeline
from ddpmon.tui.draw.against import against_lines
from ddpmon.tui.draw.courses import METRICS, rank_plots
from ddpmon.tui.draw.finding_view import evidence_lines
from ddpmon.tui.draw.heat import heat_lines
from ddpmon.tui.draw.peer_table import peer_lines
from ddpmon.tui.draw.run_plots import lateness_plot, plots_below
from ddpmon.tui.draw.timeline_view import timeline_lines
from ddpmon.tui.theme import make_look
from ddpmon.tui.view_state import ViewState
from tests.tui.made_runs import HANG, Made, snapshot
from tests.tui.test_drawing import LOOKS, text_of

HANGING = snapshot(Made(stuck=2, findings=(HANG,), gpu=True, focus=2, step=400))
assert HANGING.run is not None
SINCE = replace(HANGING, run=replace(HANGING.run, step_age_s=29.0))
BY_KEY = {metric.key: metric for metric in METRICS}
RUNNING = replace(HANGING, findings=())
UNTIL = "up to step 400"


@pytest.mark.parametrize("width", [61, 80, 150])
def test_the_plot_below_a_hang_says_that_it_ends_with_the_last_finished_step(width: int) -> None:
    """Below `stuck in input for 68 s` the plot `rank 341: input, ms` showed ordinary times, as if it denied that."""
    lines = text_of(evidence_lines(ViewState(HANGING, make_look()), HANG, width, 60))
    title = next(line for line in lines if "rank 2: input, ms" in line)
    assert f"rank 2: input, ms, {UNTIL}" in title
    assert ", others " in title


def test_plots_and_the_table_of_a_rank_say_it_too_and_only_where_the_run_stands_still() -> None:
    for made, stands in ((HANGING, True), (RUNNING, False)):
        picture = ViewState(made, make_look())
        assert made.detail is not None
        assert (UNTIL in text_of(lateness_plot(picture, 2, 80, 10))[0]) is stands
        assert ("ms: to step 400" in text_of(peer_lines(made, 2, 60, 30, make_look()))[0]) is stands
        heading = text_of(against_lines(picture, 2, 90, 20))[0]
        assert (f"last 20 steps, {UNTIL} " in heading) is stands
        assert "last 20 steps " in text_of(against_lines(picture, 2, 70, 20))[0], "as far as there is room"
        drawn = rank_plots(picture, made.detail)
        told = {metric.key: UNTIL in text_of(drawn.plot(metric, 90, 10))[0] for metric in METRICS}
        assert told["work"] is told["backward"] is stands
        assert not told["gpu_power_w"], "a machine is read on"


@pytest.mark.parametrize("name", ["colour", "ascii"])
def test_what_is_known_of_steps_ends_with_the_sign_of_a_standstill_and_says_since_when(name: str) -> None:
    """All plots ended with the last step and looked as if the run went on."""
    look = LOOKS[name]
    for made, stands in ((SINCE, True), (replace(SINCE, findings=()), False)):
        picture = ViewState(made, look)
        assert made.detail is not None
        of_run = text_of(plots_below(picture, 60, 8))
        of_rank = {
            key: text_of(rank_plots(picture, made.detail).plot(BY_KEY[key], 90, 8)) for key in ("work", "cpu_pct")
        }
        for lines in (of_run, of_rank["work"], of_rank["cpu_pct"]):
            assert ("no step for 29 s" in lines[0]) is stands
            assert {line[-1] == look.glyphs.stalled for line in lines[1:-1]} == {stands}, lines


@pytest.mark.parametrize("name", ["colour", "ascii"])
@pytest.mark.parametrize("height", [5, 12, 24])
def test_a_heat_map_ends_with_the_sign_of_a_standstill_as_plots_do(name: str, height: int) -> None:
    look = LOOKS[name]
    for made, stands in ((SINCE, True), (replace(SINCE, findings=()), False)):
        lines = text_of(heat_lines(ViewState(made, look), 80, height))
        axis = next(place for place, line in enumerate(lines) if line.strip().startswith("step"))
        assert {line[-1] == look.glyphs.stalled for line in lines[1:axis]} == {stands}, lines


def test_the_rows_of_the_timeline_end_with_it_too_but_not_those_of_earlier_steps() -> None:
    look = LOOKS["colour"]
    steps, ms = np.arange(100, 401), np.linspace(90.0, 110.0, 301)
    timeline = Timeline(steps, ms, np.full(301, 2), ms, ms, np.full(301, np.nan), ms)
    for zoom, moment, marked in ((0, 400, True), (20, 400, True), (20, 200, False)):
        assert SINCE.run is not None
        made = replace(SINCE, timeline=timeline, run=replace(SINCE.run, step=moment))
        lines = text_of(timeline_lines(ViewState(made, look, zoom=zoom), 100, 24))
        assert any(line.rstrip().endswith(look.glyphs.stalled) for line in lines) is marked
