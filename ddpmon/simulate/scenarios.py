"""What befalls the simulated ranks: who works longer in which steps, who hangs, who dies and comes back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ddpmon.simulate.plan import Plan

F32 = NDArray[np.float32]
I64 = NDArray[np.int64]
_STEADY, _NODE, _CLASH, _NOW_AND_THEN = 0.3, 0.2, 0.35, 0.8
_EVERY = 5
_CYCLE_S, _AWAY_S, _FIRST_S = 40.0, 14.0, 20.0


@dataclass(frozen=True, slots=True)
class Delay:
    """Some ranks' share of a step's work on top, in one phase, in every so many steps."""

    ranks: I64
    phase: str
    share: float
    every: int = 1


@dataclass(frozen=True, slots=True)
class Scenario:
    """What a plan's scenario comes to.

    Attributes:
        delays: who works longer from the plan's `fault_step` on.
        hung: the rank that stops in `fault_step`, None for nobody.
        shared_gpu: the rank on whose GPU a foreign process computes. hogged: the host whose CPUs another job takes.
        leaking: the rank whose tensors grow. swollen: the rank that needs more device memory than the others.
        churn: groups of ranks, one of which is away at a time; empty for none.
    """

    delays: tuple[Delay, ...] = ()
    hung: int | None = None
    shared_gpu: int | None = None
    hogged: int | None = None
    leaking: int | None = None
    swollen: int | None = None
    churn: tuple[I64, ...] = ()

    def extra(self, plan: Plan, steps: I64, work_ms: float) -> dict[str, F32]:
        """Phase -> [ranks, steps] ms on top."""
        found: dict[str, F32] = {}
        for delay in self.delays:
            hit = (steps >= plan.fault_step) & (steps % delay.every == 0)
            if hit.any():
                table = found.setdefault(delay.phase, np.zeros((plan.ranks, len(steps)), np.float32))
                table[delay.ranks[:, None], np.flatnonzero(hit)] += np.float32(delay.share * work_ms)
        return found

    def lives(self, plan: Plan, seconds: float) -> tuple[I64, NDArray[np.float64], NDArray[np.bool_]]:
        """[ranks] each: how often a rank has come back by now, when it did so last (0 before), whether it is away."""
        lives, since, away = np.zeros(plan.ranks, np.int64), np.zeros(plan.ranks), np.zeros(plan.ranks, np.bool_)
        turns = int((seconds - _FIRST_S) // _CYCLE_S) + 1 if self.churn and seconds >= _FIRST_S else 0
        for turn in range(turns):
            group, back = self.churn[turn % len(self.churn)], _FIRST_S + turn * _CYCLE_S + _AWAY_S
            if seconds < back:
                away[group] = True
            else:
                lives[group] += 1
                since[group] = back
        return lives, since, away


def scenario_of(plan: Plan) -> Scenario:
    """The scenario that the plan names."""
    n, one = plan.ranks, np.array
    straggler = Delay(one([n // 3]), "backward", _STEADY)
    sometimes = Delay(one([n // 5]), "input", _NOW_AND_THEN, _EVERY)
    slow_node = Delay(_on(plan, plan.nodes // 2), "forward", _NODE)
    clash = (Delay(one([2 * n // 3]), "backward", _CLASH), Delay(_on(plan, plan.nodes // 4), "input", _NODE))
    named = {
        "healthy": Scenario(),
        "straggler": Scenario((straggler,)),
        "intermittent": Scenario((sometimes,)),
        "slow-node": Scenario((slow_node,)),
        "hang": Scenario(hung=n // 3),
        "churn": Scenario(churn=_groups(plan)),
        "clash": Scenario(clash, shared_gpu=2 * n // 3, hogged=plan.nodes // 4),
        "memory": Scenario(leaking=n // 3, swollen=2 * n // 3),
        "mixed": Scenario((straggler, sometimes, slow_node, clash[0]), shared_gpu=2 * n // 3, churn=_groups(plan)[-1:]),
    }
    return named[plan.scenario]


def _on(plan: Plan, node: int) -> I64:
    return np.arange(node * plan.per_host, min((node + 1) * plan.per_host, plan.ranks))


def _groups(plan: Plan) -> tuple[I64, ...]:
    """Who goes away together: a host's ranks, or on one host one rank at a time. Rank 0 stays."""
    if plan.nodes > 1:
        return tuple(_on(plan, node) for node in range(1, min(plan.nodes, 9)))
    return tuple(np.array([rank]) for rank in range(min(1, plan.ranks - 1), min(plan.ranks, 9)))
