"""Percentages of a step have one base, and a lateness counts by its share of a step: short steps are no noise."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from ddpmon.format import signed
from ddpmon.report.base_step import base_share, base_step_ms, noise_ms
from ddpmon.report.headline import facts
from ddpmon.report.peers import compare
from ddpmon.snapshot import Snapshot
from ddpmon.tui.draw.against import against_lines
from ddpmon.tui.draw.heat import heat_lines
from ddpmon.tui.draw.heat_layout import Cursor
from ddpmon.tui.draw.host_detail import host_page
from ddpmon.tui.draw.host_table import host_table_lines
from ddpmon.tui.draw.run_plots import lateness_plot
from ddpmon.tui.draw.table import TableView
from ddpmon.tui.filter.fits import fitting_ranks
from ddpmon.tui.theme import LEVELS
from ddpmon.tui.view_state import ViewState
from tests.tui.made_runs import Made, snapshot
from tests.tui.test_drawing import LOOKS, text_of

ASCII, COLOUR = LOOKS["ascii"], LOOKS["colour"]
LATE = snapshot(Made(ranks=8, straggler=5, extra_ms=200.0))


def quicker(made: Snapshot, factor: float) -> Snapshot:
    """The same run with steps that take so much less time."""
    assert made.ranks is not None
    assert made.heat is not None
    times = [field.name for field in fields(made.ranks) if field.name.endswith("_ms")]
    ranks = replace(made.ranks, **{name: getattr(made.ranks, name) * factor for name in times})
    scale = np.float32(factor)
    heat = replace(made.heat, values=made.heat.values * scale, base_ms=made.heat.base_ms * scale)
    return replace(made, ranks=ranks, heat=heat, findings=(), job=replace(made.job, step_ms=None))


QUICK = quicker(snapshot(Made(ranks=8, straggler=5)), 0.01)


def test_headline_filter_hosts_and_heat_map_take_the_step_in_which_nobody_is_late() -> None:
    """200 ms are 153 % of a step of 131 ms; of the step as it became, of 331 ms, they are 60 %."""
    assert base_step_ms(LATE) == pytest.approx(131, abs=0.5)
    assert base_share(LATE, 200.0) == pytest.approx(153, abs=1)
    assert any("(+153 % of base)" in part for part in next(iter(facts(LATE.findings[0], LATE, "."))))
    assert np.flatnonzero(fitting_ranks(LATE, "late>100%")).tolist() == [5]
    title = text_of(heat_lines(ViewState(LATE, ASCII), 160, 12, cursor=Cursor(5)))[0]
    assert "% of base step" in title
    assert any(f", {percent} % of base step" in title for percent in range(145, 161))
    some = snapshot(Made(ranks=8, straggler=5, extra_ms=75.0))
    lines = host_table_lines(ViewState(some, COLOUR), TableView(np.arange(2)), 160, 8, "late")
    hottest = [segment.style for line in lines for segment in line if segment.text.strip() == "+75"][-1]
    assert hottest is not None
    assert hottest.bgcolor is not None
    assert hottest.bgcolor.name == COLOUR.ramp[LEVELS - 1], "57 % of a step: from 50 % on"


def test_what_is_late_in_a_step_of_a_millisecond_is_told_in_every_view() -> None:
    assert noise_ms(QUICK) < 0.01
    shown = ViewState(QUICK, ASCII)
    hosts = text_of(host_table_lines(shown, TableView(np.arange(2)), 160, 8, "late"))
    assert hosts[3].count("+0.41") + hosts[3].count("+0.40") + hosts[3].count("+0.42") == 2, "the host and its rank"
    for lines in (
        host_page(shown, 1, 120, named_first=True).lines,
        against_lines(shown, 5, 100, 12),
        lateness_plot(shown, 5, 80, 8),
    ):
        assert any(f"+0.{hundredths}" in line for line in text_of(lines) for hundredths in (40, 41, 42))
    title = text_of(heat_lines(shown, 160, 12, cursor=Cursor(5)))[0]
    assert "lateness +0.4" in title
    rows = {row.quantity.name: row for row in compare(QUICK, [5]).rows}
    assert rows["input"].is_worse()
    assert not rows["optimizer"].is_worse()


def test_what_is_below_the_noise_is_said_to_be_and_grows_with_the_step() -> None:
    assert QUICK.heat is not None
    values = QUICK.heat.values.copy()
    values[2] = 0.004
    calm = replace(QUICK, heat=replace(QUICK.heat, values=values))
    title = text_of(heat_lines(ViewState(calm, COLOUR), 160, 12, cursor=Cursor(2)))[0]
    assert "lateness ±0, noise (<0.5 % of base step)" in title
    long = quicker(LATE, 10.0)
    assert noise_ms(long) == pytest.approx(6.55, abs=0.05)
    assert [signed(late, noise=noise_ms(long)) for late in (6.0, 7.0)] == ["±0", "+7.0"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(41.2, "+41"), (-3.14, "-3.1"), (0.312, "+0.31"), (0.004, "±0"), (0.0, "±0"), (1234.0, "+1,234")],
)
def test_a_difference_has_as_many_digits_as_it_needs(value: float, text: str) -> None:
    assert signed(value) == text
