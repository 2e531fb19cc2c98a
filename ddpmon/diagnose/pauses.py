"""Pauses that are over: phases that the user named, single long steps, and the garbage collector's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ddpmon.diagnose.alert import Alert, Measures
from ddpmon.diagnose.intermittent import Hits
from ddpmon.diagnose.job_policy import GC, PAST_PAUSES
from ddpmon.diagnose.late_policy import ALERTS, SUSTAINED
from ddpmon.diagnose.step_matrix import NewSteps
from ddpmon.diagnose.sustained import begins_with_run
from ddpmon.diagnose.tick import Tick
from ddpmon.run.marks import MOST_PAUSES, Pause, paused_steps
from ddpmon.run.medians import median, middle
from ddpmon.run.model import Run
from ddpmon.run.rings import F32, I64
from ddpmon.schema import PHASES

_CHUNK = 64  # steps whose columns are taken out of the rings at once, so that many of them take little memory


class NamedPauseMeasures(Measures, frozen=True):
    """The pauses of one name that are over.

    Attributes:
        name: as the user's program calls them.
        ranks: how many ranks had the last one.
        last_ms: how long it took, on the rank where it took longest.
        total_ms: how long all of them on record took.
        times: how many these are.
        last_step: the step that holds the last one.
        steps_not_compared: so many steps hold one that the ranks cannot be compared in these.
    """

    name: str
    ranks: int
    last_ms: float
    total_ms: float
    times: int
    last_step: int
    steps_not_compared: bool


class LongStepMeasures(Measures, frozen=True):
    """The long steps in which one rank held the others up, without a name.

    Attributes:
        last_ms: by how much the work of that rank stood out from everybody's in the last one.
        total_ms: the same of all of them.
        times: how many these are.
        last_step: the last one.
    """

    last_ms: float
    total_ms: float
    times: int
    last_step: int


class GcMeasures(Measures, frozen=True):
    """The pauses of Python's garbage collector that cost the job time.

    Attributes:
        pauses: how many steps hold one.
        pause_ms: how long the longest of such a step takes, typically.
        steps: of how many steps.
        every_steps: in one of how many steps there is one.
    """

    pauses: int
    pause_ms: float
    steps: int
    every_steps: float


def find_pauses(tick: Tick, said: Sequence[Alert]) -> list[Alert]:
    """Named pauses, one alert a name, and unnamed ones, one a rank that is not known to come and go.

    A pause is reported for 50 steps after its last occurrence, or while pauses cost 1 % of the recorded time.
    """
    run = tick.run
    ranks = np.flatnonzero(tick.alive & (run.rings.last >= 0))
    if not ranks.size:
        return []
    witness = int(ranks[0])  # synchronous steps take equally long on all ranks
    slots = np.argsort(run.rings.step[witness])
    slots = slots[run.rings.step[witness, slots] >= 0]
    steps, durations = run.rings.step[witness, slots].astype(np.int64), run.rings.of("duration", [witness])[0, slots]
    told = steps >= run.marks.since
    named = [_named(name, pauses, steps[told], durations[told]) for name, pauses in run.marks.pauses.items()]
    known = {rank for alert in said if alert.kind == "intermittent_straggler" for rank in alert.ranks}
    unnamed = _unnamed(run, ranks, steps, durations)
    return [*filter(None, named), *(alert for alert in unnamed if known.isdisjoint(alert.ranks))]


def _worth(cost_pct: float, last: int, newest: int) -> bool:
    return cost_pct >= PAST_PAUSES.worth_pct or newest - last <= PAST_PAUSES.lately_steps


def _named(name: str, pauses: dict[int, Pause], steps: I64, durations: F32) -> Alert | None:
    """The pauses of one name within these steps, whose names are known."""
    on_record = {step: pause for step, pause in pauses.items() if steps.size and step >= steps[0]}
    if not on_record:
        return None
    total = sum(pause.ms for pause in on_record.values())
    cost = min(100.0, 100 * total / max(1.0, float(durations.sum())))
    last = max(on_record)
    if not _worth(cost, last, int(steps[-1])):
        return None
    newest = on_record[last]
    many, times = newest.ranks > 1, len(on_record)
    blinding = not many and times >= PAST_PAUSES.blinding_share * (last + 1 - min(on_record)) and times > 1
    return Alert(
        kind="pause",
        severity="info",
        ranks=() if many else (newest.rank,),
        phase="other",
        since_step=min(on_record),
        since_is_bound=not begins_with_run(steps) or len(pauses) >= MOST_PAUSES,
        cost_pct=cost,
        measures=NamedPauseMeasures(name, newest.ranks, newest.ms, total, times, last, blinding),
    )


def _unnamed(run: Run, ranks: I64, steps: I64, durations: F32) -> list[Alert]:
    """Long steps in which the work of one rank stands out from everybody's, gathered by rank."""
    usual = float(np.nan_to_num(median(durations)))
    long = durations >= max(PAST_PAUSES.stall_ms, PAST_PAUSES.stall_ratio * usual)
    places = np.flatnonzero(long & (steps >= SUSTAINED.warm_up_steps))[-PAST_PAUSES.most_long_steps :]
    if not places.size or len(ranks) < 2 or len(steps) < SUSTAINED.warm_up_steps:
        return []
    work, marked, gc = (np.nan_to_num(run.rings.take(name, steps[places])[ranks]) for name in ("work", "marked", "gc"))
    holder, rows = work.argmax(axis=0), np.arange(len(places))
    held_up = work[holder, rows] - np.partition(work, -2, axis=0)[-2]
    alone = (held_up >= durations[places] / 2) & (marked[holder, rows] < held_up / 2)
    whole = held_up >= max(PAST_PAUSES.pause_ms, PAST_PAUSES.pause_ratio * usual)
    alone &= whole | (gc[holder, rows] < held_up / 2)  # of short ones that the collector made, the rule on it tells
    held: dict[int, list[tuple[int, float]]] = {}
    for at in np.flatnonzero(alone).tolist():
        held.setdefault(int(ranks[holder[at]]), []).append((int(steps[places[at]]), float(held_up[at])))
    worst = sorted(held, key=lambda rank: -sum(ms for _, ms in held[rank]))[: PAST_PAUSES.most_ranks]
    found = (_worth_telling(run, rank, held[rank], steps, durations) for rank in worst)
    return [alert for alert in found if alert is not None]


def _worth_telling(run: Run, rank: int, held: list[tuple[int, float]], steps: I64, durations: F32) -> Alert | None:
    """All that a rank held the others up for, if rare stalls cost much together; else what is a pause by itself."""
    total = 100 * sum(ms for _, ms in held) / max(1.0, float(durations.sum()))
    since = float(steps[-1]) - held[0][0] + 1
    if (
        total < PAST_PAUSES.stalls_pct
        or len(held) < PAST_PAUSES.fewest_stalls
        or len(held) > PAST_PAUSES.stalls_share * since
    ):
        least = max(PAST_PAUSES.pause_ms, PAST_PAUSES.pause_ratio * float(np.nan_to_num(median(durations))))
        held = [(step, ms) for step, ms in held if ms >= least]
    return _held_up(run, rank, held, steps, durations) if held else None


def _held_up(run: Run, rank: int, pauses: list[tuple[int, float]], steps: I64, durations: F32) -> Alert | None:
    (last, ms), total = pauses[-1], sum(ms for _, ms in pauses)
    cost = min(100.0, 100 * total / max(1.0, float(durations.sum())))
    if not _worth(cost, last, int(steps[-1])):
        return None
    at = np.array([last], np.int64)
    spent = {name: float(np.nan_to_num(run.rings.take(name, at)[rank, 0])) for name in PHASES}
    longest = max(spent, key=lambda name: spent[name])
    phase = longest if spent[longest] >= ms / 2 else "work"
    state = run.ranks[rank]
    return Alert(
        kind="pause",
        severity="info",
        ranks=(rank,),
        nodes=() if state is None else (state.frame.host,),
        phase=phase,
        since_step=pauses[0][0],
        since_is_bound=not begins_with_run(steps),
        cost_pct=cost,
        measures=LongStepMeasures(ms, total, len(pauses), last),
    )


class GcRule:
    """Adds up, step by step, what the job would have saved without the collector."""

    def __init__(self) -> None:
        self._steps = NewSteps()
        self._judged: NDArray[np.float64] = np.empty((0, 4))  # step, duration, saved, the collector's longest: ms
        self._since: tuple[int, bool] | None = None  # the onset, and whether it is only a bound

    def __call__(self, tick: Tick, _said: Sequence[Alert]) -> list[Alert]:
        """Take in the steps finished since the last call; the verdict is on the last 500 usable ones."""
        run, ranks = tick.run, tick.alive
        steps = self._steps.take(run, ranks)
        if steps.size and len(self._judged) and steps[-1] < self._judged[-1, 0]:
            self._judged, self._since = np.empty((0, 4)), None
        for start in range(0, len(steps), _CHUNK):
            self._add(run, ranks, steps[start : start + _CHUNK])
        self._judged = self._judged[-GC.window_steps :]
        found = self._verdict(run, ranks)
        self._since = (found[0].since_step or 0, found[0].since_is_bound) if found else None
        return found

    def _add(self, run: Run, ranks: NDArray[np.bool_], steps: I64) -> None:
        """`saved = max_r work - max_r(work - gc)`: what the slowest rank would have been faster."""
        who = np.flatnonzero(ranks)
        duration, saved = run.rings.take("duration", steps, who).max(axis=0), np.zeros((2, len(steps)))
        if not run.rings.is_nothing("gc"):
            work, gc = run.rings.takes(("work", "gc"), steps, who)
            gc = np.minimum(np.nan_to_num(gc), work)
            saved = np.stack([work.max(axis=0) - (work - gc).max(axis=0), gc.max(axis=0)])
        usable = (steps >= SUSTAINED.warm_up_steps) & ~paused_steps(run.rings, steps, who)
        self._judged = np.concatenate([self._judged, np.stack([steps, duration, *saved], axis=1)[usable]])

    def _verdict(self, run: Run, ranks: NDArray[np.bool_]) -> list[Alert]:
        step, duration, saved, longest = self._judged.T
        if not len(step):
            return []
        cost = 100 * float(saved.sum()) / max(1e-9, float(duration.sum()))
        pauses = saved >= max(GC.pause_ms, GC.pause_share * middle(duration))
        if cost < GC.info_pct or pauses.sum() < GC.fewest_pauses:
            return []
        typical, often = middle(longest[pauses]), len(step) / int(pauses.sum())
        hits = Hits(np.flatnonzero(pauses))
        since_step, is_bound = hits.since(step.astype(np.int64), self._since, SUSTAINED.warm_up_steps)
        return [
            Alert(
                kind="gc_pauses",
                severity="warning" if cost >= ALERTS.warning_pct else "info",
                ranks=tuple(_worst(run, ranks, step[pauses].astype(np.int64))),
                since_step=since_step,
                since_is_bound=is_bound,
                cost_pct=cost,
                measures=GcMeasures(int(pauses.sum()), typical, len(step), often),
            )
        ]


def _worst(run: Run, ranks: NDArray[np.bool_], steps: I64) -> list[int]:
    """The ranks with half of the worst rank's time in the collector or more, worst first, at most eight."""
    total = np.nan_to_num(run.rings.take("gc", steps)).sum(axis=1) * ranks
    order = np.argsort(-total, kind="stable")[: GC.most_ranks]
    return [int(rank) for rank in order if total[rank] >= total.max() / 2]
