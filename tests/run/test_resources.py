"""What the ranks used over time: the step of each reading is exact, however far a run has come."""

from __future__ import annotations

import numpy as np

from ddpmon.run.resources import RESOURCES, Resources


def test_readings_keep_their_steps_beyond_two_to_the_thirty_one() -> None:
    resources, steps = Resources(2), [7, (1 << 31) + 5, (1 << 40) + 1]
    for step in steps:
        resources.add(np.array([1]), np.array([[step, *range(1, len(RESOURCES))]], np.float64))
    assert resources.of(1)[:, 0].tolist() == steps
