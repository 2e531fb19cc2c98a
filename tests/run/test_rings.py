"""The recent steps of more ranks than are kept in full precision."""

from __future__ import annotations

import numpy as np
import pytest

from ddpmon.run.rings import Rings

MANY = 1025
STEPS = np.arange(4)


@pytest.mark.parametrize("waited_ms", [0.02, 3.7, 80.0, 300_000.0])
def test_of_many_ranks_waits_of_any_length_keep_three_digits_and_the_step_all_of_them(waited_ms: float) -> None:
    rings = Rings(MANY)
    who, steps = np.repeat(np.arange(MANY), len(STEPS)), np.tile(STEPS, MANY)
    duration = np.float32(waited_ms + 123.456)
    exposed = np.float32(waited_ms) * (1 + who % 7 / 10).astype(np.float32)
    rings.add_rows(who, steps, [(("duration", "exposed"), np.stack([duration + exposed, exposed], axis=1))])
    sent = exposed.reshape(MANY, len(STEPS))
    assert np.array_equal(rings.take("duration", STEPS), duration + sent)
    assert np.allclose(rings.take("exposed", STEPS), sent, rtol=5e-4, atol=1e-4)
    assert np.allclose(rings.take("work", STEPS), duration, rtol=0, atol=5e-4 * float(sent.max()) + 0.05)


def test_a_wait_that_is_longer_than_half_precision_ends_is_the_longest_of_it() -> None:
    rings = Rings(MANY)
    rows = np.array([[9e8, 8e8], [9e8, 1.0]], np.float32)
    rings.add_rows(np.array([0, 1]), np.array([0, 0]), [(("duration", "exposed"), rows)])
    longest, short = rings.take("exposed", np.array([0]))[:2, 0].tolist()
    assert 6e7 < longest < np.inf
    assert short == pytest.approx(1.0, rel=1e-3)


def test_steps_of_no_ranks_are_none_after_those_of_all_ranks_were_asked_for() -> None:
    rings = Rings(2)
    rows = np.array([[10.0, 4.0], [10.0, 6.0]], np.float32)
    rings.add_rows(np.array([0, 1]), np.array([0, 0]), [(("duration", "exposed"), rows)])
    assert rings.take("work", np.array([0])).tolist() == [[6.0], [4.0]]
    assert rings.take("work", np.array([0]), np.empty(0, np.int64)).shape == (0, 1)


def test_columns_with_one_value_and_with_several_are_taken_alike() -> None:
    rings = Rings(2)
    rows = np.array([[10.0, 4.0, 1.0], [10.0, 6.0, 1.0]], np.float32)
    rings.add_rows(np.array([0, 1]), np.array([0, 1]), [(("duration", "exposed", "barrier"), rows)])
    unknown = np.nan
    found = rings.takes(("duration", "barrier", "wait", "work", "loss"), np.array([0, 1]))
    expected = [
        [[10.0, unknown], [unknown, 10.0]],
        [[1.0, unknown], [unknown, 1.0]],
        [[5.0, unknown], [unknown, 7.0]],
        [[5.0, unknown], [unknown, 3.0]],
        [[unknown] * 2] * 2,
    ]
    assert np.array_equal(found, np.array(expected, np.float32), equal_nan=True)


@pytest.mark.parametrize("steps", [[70, 71, 72], [62, 63, 64, 65], [66, 68, 71]], ids=["whole", "around", "with holes"])
def test_of_some_ranks_are_taken_what_all_ranks_have_there(steps: list[int]) -> None:
    rings = Rings(16_384)  # of which 64 steps are kept
    who, of = np.tile(np.arange(16_384), 13), np.repeat(np.arange(60, 73), 16_384)
    rings.add_rows(who, of, [(("duration", "exposed"), np.stack([100.0 + of, who % 50], axis=1).astype(np.float32))])
    some, asked = np.array([3, 4, 16_000]), np.array(steps)
    assert np.array_equal(rings.take("work", asked, np.arange(16_384)), rings.take("work", asked))
    assert np.array_equal(rings.take("work", asked, some), rings.take("work", asked)[some])
    assert np.allclose(rings.take("work", asked, some), 100.0 + asked - (some % 50)[:, None], rtol=1e-3)
    assert rings.present(asked, some).all()
