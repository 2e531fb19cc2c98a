"""The rank whose CPU sets the pace while nothing shows what the CPUs of the others need: information."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddpmon.diagnose.alert import Alert, Measures
from ddpmon.diagnose.alert_book import AlertBook, Life
from ddpmon.diagnose.late_policy import HIDDEN_PACE
from ddpmon.diagnose.measure import cost_of_steps
from ddpmon.diagnose.step_matrix import StepMatrix, ends_of_blocks
from ddpmon.diagnose.tick import Tick, late_of


class HiddenPaceMeasures(Measures, frozen=True):
    """What a rank may cost whose CPU sets the pace.

    Attributes:
        cost_most_pct: percent of the run's time that fixing it saves at most. The least is nothing.
        window_steps: over how many steps.
    """

    cost_most_pct: float
    window_steps: int


class HiddenPace:
    """Follows the rank that paces a run which never synchronises: fixing it may save 10 %, and perhaps nothing."""

    def __init__(self, book: AlertBook) -> None:
        self.lives = book.group("hidden pace")
        self._judged = -1

    def __call__(self, tick: Tick, said: Sequence[Alert]) -> list[Alert]:
        """Judge the steps that have come in, of the ranks that are not known to be late."""
        matrix, steps, named = tick.steps, tick.steps.steps, {rank for alert in late_of(said) for rank in alert.ranks}
        if matrix.own is None or len(matrix.ranks) < 2 or not len(steps):
            return []
        ends = ends_of_blocks(steps, HIDDEN_PACE.every_steps, self._judged)
        self._judged = max(self._judged, int(steps[-1]))
        self.lives.keep(set(matrix.ranks.tolist()) - named)
        for end in ends[ends >= HIDDEN_PACE.window_steps].tolist():
            row, least, most = _pacer(matrix, end)
            hidden = most >= HIDDEN_PACE.worth_pct and least < HIDDEN_PACE.nothing_pct
            found = hidden and int(matrix.ranks[row]) not in named
            for key in {*self.lives.keys, int(matrix.ranks[row])}:
                high = found and key == matrix.ranks[row]
                self.lives.observe(key, int(steps[end - 1]), high=high, low=not high)
            for life in self.lives:
                if life.high:
                    life.describe(_alert(matrix, life, row, most))
        return self.lives.firing


def _pacer(matrix: StepMatrix, end: int) -> tuple[int, float, float]:
    """The row of the rank that needs longest for certain, and the least and the most that fixing it may save."""
    part = np.arange(end - HIDDEN_PACE.window_steps, end)
    row = int(np.median(matrix.work[:, part], axis=1).argmax())
    rows = np.array([row])
    if matrix.own is not None:
        close = matrix.own.take("close", matrix.steps[part], matrix.ranks[rows])
        if not np.nan_to_num(close).mean() >= HIDDEN_PACE.mostly_share:
            return row, 0.0, 0.0
    least, most = (cost_of_steps(matrix, rows, rows, part, part, at_most=at_most) for at_most in (False, True))
    return row, least, most


def _alert(matrix: StepMatrix, life: Life, row: int, most: float) -> Alert:
    return Alert(
        kind="straggler",
        severity="info",
        ranks=(life.key,),
        nodes=(matrix.hosts[matrix.host_of[row]],),
        phase="work",
        since_step=life.confirmed_at if life.alert is None else life.alert.since_step,
        since_is_bound=True,
        cost_pct=0.0,
        measures=HiddenPaceMeasures(most, HIDDEN_PACE.window_steps),
    )
