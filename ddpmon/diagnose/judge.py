"""All verdicts on a run, tick by tick."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ddpmon.diagnose.advice import Advice
from ddpmon.diagnose.alert import SEVERITIES, Alert
from ddpmon.diagnose.cause import Machines
from ddpmon.diagnose.correlated import LateTogether
from ddpmon.diagnose.coverage import CoverageRule, find_doubled, find_lost
from ddpmon.diagnose.failures import find_failed
from ddpmon.diagnose.hang import find_stuck
from ddpmon.diagnose.hidden import HiddenPace
from ddpmon.diagnose.intermittent import CostlyRanks
from ddpmon.diagnose.kinds import KINDS
from ddpmon.diagnose.load_imbalance import UnevenWork
from ddpmon.diagnose.losses import LossJumpRule, find_nonfinite
from ddpmon.diagnose.pauses import GcRule, NamedPauseMeasures, find_pauses
from ddpmon.diagnose.regression import Pace
from ddpmon.diagnose.step_matrix import StepMatrix, alive
from ddpmon.diagnose.straggler import Stragglers
from ddpmon.run.model import Run


class Judge:
    """Keeps the lifetimes of the findings; what it says depends on the frames and their ages alone."""

    def __init__(self) -> None:
        self._restarts = 0
        self._coverage = CoverageRule()
        self._begin()

    def _begin(self) -> None:
        self._ledger = StepMatrix()
        self._stragglers = Stragglers()
        self._costly = CostlyRanks()
        self._hidden = HiddenPace()
        self._together = LateTogether()
        self._uneven = UnevenWork()
        self._pace = Pace()
        self._advice = Advice()
        self._machines = Machines()
        self._of_records = (LossJumpRule(), GcRule(), self._coverage)

    def __call__(self, run: Run, ages: NDArray[np.float64]) -> tuple[Alert, ...]:
        """The findings now, the worst and dearest first, cleared ones last. `ages` is [world] in seconds."""
        if run.restarts != self._restarts:  # ranks that restart count their steps from the beginning
            self._restarts = run.restarts
            self._begin()
        failed = find_failed(run, ages)
        told = {rank for finding in failed for rank in finding.ranks}
        lost = [finding for finding in find_lost(run, ages) if not told.issuperset(finding.ranks)]
        found = [*failed, *lost, *find_stuck(run, ages), *find_nonfinite(run, ages), *find_doubled(run, ages)]
        for rule in self._of_records:
            found += rule.update(run, ages)
        of_work = self._of_work(run, ages)
        found += _without_named(find_pauses(run, ages), of_work)
        found += of_work
        return (*sorted(found, key=_weight, reverse=True), *self._cleared())

    def _of_work(self, run: Run, ages: NDArray[np.float64]) -> list[Alert]:
        """What the durations of the steps tell."""
        matrix = self._ledger
        matrix.update(run, alive(run, ages))
        found = self._stragglers.update(run, matrix, set(self._costly.cases.keys))
        found += self._costly.update(run, matrix, self._stragglers.suspects)
        found += self._hidden.update(matrix, {rank for each in found for rank in each.ranks})
        found += self._together.update(run, matrix, explained=any(each.severity != "info" for each in found))
        found += self._uneven.update(matrix, explained=bool(found))
        found += self._pace.update(run, matrix, found)
        found = self._machines.update(run, matrix, found, self._slow_no_more())
        return [*found, *self._advice.update(run, matrix)]

    def _slow_no_more(self) -> list[Alert]:
        """The lateness and slowness that is over."""
        cleared = [*self._stragglers.cleared]
        for rule in (self._costly, self._hidden, self._together, self._uneven, self._pace):
            cleared += rule.cases.cleared
        return cleared

    def _cleared(self) -> list[Alert]:
        cleared = [*self._machines.over, *self._machines.cleared]
        return sorted(cleared, key=lambda finding: finding.cleared_at_step or 0, reverse=True)


def _without_named(pauses: list[Alert], of_work: list[Alert]) -> list[Alert]:
    """The pauses, without the long steps of a rank that is known to come and go."""
    known = {rank for finding in of_work if finding.kind == "intermittent_straggler" for rank in finding.ranks}
    return [
        pause
        for pause in pauses
        if isinstance(pause.measures, NamedPauseMeasures) or not known.intersection(pause.ranks)
    ]


def _weight(finding: Alert) -> tuple[int, int, float]:
    return SEVERITIES.index(finding.severity), KINDS[finding.kind].broken, finding.cost_pct or 0.0
