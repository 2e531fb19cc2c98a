"""What is to be simulated: how many ranks on how many hosts, what befalls them, and how fast they step."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ddpmon.format import plural
from ddpmon.parts import MAX_RANKS

SCENARIOS = ("healthy", "straggler", "intermittent", "slow-node", "hang", "churn", "clash", "memory", "mixed")
NEEDS_HOSTS = ("slow-node", "mixed")
BLOCK = 32  # steps made at a time
RECENT = 256  # steps that a history frame holds whole at least
SHARES = {"input": 0.05, "forward": 0.32, "backward": 0.56, "optimizer": 0.04, "other": 0.03}  # of a step's work
WORK_SHARE = 0.9  # of a step; the rest is the transfer that nobody hides
BACKWARD_OVERLAP = 0.6  # of backward: from the launch of the first bucket to its end
SAMPLES = 32.0
PARAMETERS = 70_000_000
# Ranks of a run that `ddpmon simulate` gives bucket detail. With it each puts a whole frame every second, since host
# frames cannot hold it, and a watcher reads so many in one answer (`watcher/feed.py`). In steps of 10 ms it adds 14 kB.
MOST_WITH_BUCKETS = 64
LEAK_WINDOW_S = 300.0  # over which a rank measures how much its tensors grow
GRADIENT_BYTES = 4 * PARAMETERS  # in float32
_LOSS_END, _LOSS_FALL, _LOSS_STEPS = 2.1, 8.7, 2500.0
_STEPS_BEFORE_FAULT, _SECONDS_BEFORE_FAULT = 60, 20.0
_SHORTEST_MS, _LONGEST_MS = 10.0, 60_000.0
_MOST_PROCESSES = 64
_LONGEST_HOURS = 24 * 365.0


class PlanError(ValueError):
    """A plan that makes no sense; the message is a sentence for a person."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One simulated run.

    Args:
        ranks: how many.
        hosts: on how many hosts, in order.
        scenario: of `SCENARIOS`.
        step_ms: what a step takes where nothing goes wrong.
        hours: how long the run pretends to have gone on before it begins.
        seed: of all that is random.
        processes: how many publish.
        seconds: how long, None until it is told to end.
        writer_life_s: how long a rank writes for its host before another takes over, after two seconds without one;
            None lets it write to the end.
        bucket_detail: whether the ranks tell what each gradient bucket takes.

    Raises:
        PlanError: some of this makes no sense.
    """

    ranks: int
    hosts: int = 1
    scenario: str = "healthy"
    step_ms: float = 500.0
    hours: float = 0.0
    seed: int = 0
    processes: int = 2
    seconds: float | None = None
    writer_life_s: float | None = None
    bucket_detail: bool = False

    def __post_init__(self) -> None:
        for wrong, sentence in self._complaints():
            if wrong:
                raise PlanError(sentence)

    def _complaints(self) -> Iterator[tuple[bool, str]]:
        """What may be wrong, in an order in which each can be asked once those before are right."""
        n = self.ranks
        yield not 1 <= n <= MAX_RANKS, f"cannot simulate {n:,} ranks: use 1 to {MAX_RANKS:,}"
        yield (
            not 1 <= self.hosts <= n,
            f"cannot place {plural(n, 'rank')} on {plural(self.hosts, 'host')}: every host needs at least one rank",
        )
        yield self.scenario not in SCENARIOS, f"{self.scenario!r} is not one of {', '.join(SCENARIOS)}"
        yield (
            self.scenario in NEEDS_HOSTS and self.nodes < 2,
            f"the scenario {self.scenario} needs at least 2 hosts: use --hosts 2, or another --scenario",
        )
        bounds = f"use {_SHORTEST_MS:g} to {_LONGEST_MS:g} ms"
        yield not _SHORTEST_MS <= self.step_ms <= _LONGEST_MS, f"cannot simulate steps of {self.step_ms:g} ms: {bounds}"
        hours = f"use 0 to {_LONGEST_HOURS:g}"
        yield not 0 <= self.hours <= _LONGEST_HOURS, f"cannot simulate a history of {self.hours:g} hours: {hours}"
        processes = f"use 1 to {_MOST_PROCESSES}, and no more than there are ranks"
        yield (
            not 1 <= self.processes <= min(_MOST_PROCESSES, n),
            f"cannot publish with {self.processes} processes: {processes}",
        )
        endless = self.seconds is not None and not 0 < self.seconds < math.inf
        yield endless, f"cannot simulate for {self.seconds} seconds: use a finite number above 0"
        yield (
            not 0 <= self.seed < 1 << 63,
            f"cannot use the seed {self.seed}: use a whole number from 0 to {(1 << 63) - 1}",
        )

    @property
    def per_host(self) -> int:
        """Ranks a host; the last may hold fewer."""
        return -(-self.ranks // self.hosts)

    @property
    def nodes(self) -> int:
        """Hosts that hold a rank."""
        return -(-self.ranks // self.per_host)

    def host_of(self, rank: int) -> int:
        """The number of a rank's host."""
        return rank // self.per_host

    @property
    def first_step(self) -> int:
        """The step that the run begins with: those before it are history."""
        return int(self.past_s * 1e3 / self.step_ms) // BLOCK * BLOCK

    @property
    def past_s(self) -> float:
        """For how many seconds the run pretends to have gone on before it begins: a leak is measured over minutes."""
        return max(self.hours * 3600, LEAK_WINDOW_S if self.scenario == "memory" else 0.0)

    @property
    def fault_step(self) -> int:
        """The step from which on something goes wrong."""
        return self.first_step + max(_STEPS_BEFORE_FAULT, math.ceil(_SECONDS_BEFORE_FAULT * 1e3 / self.step_ms))


def host_name(node: int) -> str:
    """What a simulated host is called."""
    return f"node{node:04d}"


def loss_at(steps: NDArray[np.int64]) -> NDArray[np.float32]:
    """[T] the loss that a rank logs on average."""
    return np.asarray(_LOSS_END + _LOSS_FALL * np.exp(-steps / _LOSS_STEPS), np.float32)
