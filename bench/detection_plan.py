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

from ddpmon.diagnose.kinds import KindName

TABLE = Path(__file__).with_name("detection_cases.toml")
TINY = ("--layers=1", "--width=32", "--heads=2", "--batch=2", "--context=32", "--log-every=10")
CLEAN, FAULTY, AFTER = 90, 100, 50
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
    expect: Sequence[KindName] = ()

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
    natural: Sequence[KindName] = ()
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

    def episodes(self, step_ms: NDArray[np.float64], work_ms: NDArray[np.float64]) -> list[Episode]:
        """What should be said; costs rest on the durations [steps] and on the work [ranks, steps] as they were."""
        delays = [self._delay_ms(injection, work_ms.shape) for injection in self.case.inject]
        found = []
        for which, injection in enumerate(self.case.inject):
            if injection.expect:
                mended = work_ms - sum(delay for other, delay in enumerate(delays) if other != which)
                found.append(self._episode(injection, step_ms, _saved_ms(mended, delays[which])))
        return found

    def _span(self, injection: Injection) -> tuple[int, int]:
        """The synchronising steps; a delay of the host strikes after the reduction, and belongs to the next one."""
        first, end = injection.span(self.on)
        return first + (injection.fault == "host"), end + (injection.fault == "host")

    def _delay_ms(self, injection: Injection, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """[ranks, steps] what the fault adds to each rank's work."""
        first, end = self._span(injection)
        delay = np.zeros(shape)
        delay[list(self.who[injection.who]), first : end : injection.every] = injection.times * self.clean_ms
        return delay

    def _episode(self, injection: Injection, step_ms: NDArray[np.float64], saved_ms: NDArray[np.float64]) -> Episode:
        first, end = self._span(injection)
        nobody = injection.who == "all"
        episode = Episode(
            tuple(injection.expect),
            first,
            end,
            frozenset() if nobody else frozenset(self.who[injection.who]),
            () if nobody else (_PHASES.get(injection.fault, injection.fault),),
            cost=(lambda a, b: _cost_pct(step_ms[a : b + 1], saved_ms[a : b + 1])) if injection.times else None,
        )
        if injection.who != "node":
            return episode
        also: tuple[KindName, ...] = ("job_slower", "uneven_work", "straggler", "intermittent_straggler")
        return replace(episode, node="host1", phases=(), also=also)


def _saved_ms(work_ms: NDArray[np.float64], delay_ms: NDArray[np.float64]) -> NDArray[np.float64]:
    """[steps] what each step would be shorter without the delay: its longest work, less the longest without it."""
    saved: NDArray[np.float64] = work_ms.max(axis=0) - (work_ms - delay_ms).max(axis=0)
    return saved


def _cost_pct(step_ms: NDArray[np.float64], saved_ms: NDArray[np.float64]) -> float:
    """Percent of the job's time over the steps that were seen of all ranks."""
    seen = ~np.isnan(saved_ms)
    return float(100 * saved_ms[seen].sum() / step_ms[seen].sum()) if seen.any() else 0.0


def _join(ranks: Sequence[int]) -> str:
    return "+".join(map(str, ranks))


def read_cases() -> list[Case]:
    """The table's cases."""
    table = tomllib.loads(TABLE.read_text())
    return [_case(row) for row in table["cases"]]


def _case(row: dict[str, Any]) -> Case:
    return Case(**{**row, "inject": tuple(Injection(**injection) for injection in row.get("inject", ()))})
