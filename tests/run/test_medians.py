"""The medians are those of numpy, bit for bit: short rows, long ones, odd and even, with and without missing values."""

from __future__ import annotations

import numpy as np
import pytest

from ddpmon.run.medians import lateness_beside, median, middle, middles, row_medians

LENGTHS = (1, 2, 3, 19, 20, 63, 64, 65, 66, 1001, 4096)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("rows", [7, 300])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_medians_are_those_of_numpy(length: int, rows: int, kind: type[np.floating]) -> None:
    values = (np.random.default_rng(length).normal(size=(rows, length)) * 1e3).astype(kind)
    assert np.array_equal(middles(values), np.median(values, axis=1))
    assert np.array_equal(row_medians(values), np.median(values, axis=1))
    assert middle(values) == median(values) == float(np.median(values))


@pytest.mark.parametrize("length", [3, 20, 200])
def test_missing_values_are_left_out_or_make_the_middle_unknown(length: int) -> None:
    values = np.random.default_rng(length).normal(size=(5, length))
    values[1, 0] = values[3, :] = np.nan
    known = values[~np.isnan(values)]
    assert median(values) == float(np.median(known))
    assert np.isnan(middle(values))
    assert np.isnan(middles(values)).tolist() == [False, True, False, True, False]
    expected = [np.median(row[~np.isnan(row)]) if not np.isnan(row).all() else np.nan for row in values]
    assert np.allclose(row_medians(values), expected, rtol=1e-15, equal_nan=True)


def test_of_many_rows_those_with_missing_values_have_the_median_of_what_is_known() -> None:
    values = np.random.default_rng(1).normal(size=(300, 20))
    values[::3, 4] = values[5, :] = np.nan
    expected = [np.median(row[~np.isnan(row)]) if not np.isnan(row).all() else np.nan for row in values]
    assert np.allclose(row_medians(values), expected, rtol=1e-15, equal_nan=True)


def test_nothing_has_no_median() -> None:
    assert np.isnan(median(np.empty(0)))
    assert np.isnan(middles(np.empty((2, 0)))).all()
    assert np.isnan(row_medians(np.empty((2, 0)))).all()


def test_of_three_that_are_not_late_the_slower_two_are_not_later_than_the_late_one() -> None:
    work = np.array([[543.0], [539.0], [614.0], [455.0]])
    found = lateness_beside(work, np.array([False, False, True, False]))
    assert found.late[:, 0].tolist() == [4.0, 0.0, 75.0, -84.0]
    assert found.middle.tolist() == [539.0]


def test_a_calm_rank_beside_which_others_are_unknown_is_compared_with_the_late_one() -> None:
    """Of two ranks that can be compared the other one had a lateness of 0 in every step."""
    work = np.array([[100.0, 460.0, 100.0], [230.0, 230.0, 230.0], [np.nan] * 3, [np.nan, np.nan, 110.0]])
    found = lateness_beside(work, np.array([False, True, False, False]))
    np.testing.assert_allclose(found.late[:2], [[-130, 230, -5], [130, -230, 125]])
    np.testing.assert_allclose(found.middle, [100, 460, 105])
