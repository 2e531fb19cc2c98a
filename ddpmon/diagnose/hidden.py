"""The rank whose CPU sets the pace while nothing shows what the CPUs of the others need: information."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ddpmon.diagnose.alert import Alert, Measures
from ddpmon.diagnose.cases import Case, Cases
from ddpmon.diagnose.measure import cost_of_steps
from ddpmon.diagnose.step_matrix import StepMatrix, ends_of_blocks

WINDOW = 50  # steps
_EVERY = 10  # steps
_WORTH_PCT, _NOTHING_PCT = 10.0, 1.0  # of the run's time: twice what is a warning, and less than anything reported
_MOSTLY = 0.8  # share of the window's steps


@dataclass(frozen=True, slots=True)
class HiddenPaceMeasures(Measures):
    """What a rank may cost whose CPU sets the pace.

    Attributes:
        cost_most_pct: percent of the run's time that fixing it saves at most. The least is nothing.
        window_steps: over how many steps.
    """

    cost_most_pct: float
    window_steps: int


class HiddenPace:
    """Follows the rank that paces a run which never synchronises: fixing it may save 10 %, and perhaps nothing."""

    def __init__(self) -> None:
        self.cases = Cases()
        self._judged = -1

    def update(self, matrix: StepMatrix, named: set[int]) -> list[Alert]:
        """Judge the steps that have come in; `named` are ranks that are known to be late."""
        steps = matrix.steps
        if matrix.own is None or len(matrix.who) < 2 or not len(steps):
            return []
        ends = ends_of_blocks(steps, _EVERY, self._judged)
        self._judged = max(self._judged, int(steps[-1]))
        self.cases.keep(set(matrix.who.tolist()) - named)
        for end in ends[ends >= WINDOW].tolist():
            row, least, most = _pacer(matrix, end)
            found = most >= _WORTH_PCT and least < _NOTHING_PCT and int(matrix.who[row]) not in named
            for key in {*self.cases.keys, int(matrix.who[row])}:
                high = found and key == matrix.who[row]
                self.cases.turn(key, int(steps[end - 1]), high=high, low=not high)
            for case in self.cases:
                if case.high:
                    case.finding = _alert(matrix, case, row, most)
        return [case.finding for case in self.cases if case.finding is not None]


def _pacer(matrix: StepMatrix, end: int) -> tuple[int, float, float]:
    """The row of the rank that needs longest for certain, and the least and the most that fixing it may save."""
    part = np.arange(end - WINDOW, end)
    row = int(np.median(matrix.work[:, part], axis=1).argmax())
    rows = np.array([row])
    if matrix.own is not None:
        close = matrix.own.take("close", matrix.steps[part], matrix.who[rows])
        if not np.nan_to_num(close).mean() >= _MOSTLY:
            return row, 0.0, 0.0
    least, most = (cost_of_steps(matrix, rows, rows, part, part, at_most=at_most) for at_most in (False, True))
    return row, least, most


def _alert(matrix: StepMatrix, case: Case, row: int, most: float) -> Alert:
    return Alert(
        kind="straggler",
        severity="info",
        ranks=(case.key,),
        nodes=(matrix.hosts[matrix.host_of[row]],),
        phase="work",
        since_step=case.confirmed_at if case.finding is None else case.finding.since_step,
        since_is_bound=True,
        cost_pct=0.0,
        measures=HiddenPaceMeasures(most, WINDOW),
    )
