"""Which ranks have restarted on their own, so that their steps have the numbers of others' steps of other times."""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from ddpmon.run.latest_frames import LatestFrames
from ddpmon.run.medians import some_of
from ddpmon.run.recent import RECENT
from ddpmon.run.rings import I64, Rings

MOST_RESTARTS = 16  # that are remembered, and drawn; chosen, not measured
_PEERS = 16  # ranks that tell how long a step of the job takes; a step ends for all of them together
Flags = NDArray[np.bool_]
Restarts = deque[tuple[int, int, int]]  # the step that the run was at, how many ranks, the first of them


def note_restart(restarts: Restarts, step: int, rank: int) -> None:
    """Take down that a rank restarted when the run was at `step`: with those of at most 20 steps before as one."""
    if restarts and 0 <= step - restarts[-1][0] <= RECENT:
        first, count, lowest = restarts[-1]
        restarts[-1] = first, count + 1, min(lowest, rank)
    else:
        restarts.append((step, 1, rank))


def out_of_step(latest: LatestFrames, rings: Rings, away_s: float) -> Flags:
    """[world] the ranks that share no step with the others, although their steps have the same numbers.

    These are the ranks that are more than `away_s` seconds of steps, and 20 steps, away from the largest group that
    runs on together; of groups of one size from the one that has come furthest. A watcher that came after a restart
    finds them, too. A rank whose restart was seen need not be 20 steps away.
    """
    found = _at_other_steps(latest, rings, away_s)
    lives = np.where(found, -1, latest.restarts)
    if not (lives > 0).any():
        return found
    most = lives == _life_of_most(lives, latest, away_s)
    return found | _elsewhere((lives >= 0) & ~most, np.flatnonzero(most), latest, rings, away_s)


def _at_other_steps(latest: LatestFrames, rings: Rings, away_s: float) -> Flags:
    """[world] the ranks that are far from the largest group, even if they have gone on since their last step.

    So a rank that only stands still while the others go on is none of them: it would be with them by its last step.
    Ranks that have ended are never among them: the others may go on without these.
    """
    found, step = np.zeros(len(latest.restarts), np.bool_), latest.step
    ranks = np.flatnonzero((step >= 0) & ~latest.ended)
    if not ranks.size or step[ranks].max() - step[ranks].min() <= RECENT:  # the usual case
        return found
    silent_s = np.nanmax(latest.heard_at[ranks]) - latest.heard_at[ranks]
    heard, still_s = silent_s <= away_s, silent_s + np.nan_to_num(latest.step_s[ranks])
    step_s = _usual_step_ms(ranks[heard], rings) / 1e3
    if np.isnan(step_s):
        return found
    at_s, apart_s = step[ranks] * step_s, max(away_s, RECENT * step_s)
    low, high = _largest_group((at_s + still_s)[heard], apart_s)
    found[ranks] = (at_s + still_s < low - apart_s) | (at_s > high + apart_s)
    return found


def _largest_group(values: NDArray[np.float64], apart: float) -> tuple[float, float]:
    """The ends of the largest group of values, or the highest of several; gaps above `apart` divide groups."""
    ordered = np.sort(values)
    ends = np.append(np.flatnonzero(np.diff(ordered) > apart), len(ordered) - 1)
    sizes = np.diff(ends, prepend=-1)
    last = int(ends[np.flatnonzero(sizes == sizes.max())[-1]])
    return float(ordered[last + 1 - int(sizes.max())]), float(ordered[last])


def _life_of_most(lives: I64, latest: LatestFrames, away_s: float) -> int:
    """How often most ranks have restarted.

    Of as many ranks each, those that have restarted least often stand for the run, unless all of them have ended or
    were last heard so many seconds before others: then the whole run restarts, and those that came back go on.
    """
    heard_at = latest.heard_at
    counts = np.bincount(lives[lives >= 0])
    with np.errstate(invalid="ignore"):  # of a rank never heard of
        goes_on = ~latest.ended & (heard_at >= np.fmax.reduce(heard_at) - away_s)
    most = np.flatnonzero(counts == counts.max())
    still = most[np.isin(most, lives[goes_on])]
    return int(still[0] if len(still) else most[-1])


def with_the_first(ranks: Flags, latest: LatestFrames, rings: Rings, away_s: float) -> Flags:
    """[world] those of `ranks` that are at most so many seconds behind the first of them."""
    who = np.flatnonzero(ranks)
    behind = int(latest.step[who].max()) - latest.step
    found: Flags = ranks & ~(behind * _usual_step_ms(who, rings) / 1e3 > away_s)
    return found


def _elsewhere(found: Flags, peers: I64, latest: LatestFrames, rings: Rings, away_s: float) -> Flags:
    """[world] those of `found` that are more seconds of steps away from the middle of `peers`."""
    if found.any():
        steps = np.abs(latest.step - np.median(latest.step[peers]))
        found &= ~(steps * _usual_step_ms(peers, rings) / 1e3 <= away_s)
    return found


def _usual_step_ms(ranks: I64, rings: Rings) -> float:
    """Of some of these ranks if they tell, else of all."""
    some = rings.usual_ms(some_of(ranks, _PEERS))
    return rings.usual_ms(ranks) if np.isnan(some) else some
