"""Real cases from their table, and what one run of a case does: the trainer's arguments and what should be said."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import tomllib
from detection_truth import Episode
from numpy.typing import NDArray

TABLE = Path(__file__).with_name("detection_cases.toml")
TINY = ("--layers=1", "--width=32", "--heads=2", "--batch=2", "--context=32", "--log-every=10")
CLEAN, FAULTY, AFTER = 90, 100, 50
_SETTLED = 30
BASE_MS = {"forward": 30, "backward": 50}
_PHASES = {"host": "other"}


@dataclass(frozen=True)
class Injection:
    """What is done to whom; the fields are explained in the table."""

    fault: str
    who: str
    times: float
    begin: float = 0.0
    end: float = 1.0
    every: int = 1
    steps: int = 0
    expect: Sequence[str] = ()

    def span(self, on: int) -> tuple[int, int]:
        """The trainer's steps that it lasts, when the faulty stretch begins at `on`."""
        first = on + round(self.begin * FAULTY)
        return first, first + self.steps if self.steps else on + round(self.end * FAULTY)


@dataclass(frozen=True)
class Case:
    """One row of the table.

    Attributes:
        base: whether sleeps stretch all ranks' steps.
        late: whether the watcher comes in the middle of the faulty stretch.
        launch: torchrun; nodes: ranks of two hosts by name; link: two network namespaces.
        stretch: times as many steps as usual, for short ones.
    """

    name: str
    inject: Sequence[Injection] = ()
    arguments: Sequence[str] = ()
    natural: Sequence[str] = ()
    ranks: Sequence[int] = (2, 4, 8)
    launch: str = "torchrun"
    base: bool = True
    late: bool = False
    stretch: int = 1

    @property
    def quiet(self) -> bool:
        """Whether it must not alarm."""
        return not any(injection.expect for injection in self.inject)


@dataclass
class Plan:
    """One run: a case at a world size and a seed, on a machine whose clean step takes `clean_ms`."""

    case: Case
    ranks: int
    seed: int
    clean_ms: float
    on: int = field(init=False)
    who: Mapping[str, tuple[int, ...]] = field(init=False)

    def __post_init__(self) -> None:
        draw = random.Random(f"{self.case.name} {self.ranks} {self.seed}")
        self.on = CLEAN + draw.randrange(20)
        a, b = draw.sample(range(self.ranks), 2)
        half, every = self.ranks // 2, range(self.ranks)
        self.who = {"a": (a,), "b": (b,), "first": (0,), "all": tuple(every), "node": tuple(every[half:])}

    @property
    def steps(self) -> int:
        """How many steps the run takes."""
        return (self.on + FAULTY + AFTER) * self.case.stretch

    def arguments(self, folder: Path) -> list[str]:
        """The trainer's command line."""
        wanted = [*TINY, f"--steps={self.steps}", *self.case.arguments]
        if self.case.base:
            wanted += [f"--fault={kind}:rank={_join(self.who['all'])},ms={ms}" for kind, ms in BASE_MS.items()]
        wanted += [self._fault(injection) for injection in self.case.inject if injection.fault != "link"]
        return [argument.replace("FOLDER", str(folder)) for argument in wanted]

    def _fault(self, injection: Injection) -> str:
        first, end = injection.span(self.on)
        ms = f"ms={injection.times * self.clean_ms:.2f},from={first},until={end},every={injection.every}"
        return f"--fault={injection.fault}:rank={_join(self.who[injection.who])},{ms}"

    def episodes(self, step_ms: NDArray[np.float64]) -> list[Episode]:
        """What should be said, with costs from the steps' durations as they were."""
        return [self._episode(injection, step_ms) for injection in self.case.inject if injection.expect]

    def _episode(self, injection: Injection, step_ms: NDArray[np.float64]) -> Episode:
        # A delay of the host strikes after the reduction: it belongs to the next synchronising step.
        first, end = (step + (injection.fault == "host") for step in injection.span(self.on))
        alone = sum(bool(other.expect) for other in self.case.inject) == 1
        before = float(step_ms[_SETTLED : self.on].mean())
        ms = injection.times * self.clean_ms / injection.every
        nobody = injection.who == "all"
        episode = Episode(
            tuple(injection.expect),
            first,
            end,
            frozenset() if nobody else frozenset(self.who[injection.who]),
            () if nobody else (_PHASES.get(injection.fault, injection.fault),),
            cost=(lambda a, b: _cost(step_ms[a : b + 1], before, None if alone else ms)) if ms else None,
        )
        if injection.who != "node":
            return episode
        also = ("job_slower", "uneven_work", "straggler", "intermittent_straggler")
        return replace(episode, node="host1", phases=(), also=also)


def _cost(step_ms: NDArray[np.float64], before: float, ms: float | None) -> float:
    """Percent of the job's time: a lone fault's by the same run's steps before it, one of several by its delay."""
    now = float(step_ms.mean())
    return 100 * (now - before if ms is None else ms) / now


def _join(ranks: Sequence[int]) -> str:
    return "+".join(map(str, ranks))


def read_cases() -> list[Case]:
    """The table's cases."""
    table = tomllib.loads(TABLE.read_text())
    return [_case(row) for row in table["cases"]]


def _case(row: dict[str, Any]) -> Case:
    return Case(**{**row, "inject": tuple(Injection(**injection) for injection in row.get("inject", ()))})
