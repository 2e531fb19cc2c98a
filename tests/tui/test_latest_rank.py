"""The lateness of the latest rank of each step, in percent of a step: the same words in the timeline and its plot."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ddpmon.tui.draw.run_plots import calm_plots
from ddpmon.tui.draw.timeline_view import timeline_lines
from ddpmon.tui.view_state import ViewState
from tests.tui.made_runs import Made, snapshot
from tests.tui.test_drawing import LOOKS, text_of
from tests.tui.test_views import made_timeline

COLOUR = LOOKS["colour"]


@pytest.mark.parametrize(
    ("late", "said"), [(0.299, "±0"), (0.572, "0.6"), (0.7, "0.7"), (2.33, "2.3"), (20.94, "20.9"), (1234.5, "1,234.5")]
)
def test_the_latest_rank_has_one_decimal_and_noise_is_0(late: float, said: str) -> None:
    """It was `0.299` in the findings view, and three digits elsewhere."""
    timeline = made_timeline()
    many = len(timeline.step)
    timeline = replace(timeline, late_pct=np.full(many, late), late_rank=np.full(many, 3), marks=())
    shown = ViewState(replace(snapshot(Made()), timeline=timeline), COLOUR)
    title = text_of(calm_plots(shown, 80, 10))[0]
    assert title.startswith("─ most late rank of each step, %")
    assert title.strip(" ─").split()[-1] == said
    row = text_of(timeline_lines(shown, 120, 24))[2]
    assert row.startswith(f" {said} % {'' if late > 1000 else 'of base '}"), "where 14 cells have room for it"
