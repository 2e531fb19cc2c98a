"""All verdicts on a run, tick by tick."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ddpmon.diagnose.advice import Advice
from ddpmon.diagnose.alert import SEVERITIES, Alert
from ddpmon.diagnose.alert_book import AlertBook
from ddpmon.diagnose.cause import CauseFinder
from ddpmon.diagnose.correlated import LateTogether
from ddpmon.diagnose.coverage import CoverageRule, find_duplicates
from ddpmon.diagnose.failures import conclude, find_failed
from ddpmon.diagnose.hang import find_hang
from ddpmon.diagnose.hidden import HiddenPace
from ddpmon.diagnose.intermittent import CostlyRanks
from ddpmon.diagnose.kinds import KINDS
from ddpmon.diagnose.load_imbalance import UnevenWork
from ddpmon.diagnose.losses import LossJumpRule, find_nonfinite
from ddpmon.diagnose.lost import LostRule
from ddpmon.diagnose.pauses import GcRule, find_pauses
from ddpmon.diagnose.pending import Pending, pending_alerts
from ddpmon.diagnose.regression import Pace
from ddpmon.diagnose.step_matrix import StepMatrix
from ddpmon.diagnose.straggler import Stragglers
from ddpmon.diagnose.tick import Rule, Tick
from ddpmon.diagnose.torch_memory import UnevenGpuMemory, find_gpu_memory_growth
from ddpmon.run.model import Run
from ddpmon.run.series import RunSeries


class Judge:
    """Asks the rules in their order; what it says depends on the frames and their ages alone.

    Attributes:
        pending: what the last call has seen and not said yet.
    """

    def __init__(self) -> None:
        self.pending: tuple[Pending, ...] = ()
        self._restarts = 0
        self._series: RunSeries | None = None
        self._book = AlertBook()
        # These outlive the restart of a rank: they count frames, seconds and what hosts tell, or the run's own steps.
        self._coverage, self._lost, self._causes = CoverageRule(), LostRule(self._book.ids), CauseFinder(self._book)
        self._begin()

    def _begin(self) -> None:
        """Begin to compare: what was found in the ranks' steps before is forgotten, contention is not."""
        self._book.keep_only("contention")
        self._steps = StepMatrix()
        self._stragglers = stragglers = Stragglers(self._book)
        self._rules: tuple[Rule, ...] = (
            # that the job has stopped, or will
            find_failed,
            self._lost,
            find_hang,
            find_nonfinite,
            find_duplicates,
            LossJumpRule(),
            GcRule(),
            self._coverage,
            find_gpu_memory_growth,
            UnevenGpuMemory(),
            # on ranks and hosts; each rule leaves to the ones before it what they explain
            stragglers,
            CostlyRanks(self._book, stragglers),
            HiddenPace(self._book),
            LateTogether(self._book),
            # on the job as a whole
            UnevenWork(self._book),
            Pace(self._book),
            find_pauses,
        )
        self._advice = Advice(self._book)

    def __call__(self, run: Run, ages: NDArray[np.float64]) -> tuple[Alert, ...]:
        """The alerts now, the worst and dearest first, resolved ones last. `ages` is [world] in seconds."""
        if run.restarts != self._restarts:  # ranks that restart count their steps from the beginning
            self._restarts = run.restarts
            self._begin()
        if run.series is not self._series:
            self._series = run.series
            self._begin_steps_again(run)
        tick, said = Tick(run, ages, self._steps), list[Alert]()
        self._steps.update(run, tick.alive)
        for rule in self._rules:
            said += rule(tick, said)
        said = self._causes(tick, said)
        said += self._advice(tick, said)
        self.pending = pending_alerts(tick, said, self._book, self._stragglers.host_names, self._causes.pending)
        return (*sorted(said, key=_weight, reverse=True), *self._resolved())

    def conclude(self, run: Run, alerts: tuple[Alert, ...]) -> tuple[Alert, ...]:
        """The last `alerts` of a run whose store has ended; nothing more will tell which rank failed first."""
        self.pending = ()
        is_said = not run.latest.failed.any() or any(alert.kind == "rank_failed" for alert in alerts)
        return alerts if is_said else (*conclude(run), *alerts)

    def _begin_steps_again(self, run: Run) -> None:
        """The run counts its steps from the beginning: what is over was at steps of before, and what lasts began then.

        The plots and the times of day know the new steps alone.
        """
        newest = int(run.latest.step[~run.out_of_step()].max(initial=0))
        self._book.begin_again()
        self._lost.begin_again()
        self._causes.begin_again(newest)

    def _resolved(self) -> list[Alert]:
        """What is over, the newest first."""
        over = [*self._book.resolved, *self._lost.resolved]
        return sorted(over, key=lambda alert: alert.cleared_at_step or 0, reverse=True)


def _weight(alert: Alert) -> tuple[int, int, bool, float]:
    """Of two that are as severe, who is late stands before that the run is slower, which follows from it."""
    kind = KINDS[alert.kind]
    return SEVERITIES.index(alert.severity), kind.broken, not kind.slower, alert.cost_pct or 0.0
