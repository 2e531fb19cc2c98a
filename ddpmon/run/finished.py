"""The newest steps that all ranks have finished, as figures of the job; renewed only when there is a newer one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ddpmon.run.marks import paused_steps
from ddpmon.run.medians import lateness_beside, median, row_medians
from ddpmon.run.rings import F32, I64, Rings

# Taken apart, since glibc maps what has 2 MiB by itself, and fresh pages take longer than the copy.
_TIMES, _LOGGED = ("duration", "work", "wait", "exposed"), ("loss", "samples", "tokens")
_OF_STEP = ("duration", "work", "loss", "waiting", "samples", "tokens")  # one figure of the job a step
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
        self._life: tuple[bytes, int] | None = None  # the ranks and their processes that `_by_step` is of
        self._by_step: dict[int, F64] = {}

    def job(self, steps: I64, alive: Flags, restarts: int) -> JobFigures:
        """The figures of the job over these steps, which all ranks in `alive` [world] have finished."""
        life = alive.tobytes(), restarts
        return self._once("job", (steps.tobytes(), *life), lambda: self._job(steps, alive, life))

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

    def _job(self, steps: I64, alive: Flags, life: tuple[bytes, int]) -> JobFigures:
        who = np.flatnonzero(alive)
        of = self._of_steps(steps, who, life)
        duration = of["duration"]
        pauses = paused_steps(self._rings, steps, who) | (duration > _unnamed_pause_ms(duration))
        pauses[1:] |= pauses[:-1]
        counted = duration if pauses.all() else np.where(pauses, np.nan, duration)
        return JobFigures(
            step_ms=median(duration),
            mean_ms=_share(counted, np.isfinite(duration)),
            samples=median(of["samples"]),
            tokens=median(of["tokens"]),
            loss=_newest(of["loss"]),
            efficiency=_share(of["work"], counted),
            waiting=_share(of["waiting"], counted) if len(who) > 1 or len(self._rings.last) == 1 else math.nan,
        )

    def _of_steps(self, steps: I64, who: I64, life: tuple[bytes, int]) -> Mapping[str, F64]:
        """The figures of the job, one a step; worked out once for each step, as long as it is the same `life`."""
        known = self._by_step if self._life == life else {}
        new = np.array([step for step in steps.tolist() if step not in known], np.int64)
        known |= zip(new.tolist(), self._work_out(new, who).T, strict=True)
        self._life, self._by_step = life, {step: known[step] for step in steps.tolist()}
        table = np.array([*self._by_step.values()]).reshape(-1, len(_OF_STEP))
        return dict(zip(_OF_STEP, table.T, strict=True))

    def _work_out(self, steps: I64, who: I64) -> F64:
        """[len(_OF_STEP), steps] what the figures of the job are made of."""
        duration, work, wait, exposed = self._rings.takes(_TIMES, steps, who)
        loss, samples, tokens = self._rings.takes(_LOGGED, steps, who)
        waited = wait.sum(axis=0) / max(1, len(who))
        waiting = np.maximum(0, waited - np.minimum(*(table.min(axis=0, initial=np.inf) for table in (exposed, wait))))
        medians = [row_medians(table.T) for table in (duration, work, loss)]
        return np.array([*medians, waiting, _together(samples), _together(tokens)], np.float64)

    def _compared(self, steps: I64, out_of_step: Flags, late: Flags) -> ComparedWork:
        work = self._rings.take("work", steps)
        work[out_of_step] = np.nan
        if not steps.size:
            return ComparedWork(*np.full((2, len(work)), np.nan))
        usual = row_medians(work).astype(np.float64)
        return ComparedWork(usual, lateness_beside(usual[:, None], late).late[:, 0])


def _unnamed_pause_ms(duration: NDArray[Any]) -> float:
    """What a step that is a pause takes at least."""
    return max(_PAUSE_MS, _PAUSE_STEPS * median(duration))


def _share(part: NDArray[Any], whole: NDArray[Any]) -> float:
    """What the parts are together of the whole, over the steps where both are known; NaN without any."""
    known = np.isfinite(part) & np.isfinite(whole)
    total = float(whole[known].sum(dtype=np.float64))
    return float(part[known].sum(dtype=np.float64)) / total if total > 0 else math.nan


def _together(logged: F32) -> F64:
    """[steps] what all ranks together have logged in each step of [ranks, steps]; NaN where none has."""
    return np.where(np.isnan(logged).all(axis=0), np.nan, np.nansum(logged, axis=0))


def _newest(values: F64) -> float:
    """The newest known of some values."""
    given = values[~np.isnan(values)]
    return float(given[-1]) if given.size else math.nan
