"""Rule B: the rank that costs the job, now and then. The what-if of every step, and a guard against chance."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from ddpmon.diagnose.alert import Alert
from ddpmon.diagnose.alert_book import AlertBook, Life
from ddpmon.diagnose.blame import blame
from ddpmon.diagnose.late_policy import INTERMITTENT, SUSTAINED
from ddpmon.diagnose.measure import Others, Whom, cost_of_steps
from ddpmon.diagnose.step_matrix import StepMatrix, ends_of_blocks
from ddpmon.diagnose.straggler import Stragglers
from ddpmon.diagnose.tick import Tick
from ddpmon.run.medians import middle, middles
from ddpmon.run.model import Run
from ddpmon.run.rings import I64


class Hits(Struct, frozen=True):
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

    def since(self, steps: I64, said: tuple[int, bool] | None, unjudged: int) -> tuple[int, bool]:
        """The first step of the present stretch, and whether it is only a bound.

        It is a bound if the record begins after the step `unjudged`, and at most `INTERMITTENT.quiet_gaps` mean gaps
        before the stretch: then an earlier late step may be missing. What was said while the record reached further
        back stands.

        Args:
            steps: [T] the steps on record.
            said: what this returned before for the same stretch; None: nothing yet.
            unjudged: the last of the first steps of a run, which are no evidence: a record that begins there is whole.
        """
        first = self.first
        is_bound = first <= INTERMITTENT.quiet_gaps * self.gap and int(steps[0]) > unjudged
        return said if is_bound and said is not None else (int(steps[first]), is_bound)

    @property
    def steady(self) -> bool:
        """Whether the present stretch is of nearly all steps."""
        stretch = self.at[self.at >= self.first]
        return len(stretch) >= SUSTAINED.steady_share * (self.last + 1 - self.first)

    def fresh(self, end: int) -> bool:
        """Whether the newest is no further behind `end` than usual."""
        return end - self.last <= max(INTERMITTENT.quiet_steps, self.gap)


def said_since(life: Life) -> tuple[int, bool] | None:
    """The onset that the last alert of a life gave, and whether it is only a bound; None before the first alert."""
    return None if life.alert is None else (life.alert.since_step or 0, life.alert.since_is_bound)


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
        since = own.since(matrix.steps, said_since(life), INTERMITTENT.quiet_steps)
        life.describe(blame("intermittent_straggler", life, (host,), since, late))


def _hits(matrix: StepMatrix) -> NDArray[np.bool_]:
    """[T] steps in which one rank works longer than every other by more than a tenth of a typical step.

    With two ranks the other may merely have been quick: there the slow one must also be slow by its own history.
    """
    top, typical = matrix.job("top"), matrix.job("typical")
    hits = top - matrix.job("second") > INTERMITTENT.hit_share * typical
    if len(matrix.ranks) == 2:
        usual = middles(matrix.work[:, -INTERMITTENT.windows_steps[-1] :])
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


class Scale(Struct, frozen=True):
    """What counts in a window: its shorter form, or the longer ones in which hits are rare and must be larger.

    Attributes:
        hit_share: part of the typical step by which a hit must exceed the second longest work.
        clip_ratio: times the typical step at which work is clipped.
        often_share: part of the window's steps that a rank must hit.
        chance: the likelihood below which hits are not chance.
    """

    hit_share: float
    clip_ratio: float
    often_share: float
    chance: float


_OFTEN = Scale(0.0, INTERMITTENT.clip_ratio, INTERMITTENT.often_share, INTERMITTENT.chance)
_RARE = Scale(
    INTERMITTENT.rare_hit_share, INTERMITTENT.rare_clip_ratio, INTERMITTENT.rare_often_share, INTERMITTENT.rare_chance
)


def _costliest(matrix: StepMatrix, hits: NDArray[np.bool_], end: int, window: int) -> list[int]:
    """The rows whose slow steps cost at least 5 % net in the window, where it is not chance that they are their own.

    At most half of all, and eight (docs/detection.md "Intermittent stragglers").
    """
    part, scale = slice(end - window, end), _RARE if window > INTERMITTENT.windows_steps[0] else _OFTEN
    top_row, hit = matrix.top_row[part], _large(matrix, hits, part, scale)
    if hit.sum() < INTERMITTENT.fewest_steps:
        return []
    n = len(matrix.ranks)
    net = _net(_saved(matrix, part, scale))
    count = np.bincount(top_row[hit], minlength=n)
    least = max(INTERMITTENT.fewest_steps, scale.often_share * window)
    dear = [row for row, saved in net.items() if saved >= INTERMITTENT.saved_share and count[row] >= least]
    return _beyond_chance(dear, count, n, scale.chance)


def _large(matrix: StepMatrix, hits: NDArray[np.bool_], part: slice, scale: Scale) -> NDArray[np.bool_]:
    """[window] the hits that are large enough for the scale."""
    if not scale.hit_share:
        return hits[part]
    top, second, typical = (matrix.job(name)[part] for name in ("top", "second", "typical"))
    found: NDArray[np.bool_] = hits[part] & (top - second > scale.hit_share * typical)
    return found


def _saved(matrix: StepMatrix, part: slice, scale: Scale) -> NDArray[np.float64]:
    """[n] `sum(max - second max where the row is the max) / sum(max)`, values clipped relative to the typical step."""
    top, second, typical = (matrix.job(name)[part] for name in ("top", "second", "typical"))
    limit = scale.clip_ratio * middle(typical)
    top, second = np.minimum(top, limit), np.minimum(second, limit)
    saved = np.bincount(matrix.top_row[part], top - second, len(matrix.ranks))
    return np.asarray(saved / max(1e-9, float(top.sum())), np.float64)


def _net(saved: NDArray[np.float64]) -> dict[int, float]:
    """Row -> what it costs beyond the first row that can no longer be one of those who come and go."""
    few = min(INTERMITTENT.most_ranks, max(1, len(saved) // 2))
    order = np.argsort(-saved)[: few + 1].tolist()
    return {row: float(saved[row] - saved[order[-1]]) for row in order[:few]}


def _beyond_chance(dear: Sequence[int], count: NDArray[np.int64], n: int, chance: float) -> list[int]:
    """Those of the `dear` rows, of n, whose hits are no chance. `count` is [n] the hits of each."""
    total, others = int(count.sum()), len(dear) - 1
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
