"""While the run stands still, plots and tables of a rank's steps say with which step they end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpmon.tui.draw.against import against_lines
from ddpmon.tui.draw.courses import METRICS, rank_plots
from ddpmon.tui.draw.finding_view import evidence_lines
from ddpmon.tui.draw.peer_table import peer_lines
from ddpmon.tui.draw.run_plots import lateness_plot
from ddpmon.tui.theme import make_look
from ddpmon.tui.view_state import ViewState
from tests.tui.made_runs import HANG, Made, snapshot
from tests.tui.test_drawing import text_of

HANGING = snapshot(Made(stuck=2, findings=(HANG,), gpu=True, focus=2, step=400))
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
