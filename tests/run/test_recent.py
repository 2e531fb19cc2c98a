"""The figures of many ranks: all at first, then half of them at a time, and none is left out for longer."""

from __future__ import annotations

import numpy as np

from ddpmon.run.recent import RANKS_AT_ONCE, RECENT, Recent
from ddpmon.run.rings import Rings


def _tell(rings: Rings, first: int, duration_ms: float) -> None:
    """All ranks tell of 20 steps that took so long."""
    world = len(rings.last)
    who, steps = np.repeat(np.arange(world), RECENT), np.tile(np.arange(first, first + RECENT), world)
    rings.add_rows(who, steps, [(("duration",), np.full((len(who), 1), duration_ms, np.float32))])


def test_of_many_ranks_half_are_worked_out_at_a_time() -> None:
    rings = Rings(RANKS_AT_ONCE + 2)
    recent = Recent(rings)
    _tell(rings, 0, 100.0)
    assert {*recent.figures()["duration"].tolist()} == {100.0}
    half = len(rings.last) // 2
    _tell(rings, RECENT, 200.0)
    assert sorted(recent.figures()["duration"].tolist()) == [100.0] * half + [200.0] * half
    _tell(rings, 2 * RECENT, 300.0)
    assert sorted(recent.figures()["duration"].tolist()) == [200.0] * half + [300.0] * half
    assert {*recent.figures()["duration"].tolist()} == {300.0}
