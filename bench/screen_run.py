"""A run of `ddpmon simulate` as a watcher knows it second by second, without a store and faster than it goes on."""

from __future__ import annotations

import time

import numpy as np

from ddpmon.diagnose.judge import Judge
from ddpmon.report.sentences import in_words
from ddpmon.run.model import Run
from ddpmon.simulate.plan import Plan
from ddpmon.simulate.rank_frames import Frames
from ddpmon.simulate.scenarios import scenario_of
from ddpmon.simulate.simulated_host import run_info
from ddpmon.snapshot import Finding, Link, Metric, Snapshot
from ddpmon.watcher.feed import RANKS_AT_ONCE
from ddpmon.watcher.picture import Moment, take_picture

_RUN_ID = "simulated"
_HOST_SIZE = 8
_HISTORIES_AT_ONCE = 256
_TO_THE_VERDICT_S = 30  # from the step at which something goes wrong


class SimulatedRun:
    """All that a watcher knows of the run of a plan.

    Args:
        plan: the run; it begins with the history that its hours say.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan, self._own = plan, np.arange(plan.ranks)
        self._frames = Frames(plan, scenario_of(plan), _RUN_ID, self._own)
        self.run, self._judge = Run(run_info(plan, _RUN_ID)), Judge()
        self._began, self._second = time.time(), 0
        self._findings: tuple[Finding, ...] = ()

    @classmethod
    def of_size(cls, ranks: int, scenario: str) -> SimulatedRun:
        """A run of six minutes, of eight ranks a host."""
        return cls(Plan(ranks, max(2, -(-ranks // _HOST_SIZE)), scenario, hours=0.1))

    @property
    def until_found(self) -> int:
        """Seconds after which the trouble of the scenario has a verdict."""
        plan = self.plan
        return int((plan.fault_step - plan.first_step) * plan.step_ms / 1e3) + _TO_THE_VERDICT_S

    def go(self, seconds: int) -> None:
        """Let so many seconds pass; of many ranks everything is read every other second, as the watcher does."""
        for _ in range(seconds):
            self._second += 1
            if self._second == 1:
                self._remember()
            if self._second % 2 or self.plan.ranks <= RANKS_AT_ONCE:
                self._read(float(self._second))

    def _remember(self) -> None:
        """Take in what the ranks remember of the time before the first second."""
        self._frames.reach(1.0)
        for first in range(0, self.plan.ranks, _HISTORIES_AT_ONCE):
            part = self._own[first : first + _HISTORIES_AT_ONCE]
            are_last = first + _HISTORIES_AT_ONCE >= self.plan.ranks
            self.run.add_history(self._frames.histories(part, 1.0), are_last=are_last)

    def _read(self, now: float) -> None:
        self._frames.reach(now)
        self.run.add_ranks([*self._frames.ranks(self._own, now)], now, {})
        for node in self._frames.nodes(self._own, now):
            self.run.add_node(node, now)
        self.run.settle(now)
        self._findings = in_words(self._judge(self.run, self.run.ages(now)))

    def picture(self, focus: int | None = None, metric: Metric = "lateness") -> Snapshot:
        """What a face draws of this second."""
        now = float(self._second)
        moment = Moment(now, now, self._began + now, Link("live"), None, "tcp://127.0.0.1:29480")
        return take_picture(self.run, moment, self._findings, self._judge.pending, focus, metric)
