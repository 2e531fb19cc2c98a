"""Rule B: the rank that costs the job, now and then. The what-if of every step, and a guard against chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ddpmon.diagnose.alert import Alert
from ddpmon.diagnose.alert_book import AlertBook, Life
from ddpmon.diagnose.blame import blame
from ddpmon.diagnose.late_policy import INTERMITTENT, SUSTAINED
from ddpmon.diagnose.measure import Others, Whom, cost_of_steps
from ddpmon.diagnose.step_matrix import StepMatrix, ends_of_blocks
from ddpmon.diagnose.straggler import Stragglers
from ddpmon.diagnose.tick import Tick
from ddpmon.run.model import Run
from ddpmon.run.rings import I64


@dataclass(frozen=True, slots=True)
class Hits:
    """Steps (their places on record, ascending) in which one rank, or some together, held the others up."""

    at: I64

    @property
    def last(self) -> int:
        """The newest, -1 without any."""
        return int(self.at[-1]) if self.at.size else -1

    @property
    def gap(self) -> float:
        """The mean number of steps from one to the next."""
        gaps = np.diff(self.at[-INTERMITTENT.kept_gaps :])
        return float(gaps.mean()) if gaps.size else 1.0

    @property
    def pause(self) -> float:
        """After so many steps without one it is over."""
        return max(INTERMITTENT.quiet_steps, INTERMITTENT.quiet_gaps * self.gap)

    @property
    def first(self) -> int:
        """The first of the present stretch."""
        breaks = np.flatnonzero(np.diff(self.at) > self.pause)
        return int(self.at[breaks[-1] + 1] if breaks.size else self.at[0])

    @property
    def steady(self) -> bool:
        """Whether the present stretch is of nearly all steps."""
        stretch = self.at[self.at >= self.first]
        return len(stretch) >= SUSTAINED.steady_share * (self.last + 1 - self.first)

    def fresh(self, end: int) -> bool:
        """Whether the newest is no further behind `end` than usual."""
        return end - self.last <= max(INTERMITTENT.quiet_steps, self.gap)


class CostlyRanks:
    """Follows who is slowest by far in some of the steps: intermittent stragglers.

    Args:
        book: where its alerts live.
        steady: the rule on ranks that are late at every step. The two rules know each other: whom one of them has
            confirmed, the other leaves alone.
    """

    def __init__(self, book: AlertBook, steady: Stragglers) -> None:
        self.lives = book.group("intermittent")
        self._steady = steady
        self._judged = -1

    def __call__(self, tick: Tick, _said: Sequence[Alert]) -> list[Alert]:
        """Judge the steps that have come in; ranks that are known to be late at every step are not intermittent."""
        run, matrix, named = tick.run, tick.steps, self._steady.suspects
        if len(matrix.ranks) < 2 or not len(matrix.steps):
            return []
        self.lives.keep(set(matrix.ranks.tolist()) - named)
        steps = matrix.steps
        ends = ends_of_blocks(steps, INTERMITTENT.every_steps, self._judged)
        self._judged = max(self._judged, int(steps[-1]))
        hits = _hits(matrix)
        for end in ends.tolist():
            self._observe(matrix, hits, end, named)
        for life in self.lives:
            self._describe(run, matrix, life, hits, named)
        return self.lives.firing

    def _observe(self, matrix: StepMatrix, hits: NDArray[np.bool_], end: int, named: set[int]) -> None:
        step = int(matrix.steps[end - 1])
        windows = [window for window in INTERMITTENT.windows_steps if end >= window]
        rows = {row for window in windows for row in _costliest(matrix, hits, end, window)}
        for rank in sorted(int(matrix.ranks[row]) for row in rows):
            if rank not in named and not _own_hits(matrix, hits[:end], rank).steady:
                self.lives.observe(rank, step, high=True, low=False)
        for life in list(self.lives):
            own = _own_hits(matrix, hits[:end], life.key)
            if end - 1 - own.last > own.pause:
                self.lives.resolve(life.key, int(matrix.steps[own.last + 1]))

    def _describe(self, run: Run, matrix: StepMatrix, life: Life, hits: NDArray[np.bool_], named: set[int]) -> None:
        own = _own_hits(matrix, hits, life.key)
        if not own.at.size or (life.alert is not None and not own.fresh(len(matrix.steps))):
            return
        first = own.first
        chosen = own.at[own.at >= first][-INTERMITTENT.described_steps :]
        rows = np.flatnonzero(matrix.ranks == life.key)
        suspects = np.flatnonzero(np.isin(matrix.ranks, [*named, *(other.key for other in self.lives)]))
        peers = np.delete(matrix.ranks, suspects)
        normal = Others(
            run, matrix.steps[chosen], peers if peers.size else np.delete(matrix.ranks, rows), own=matrix.own
        )
        state = run.ranks[life.key]
        host = "" if state is None else state.frame.host
        span = np.arange(len(matrix.steps)) >= int(chosen[0])
        late = replace(
            normal.compare(run, Whom((life.key,), host)),
            cost_pct=cost_of_steps(matrix, rows, suspects, chosen, span),
            cost_most_pct=None
            if matrix.own is None
            else cost_of_steps(matrix, rows, suspects, chosen, span, at_most=True),
            hit_steps=len(chosen),
            one_step_in=own.gap,
        )
        since = (int(matrix.steps[first]), first <= own.pause and int(matrix.steps[0]) > INTERMITTENT.quiet_steps)
        life.describe(blame("intermittent_straggler", life, (host,), since, late))


def _hits(matrix: StepMatrix) -> NDArray[np.bool_]:
    """[T] steps in which one rank works longer than every other by more than a tenth of a typical step.

    With two ranks the other may merely have been quick: there the slow one must also be slow by its own history.
    """
    top, typical = matrix.job("top"), matrix.job("typical")
    hits = top - matrix.job("second") > INTERMITTENT.hit_share * typical
    if len(matrix.ranks) == 2:
        usual = np.median(matrix.work[:, -INTERMITTENT.windows_steps[-1] :], axis=1)
        hits &= top > (1 + INTERMITTENT.hit_share) * usual[matrix.top_row]
    found: NDArray[np.bool_] = hits
    return found


def _own_hits(matrix: StepMatrix, hits: NDArray[np.bool_], rank: int) -> Hits:
    """The steps in which this rank held the others up, those aside in which it was last by noise alone.

    `hits` may end before the record does. Where the rank is really late it is so by much the same: what is below half
    of the larger ones is noise.
    """
    (row,) = np.flatnonzero(matrix.ranks == rank)
    at = np.flatnonzero(hits & (matrix.top_row[: len(hits)] == row))
    if not at.size:
        return Hits(at)
    gap = (matrix.job("top") - matrix.job("second"))[at]
    large = np.quantile(gap[-INTERMITTENT.described_steps :], INTERMITTENT.large_quantile)
    return Hits(at[gap >= INTERMITTENT.real_share * large])


def _costliest(matrix: StepMatrix, hits: NDArray[np.bool_], end: int, window: int) -> list[int]:
    """The rows whose slow steps cost at least 5 % net in the window, where it is not chance that they are their own.

    `saved_i = sum(max - second max where i is the max) / sum(max)`, values clipped at twice the typical step (five
    times, in the longer windows); net of what the first rank costs that can no longer be one of those who come and go,
    at most half of all, and eight (docs/detection.md "Intermittent stragglers").
    """
    part = slice(end - window, end)
    top, second, typical = (matrix.job(name)[part] for name in ("top", "second", "typical"))
    top_row, hit = matrix.top_row[part], hits[part]
    rare = window > INTERMITTENT.windows_steps[0]
    if rare:
        hit = hit & (top - second > INTERMITTENT.rare_hit_share * typical)
    if hit.sum() < INTERMITTENT.fewest_steps:
        return []
    limit = (INTERMITTENT.rare_clip_ratio if rare else INTERMITTENT.clip_ratio) * np.median(typical)
    top, second = np.minimum(top, limit), np.minimum(second, limit)
    n = len(matrix.ranks)
    saved = np.bincount(top_row, top - second, n) / max(1e-9, top.sum())
    count = np.bincount(top_row[hit], minlength=n)
    often = INTERMITTENT.rare_often_share if rare else INTERMITTENT.often_share
    least = max(INTERMITTENT.fewest_steps, often * window)
    chance = INTERMITTENT.rare_chance if rare else INTERMITTENT.chance
    few = min(INTERMITTENT.most_ranks, max(1, n // 2))
    order = np.argsort(-saved)[: few + 1].tolist()
    net = saved - saved[order[-1]]
    dear = [row for row in order[:few] if net[row] >= INTERMITTENT.saved_share and count[row] >= least]
    total, others = int(hit.sum()), len(dear) - 1
    ways = math.comb(n - 1, max(0, others))  # whom to leave out: their hits are no luck of the one that is asked about
    left = {row: total - sum(int(count[other]) for other in dear if other != row) for row in dear}
    return [row for row in dear if ways * _chance(int(count[row]), left[row], n - others) < chance]


def _chance(count: int, total: int, n: int) -> float:
    """How likely it is that any of n equal ranks has `count` or more of `total` hits (binomial tail, times n)."""
    p, q = math.log(1 / n), math.log(1 - 1 / n)
    ways = math.lgamma(total + 1)
    return n * sum(
        math.exp(ways - math.lgamma(k + 1) - math.lgamma(total - k + 1) + k * p + (total - k) * q)
        for k in range(count, total + 1)
    )
