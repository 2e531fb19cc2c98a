"""What the ranks work that nobody suspects: what is remembered is what the whole table gives."""

from __future__ import annotations

import numpy as np

from ddpmon.diagnose.unsuspected import Unsuspected
from ddpmon.run.rings import F32, I64

RANKS, STEPS = 9, 60


def _table() -> tuple[I64, F32]:
    rng = np.random.default_rng(3)
    steps = np.sort(rng.choice(200, STEPS, replace=False)).astype(np.int64)
    return steps, rng.lognormal(4, 0.2, (RANKS, STEPS)).astype(np.float32)


def _expected(work: F32, suspects: list[int], places: I64) -> tuple[F32, F32]:
    others = np.delete(work, suspects, axis=0)[:, places]
    return np.median(others, axis=0), others.max(axis=0)


def test_steps_that_come_in_one_by_one_have_the_figures_of_the_whole_table() -> None:
    steps, work = _table()
    known = Unsuspected()
    for end in range(5, STEPS):
        for suspects in ([2], [2, 7]):  # two sets in turn, as a late rank and those beside it are asked about
            places = np.arange(max(0, end - 20), end)
            found = known.at(steps[:end], work[:, :end], np.array(suspects), places, "most")
            assert np.array_equal(found, _expected(work, suspects, places))


def test_the_places_may_be_any_in_any_order() -> None:
    steps, work = _table()
    known = Unsuspected()
    for places in (np.array([40, 3, 17]), np.array([3, 4, 59, 3]), np.arange(STEPS)[::-1]):
        found = known.at(steps, work, np.array([0]), places, "most")
        assert np.array_equal(found, _expected(work, [0], places))


def test_bounds_of_the_same_suspects_are_kept_apart() -> None:
    steps, work = _table()
    known, places = Unsuspected(), np.arange(10)
    most = known.at(steps, work, np.array([1]), places, "most")
    least = known.at(steps, work / np.float32(2), np.array([1]), places, "least")
    assert np.array_equal(np.asarray(most) / 2, least)


def test_what_has_left_the_record_is_forgotten_and_where_all_are_suspects_all_are_normal() -> None:
    steps, work = _table()
    known, everyone = Unsuspected(), np.arange(RANKS)
    for first in range(0, STEPS - 10, 5):
        part = slice(first, first + 10)
        normal, longest = known.at(steps[part], work[:, part], everyone, np.arange(10), "most")
        assert np.array_equal(normal, np.median(work[:, part], axis=0))
        assert not longest.any()
