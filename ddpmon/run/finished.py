"""The newest steps that all ranks have finished, as figures of the job; renewed only when there is a newer one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ddpmon.run.marks import paused_steps
from ddpmon.run.medians import lateness_beside, median, row_medians
from ddpmon.run.rings import F32, I64, Rings

# Taken apart, since glibc maps what has 2 MiB by itself, and fresh pages take longer than the copy.
_TIMES, _LOGGED = ("duration", "work", "wait", "exposed"), ("loss", "samples", "tokens")
_PAUSE_MS, _PAUSE_STEPS = 500.0, 10.0  # and so many usual steps, as `PAST_PAUSES` of the rules has them
F64 = NDArray[np.float64]
Flags = NDArray[np.bool_]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JobFigures:
    """The job over its last 20 finished steps (docs/design.md "Formulas"), NaN where unknown.

    Shares are of the time that these steps took together, without those with a pause such as a checkpoint, named or
    not, and the step after one: a median of steps would not see what happens in one step in five.

    Attributes:
        step_ms: median duration. mean_ms: mean duration of the steps without a pause.
        samples, tokens: of all ranks together, a step.
        loss: median of the newest step that has any.
        efficiency: the share of the time in which the median rank works.
        waiting: the share of the time that is lost to waiting; of one rank among others it is not known.
    """

    step_ms: float
    mean_ms: float
    samples: float
    tokens: float
    loss: float
    efficiency: float
    waiting: float


class ComparedWork(NamedTuple):
    """The ranks beside each other over the same steps.

    Attributes:
        work_ms: [world] the median work of each rank, NaN of one that has none of the steps or is at other steps.
        late_ms: [world] by how much it exceeds the median of the others'.
    """

    work_ms: F64
    late_ms: F64


class Finished:
    """Remembers what was worked out last, as long as the steps, the ranks and their processes are the same.

    What a rank has on record of a step does not change until the rank restarts.

    Args:
        rings: the steps of all ranks.
    """

    def __init__(self, rings: Rings) -> None:
        self._rings = rings
        self._known: dict[str, tuple[tuple[bytes, bytes, int], object]] = {}

    def job(self, steps: I64, alive: Flags, restarts: int) -> JobFigures:
        """The figures of the job over these steps, which all ranks in `alive` [world] have finished."""
        return self._once("job", (steps.tobytes(), alive.tobytes(), restarts), lambda: self._job(steps, alive))

    def compared(self, steps: I64, restarts: int, out_of_step: Flags, late: Flags) -> ComparedWork:
        """The work of the ranks over these steps, and by how much it exceeds the median of the others'.

        The others are without those in `late` [world], the ranks that findings call late.

        NaN for the ranks in `out_of_step` [world]: what they have on record of these steps is from another time.
        In a single step chance alone makes a healthy rank early: beside a late rank and two like it, the median of
        the others is the slower of the two.
        """
        last = self._rings.last
        behind = np.flatnonzero(last < steps.max(initial=-1))  # not compared, and may still come to these steps
        aside = np.stack([out_of_step, late])
        key = steps.tobytes(), np.stack([behind, last[behind]]).tobytes() + aside.tobytes(), restarts
        return self._once("compared", key, lambda: self._compared(steps, out_of_step, late))

    def _once(self, name: str, key: tuple[bytes, bytes, int], work_out: Callable[[], T]) -> T:
        known = self._known.get(name)
        if known is None or known[0] != key:
            known = self._known[name] = key, work_out()
        return known[1]  # type: ignore[return-value]  # each name has one type

    def _job(self, steps: I64, alive: Flags) -> JobFigures:
        who = np.flatnonzero(alive)
        take = {name: table for some in (_TIMES, _LOGGED) for name, table in self._named(some, steps, who)}
        duration = row_medians(take["duration"].T)
        pauses = paused_steps(self._rings, steps, who) | (duration > _unnamed_pause_ms(duration))
        pauses[1:] |= pauses[:-1]
        counted = duration if pauses.all() else np.where(pauses, np.nan, duration)
        exposed_least = take["exposed"].min(axis=0, initial=np.inf) if steps.size else np.empty(0)
        waiting = take["wait"].sum(axis=0) / max(1, len(take["wait"])) - np.minimum(
            exposed_least, take["wait"].min(axis=0, initial=np.inf)
        )
        return JobFigures(
            step_ms=median(duration),
            mean_ms=_share(counted, np.isfinite(duration)),
            samples=_per_step(take["samples"]),
            tokens=_per_step(take["tokens"]),
            loss=_newest(row_medians(take["loss"].T)),
            efficiency=_share(row_medians(take["work"].T), counted),
            waiting=_share(np.maximum(0, waiting), counted) if len(who) > 1 or len(self._rings.last) == 1 else math.nan,
        )

    def _named(self, names: tuple[str, ...], steps: I64, who: I64) -> Iterable[tuple[str, F32]]:
        """Each of these columns, and what these ranks have on record of it at these steps."""
        return zip(names, self._rings.takes(names, steps, who), strict=True)

    def _compared(self, steps: I64, out_of_step: Flags, late: Flags) -> ComparedWork:
        work = self._rings.take("work", steps).astype(np.float64)
        work[out_of_step] = np.nan
        if not steps.size:
            return ComparedWork(*np.full((2, len(work)), np.nan))
        usual = row_medians(work)
        return ComparedWork(usual, lateness_beside(usual[:, None], late).late[:, 0])


def _unnamed_pause_ms(duration: NDArray[Any]) -> float:
    """What a step that is a pause takes at least."""
    return max(_PAUSE_MS, _PAUSE_STEPS * median(duration))


def _share(part: NDArray[Any], whole: NDArray[Any]) -> float:
    """What the parts are together of the whole, over the steps where both are known; NaN without any."""
    known = np.isfinite(part) & np.isfinite(whole)
    total = float(whole[known].sum(dtype=np.float64))
    return float(part[known].sum(dtype=np.float64)) / total if total > 0 else math.nan


def _per_step(logged: NDArray[np.float32]) -> float:
    """What all ranks together have logged in a step, median over those [ranks, steps] in which any has; else NaN."""
    logged = logged[:, ~np.isnan(logged).all(axis=0)]
    return median(np.nansum(logged, axis=0)) if logged.size else math.nan


def _newest(values: F64) -> float:
    """The newest known of some values."""
    given = values[~np.isnan(values)]
    return float(given[-1]) if given.size else math.nan
