"""When steps ended, as the screen says it."""

from __future__ import annotations

import numpy as np
import pytest

from ddpmon.report.step_clock import seconds_since, wall_of
from ddpmon.run.step_times import MOST, StepTimes
from ddpmon.simulate.plan import Plan
from ddpmon.snapshot import Snapshot
from tests.recording.made_recordings import simulated


@pytest.mark.parametrize("scenario", ["hang", "healthy"])
def test_the_time_of_day_of_a_past_step_stays_the_same(scenario: str) -> None:
    seen: list[float | None] = []

    def look(snapshot: Snapshot) -> None:
        seen.append(wall_of(snapshot, 50))

    with simulated(Plan(ranks=4, scenario=scenario)) as run:
        run.go(30, look)
        for late in (0.0, 3.0, 1.5, 0.0, 2.5):  # seconds after which the watcher reads what was published
            run.clock.now += 4.0
            run.publish()
            run.clock.now += late
            look(run.observer.tick())
    known = [wall for wall in seen if wall is not None]
    assert len(known) >= 10
    assert max(known) - min(known) < 0.6


def test_while_nothing_finishes_the_newest_step_is_as_old_as_the_time_that_passes() -> None:
    with simulated(Plan(ranks=4, scenario="hang")) as run:
        run.go(40)
        first = run.observer.tick()
        run.go(10)
        later = run.observer.tick()
    assert first.run is not None
    assert first.run.step is not None
    since = [seconds_since(each, first.run.step) for each in (first, later)]
    assert since[0] is not None
    assert since[1] == pytest.approx(since[0] + 10.0)


def test_the_moments_are_bounded_and_a_restart_begins_again() -> None:
    times = StepTimes()
    for step in range(10 * MOST):
        times.note(np.array([step, -1]), np.array([step * 0.5, np.nan]))
    steps, at = times.known()
    assert len(steps) <= MOST
    assert (at == steps * 0.5).all()
    times.note(np.array([3, 2]), np.array([9_000.0, 8_999.0]))
    assert times.known()[0].tolist() == [0.0, 3.0]
