"""Uneven work, and nobody in particular: some rank is always last, but never the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddpmon.diagnose.alert import Alert, Measures
from ddpmon.diagnose.alert_book import AlertBook
from ddpmon.diagnose.job_policy import UNEVEN_WORK
from ddpmon.diagnose.step_matrix import StepMatrix, ends_of_blocks
from ddpmon.diagnose.tick import Tick, late_of


class UnevenWorkMeasures(Measures, frozen=True):
    """How uneven the work of the ranks is, over a window of steps.

    Attributes:
        gap_ms: by how much the slowest rank of a step works longer than the mean, on average.
        imbalance_share: `1 - mean(mean_r work / max_r work)`, of 1.
        most_often_last_share: the share of the steps, of 1, in which the rank that is last most often is last.
        window_steps: the window.
    """

    gap_ms: float
    imbalance_share: float
    most_often_last_share: float
    window_steps: int


class UnevenWork:
    """Follows the imbalance `1 - mean(mean_r work / max_r work)` (docs/detection.md "Uneven work")."""

    def __init__(self, book: AlertBook) -> None:
        self.lives = book.group("uneven work")
        self._judged = -1

    def __call__(self, tick: Tick, said: Sequence[Alert]) -> list[Alert]:
        """Judge the steps that have come in, unless somebody in particular is late."""
        matrix, steps, explained = tick.steps, tick.steps.steps, bool(late_of(said))
        if len(matrix.ranks) < 2 or not len(steps):
            return []
        ends = ends_of_blocks(steps, UNEVEN_WORK.every_steps, self._judged)
        self._judged = max(self._judged, int(steps[-1]))
        for end in ends[ends >= UNEVEN_WORK.window_steps].tolist():
            cost, own = _imbalance(matrix, end)
            least = UNEVEN_WORK.least_imbalance_share
            high = cost >= least and own <= UNEVEN_WORK.own_share and not explained
            calm = int(steps[end - 1 if explained else end - 1 - UNEVEN_WORK.window_steps // 2])
            self.lives.observe(0, int(steps[end - 1]), high=high, low=cost < least / 2 or explained, calm=calm)
            for life in self.lives:
                if high:
                    since = life.confirmed_at if life.alert is None else life.alert.since_step
                    life.describe(_alert(matrix, end, since, cost))
        return self.lives.firing


def _imbalance(matrix: StepMatrix, end: int) -> tuple[float, float]:
    """The imbalance, and the largest part of it that one rank holds beyond an equal share."""
    part = slice(end - UNEVEN_WORK.window_steps, end)
    mean, top = matrix.job("mean")[part], matrix.job("top")[part]
    n = len(matrix.ranks)
    held = np.bincount(matrix.top_row[part], top - mean, n) / max(1e-9, float((top - mean).sum()))
    return float(1 - np.mean(mean / np.maximum(top, 1e-9))), float((held.max() - 1 / n) / (1 - 1 / n))


def _alert(matrix: StepMatrix, end: int, since: int | None, cost: float) -> Alert:
    part = slice(end - UNEVEN_WORK.window_steps, end)
    gap = matrix.job("top")[part] - matrix.job("mean")[part]
    share = np.bincount(matrix.top_row[part]).max() / UNEVEN_WORK.window_steps
    return Alert(
        kind="uneven_work",
        severity="info",
        since_step=since,
        since_is_bound=True,  # it is the step at which the window had shown it often enough
        cost_pct=100 * float(gap.sum() / max(1e-9, matrix.job("duration")[part].sum())),
        measures=UnevenWorkMeasures(float(gap.mean()), cost, float(share), UNEVEN_WORK.window_steps),
    )
