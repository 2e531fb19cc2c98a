"""What is drawn of the newest steps is worked out for what is new only, and is the same as from the beginning."""

from __future__ import annotations

from dataclasses import astuple

import numpy as np

from ddpmon.run.rings import Rings
from ddpmon.run.step_map import StepMap
from tests.made_frames import columns

RANKS = 4096  # of so many ranks 256 steps are kept


def record(rings: Rings, rank: int, steps: range, work_ms: float) -> None:
    values = {"duration": [work_ms + 5.0] * len(steps), "exposed": [5.0] * len(steps)}
    rings.add([(rank, columns(list(steps), values))])


def same_as_from_the_beginning(rings: Rings, kept: StepMap) -> bool:
    some, everything = astuple(kept.read("work")), astuple(StepMap(rings).read("work"))
    return all(np.array_equal(one, other, equal_nan=True) for one, other in zip(some, everything, strict=True))


def test_the_lateness_of_new_steps_joins_that_of_the_old_ones_whatever_comes() -> None:
    rings = Rings(RANKS)
    kept = StepMap(rings)
    for rank in range(8):
        record(rings, rank, range(1000), 100.0 + rank)
    assert same_as_from_the_beginning(rings, kept)
    record(rings, 0, range(1000, 1004), 150.0)
    assert same_as_from_the_beginning(rings, kept)
    rings.clear(3)  # it restarts, and counts from 0
    assert same_as_from_the_beginning(rings, kept)
    record(rings, 3, range(20), 90.0)
    assert same_as_from_the_beginning(rings, kept)
    record(rings, 3, range(20, 1002), 90.0)  # it has caught up
    assert same_as_from_the_beginning(rings, kept)
    record(rings, 5, range(1000, 1300), 80.0)  # it runs ahead
    assert same_as_from_the_beginning(rings, kept)


def test_a_rank_that_has_restarted_does_not_make_all_steps_new() -> None:
    rings = Rings(RANKS)
    for rank in range(2):
        record(rings, rank, range(1000), 100.0)
    rings.clear(1)
    StepMap(rings).read()
    record(rings, 1, range(20), 100.0)
    assert rings.changed_from == rings.NOTHING
    record(rings, 0, range(1000, 1002), 100.0)
    assert rings.changed_from == 1000


def test_before_the_first_step_there_is_a_table_of_no_steps() -> None:
    kept = StepMap(Rings(8))
    for _ in range(2):
        newest = kept.read()
        assert (newest.step.size, newest.base_ms.size, newest.lateness.shape) == (0, 0, (8, 0))
        assert newest.column is None
    asked = kept.read("work")
    assert asked.column is not None
    assert asked.column.shape == (8, 0)


def test_the_typical_step_is_that_of_the_ranks_that_have_told_however_few() -> None:
    rings = Rings(RANKS)
    kept = StepMap(rings)
    assert np.isnan(kept.read().duration_ms).all()
    for rank in range(1, 8):
        record(rings, rank, range(30), 100.0)
    assert np.array_equal(kept.read().duration_ms, np.full(30, 105.0))
    record(rings, 9, range(30), 100.0)
    assert same_as_from_the_beginning(rings, kept)


def test_what_an_older_picture_shows_stays_while_steps_go_on() -> None:
    rings = Rings(RANKS)
    kept, shown, copies = StepMap(rings), [], []
    for step in range(900, 1000):
        for rank in (0, 1) if step % 7 else (0,):  # rank 1 tells late of some steps
            record(rings, rank, range(step, step + 1), 100.0 + rank + step % 5)
        if step % 7 == 3:
            record(rings, 1, range(step - 3, step - 2), 90.0)
        newest = kept.read("work")
        shown.append(newest)
        copies.append(newest.lateness.copy())
        if step % 4 == 0:  # each takes as long as all steps together
            assert same_as_from_the_beginning(rings, kept)
    for newest, copy in zip(shown, copies, strict=True):
        np.testing.assert_array_equal(newest.lateness, copy)


def test_the_all_reduce_does_not_jump_with_the_rank_that_has_sampled_a_step() -> None:
    """Each rank samples its window once a second, at a step of its own; that of the late rank is short."""
    rings = Rings(4)
    kept = StepMap(rings)
    windows = {0: 100.0, 1: 100.0, 2: 20.0, 3: 100.0}
    for step in range(200):
        for rank, ms in windows.items():
            sampled = [ms if step % 40 == 10 * rank else np.nan]
            rings.add([(rank, columns([step], {"duration": [120.0], "exposed": [5.0], "allreduce": sampled}))])
        kept.read()
    for newest in (kept.read(), StepMap(rings).read()):
        known = np.isfinite(newest.allreduce_ms)
        assert newest.step[known].tolist() == list(range(20, 200, 10)), "once three of four ranks have one"
        assert set(newest.allreduce_ms[known].tolist()) == {100.0}
