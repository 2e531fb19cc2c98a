"""The line of figures: how much is waited, and for whom."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpmon.tui.draw.key_figures import figures_line
from ddpmon.tui.view_state import ViewState
from tests.tui.made_runs import Made, snapshot
from tests.tui.test_drawing import LOOKS, text_of


def line_of(waiting_pct: float, cost_pct: float | None, width: int = 160) -> str:
    made = snapshot(Made(ranks=8, straggler=5))
    job = replace(made.job, lost_to_waiting_pct=waiting_pct, waiting_for=(5,))
    found = replace(made.findings[0], cost_pct=cost_pct)
    return text_of([figures_line(ViewState(replace(made, job=job, findings=(found,)), LOOKS["colour"]), width)])[0]


@pytest.mark.parametrize(
    ("waiting_pct", "cost_pct", "said"),
    [
        (21.0, 18.0, "waiting 21 %, mostly on rank 5"),
        (21.0, 20.6, "waiting 21 % on rank 5"),
        (18.0, 20.0, "waiting 18 % on rank 5"),
        (21.0, 6.0, "waiting 21 %, partly on rank 5"),
        (21.0, None, "waiting 21 % on rank 5"),
    ],
)
def test_waiting_is_not_blamed_on_a_late_rank_where_it_is_more_than_that_costs(
    waiting_pct: float, cost_pct: float | None, said: str
) -> None:
    assert said in line_of(waiting_pct, cost_pct)


@pytest.mark.parametrize("width", range(100, 180))
def test_no_figure_stands_in_the_last_column(width: int) -> None:
    assert line_of(21.0, 18.0, width=width).endswith(" ")


@pytest.mark.parametrize("width", range(100, 180))
def test_no_width_blames_all_waiting_on_a_rank_that_causes_a_part_of_it(width: int) -> None:
    line = line_of(21.0, 18.0, width=width)
    assert ("rank 5" in line) is ("21 %, mostly on rank 5" in line)


def test_a_small_share_has_a_decimal_as_in_all_views() -> None:
    """`waiting 4 %` stood in the overview and `4.5 %` in the view of the run."""
    assert "waiting 4.5 % " in line_of(4.5, None)


@pytest.mark.parametrize("width", [112, 120])
def test_where_the_names_of_many_late_ranks_have_no_room_the_share_stays(width: int) -> None:
    """Neither the share nor any course stood there, with 45 columns free."""
    made = snapshot(Made(ranks=1024, per_node=8, straggler=682))
    late = (682, 341, 204, *range(512, 520))
    job = replace(made.job, lost_to_waiting_pct=28.0, waiting_for=late, throughput_ranks=1016)
    (line,) = text_of([figures_line(ViewState(replace(made, job=job), LOOKS["colour"]), width)])
    assert "waiting 28 % " in line
    assert " on rank" not in line
    assert any(sign in line for sign in LOOKS["colour"].glyphs.spark)
