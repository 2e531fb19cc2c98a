"""The axis of the timeline: steps, onsets, times of day over their steps, and lost ranks that restart as one event."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from ddpmon.format import time_of_day
from ddpmon.report.step_clock import wall_of
from ddpmon.snapshot import Finding
from ddpmon.tui.draw.timeline_view import timeline_lines
from ddpmon.tui.theme import make_look
from ddpmon.tui.view_state import ViewState
from tests.tui.test_drawing import text_of
from tests.tui.test_views import LATE, SHOWN, made_timeline, timed

COURSES = ("step", "late_pct", "late_rank", "step_ms", "allreduce_ms", "busbw_gb_s", "loss")


@pytest.mark.parametrize(("width", "share"), [(80, 0.75), (160, 0.5)])
def test_the_axis_of_the_timeline_marks_the_onset_and_times_stand_over_their_step(width: int, share: float) -> None:
    """The onset was named above the axis only, and a time of day stood to the right of its step.

    In 80 columns that of the middle would stand close behind the mark, as if it were the onset's.
    """
    made = timed(replace(SHOWN, findings=(replace(LATE, since_step=820),)))
    axis = text_of(timeline_lines(ViewState(made, make_look()), width, 24))[-1]
    first, last = axis.index("step"), len(axis.rstrip()) - 1
    assert "▲ 820" in axis
    assert axis.index("▲") == first + round((820 - 705) / (1204 - 705) * (last - first))
    place = first + share * (last - first)
    clocks = [found for found in re.finditer(r"\d\d:\d\d:\d\d", axis) if abs(found.start() + 4 - place) <= 8]
    assert [abs(clock.start() + 4 - place) <= 1 for clock in clocks] == [True]
    assert re.search(r"▲ 820 {10}", axis), "no time of another step is close behind"
    assert "▲" not in text_of(timeline_lines(ViewState(replace(made, findings=()), make_look()), width, 24))[-1]


@pytest.mark.parametrize("width", [80, 160])
def test_a_time_of_day_on_an_axis_of_few_steps_stands_once_and_over_its_step(width: int) -> None:
    """At a quarter of three steps stood the time of the first or of the second step, twice in a row."""
    made = timed(SHOWN)
    assert made.run is not None
    assert made.timeline is not None
    assert made.series is not None
    series = replace(made.series, step_ms=np.full_like(made.series.step_ms, 5_000.0))
    young = replace(made.timeline, **{name: getattr(made.timeline, name)[-4:] for name in COURSES})
    shown = replace(made, timeline=young, findings=(), series=series, run=replace(made.run, step=1204))
    axis = next(
        line for line in text_of(timeline_lines(ViewState(shown, make_look()), width, 24)) if "step 1,201" in line
    )
    first, last = axis.index("step"), len(axis.rstrip()) - 1
    clocks = re.findall(r"\d\d:\d\d:\d\d", axis)
    assert clocks == [time_of_day(wall_of(shown, step)) for step in (1202, 1203)]
    for step, clock in zip((1202, 1203), clocks, strict=True):
        assert abs(axis.index(clock) + 4 - (first + (step - 1201) / 3 * (last - first))) <= 1


@pytest.mark.parametrize(
    ("restart", "said"),
    [
        ((999, 2, 2), ["ranks 2-3 restarted"]),
        ((999, 3, 2), ["3 ranks restarted", "ranks 2-3 back"]),
        ((999, 2, 1), ["2 ranks restarted", "ranks 2-3 back"]),
        ((900, 2, 2), ["2 ranks restarted", "ranks 2-3 back"]),
    ],
)
def test_lost_ranks_that_are_back_by_a_restart_are_one_event(restart: tuple[int, int, int], said: list[str]) -> None:
    """`ranks 2-3 back` stood beside `2 ranks restarted`."""
    lost = Finding("rank_lost", "critical", "", (3, 2), since_step=800, cleared_at_step=1000)
    made = replace(timed(SHOWN), timeline=replace(made_timeline(), restarts=(restart,)), findings=(lost,))
    text = "\n".join(text_of(timeline_lines(ViewState(made, make_look()), 160, 40)))
    assert sorted(re.findall(r"(?:ranks 2-3|\d ranks) (?:back|restarted)", text)) == said


def test_a_restart_stays_where_the_axis_ends_before_the_lost_ranks_are_back() -> None:
    """Zoomed in, neither `2 ranks restarted` nor `ranks 2-3 restarted` was left."""
    lost = Finding("rank_lost", "critical", "", (3, 2), since_step=960, cleared_at_step=1000)
    made = replace(timed(SHOWN), timeline=replace(made_timeline(), restarts=((997, 2, 2),)), findings=(lost,))
    assert made.run is not None
    past = ViewState(replace(made, run=replace(made.run, step=973)), make_look(), zoom=50)
    lines = text_of(timeline_lines(past, 160, 40))
    assert [line.rstrip().endswith(" 997") for line in lines if "step 948" in line] == [True]
    assert any("2 ranks restarted •" in line for line in lines)
    text = "\n".join(text_of(timeline_lines(replace(past, zoom=60), 160, 40)))
    assert "ranks 2-3 restarted ✓" in text
    assert "2 ranks restarted •" not in text


def test_the_bus_bandwidth_does_not_run_into_the_ticks_of_its_axis() -> None:
    made = timed(SHOWN)
    assert made.timeline is not None
    steps = len(made.timeline.step)
    bandwidth, taken = np.full(steps, 0.307), np.linspace(1_960.0, 2_240.0, steps)
    shown = replace(made, timeline=replace(made.timeline, busbw_gb_s=bandwidth, allreduce_ms=taken))
    lines = text_of(timeline_lines(ViewState(shown, make_look()), 120, 18))
    assert any(re.match(r" 0\.307 GB/s +\d,\d{3}\D", line) for line in lines), lines
