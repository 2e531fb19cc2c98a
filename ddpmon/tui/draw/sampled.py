"""A series that is measured in few steps: a faint line holds each sample until the next, and a mark stands on it."""

from __future__ import annotations

import numpy as np

from ddpmon.snapshot import Floats

FEW = 0.25  # of the steps at most are known of a sampled series; chosen: DDP's logger on a GPU samples one in a hundred
IN_A_ROW = 4  # samples at most in the mean: a longer stretch of known steps is of a series with gaps. Chosen


def one_step_in(value: Floats) -> int:
    """In one of how many steps a sampled series is known; 0 of one that is known in most steps but for its gaps."""
    known = np.flatnonzero(np.isfinite(value))
    stretches = 1 + int((np.diff(known) > 1).sum())
    steps = len(value) - int(known[0]) if len(known) else 0
    is_sampled = stretches > 1 and len(known) <= min(FEW * steps, IN_A_ROW * stretches)
    return round(steps / len(known)) if is_sampled else 0


def rate_words(one_in: int) -> str:
    """`1 step in 37`; empty of a series that is not sampled."""
    return f"1 step in {one_in:,}" if one_in else ""


def held(value: Floats) -> Floats:
    """Each value until the next one; NaN before the first."""
    newest = np.maximum.accumulate(np.where(np.isfinite(value), np.arange(len(value)), -1))
    return np.where(newest < 0, np.nan, value[newest])
