"""Pauses that are over: phases that the user named, single long steps, and the garbage collector's."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ddpmon.diagnose.blame import advice_on
from ddpmon.diagnose.finding import Finding
from ddpmon.diagnose.step_matrix import NewSteps, alive
from ddpmon.diagnose.sustained import WARM_UP
from ddpmon.diagnose.wording import clean, format_ranks
from ddpmon.format import age, ms, pct
from ddpmon.run.marks import Pause, paused_steps
from ddpmon.run.medians import median
from ddpmon.run.model import Run
from ddpmon.run.rings import F32, I64
from ddpmon.schema import PHASES

_WORTH_PCT = 1.0
_LATELY_STEPS = 50
_TIMES, _AT_LEAST_MS = 10.0, 500.0
_STALL_TIMES, _STALL_MS = 3.0, 100.0  # shorter ones are told of for what they cost together
_STALLS, _STALLS_PCT = 3, 5.0
_OFTEN = 0.1  # of the steps since the first: who is late so often comes and goes, and does not pause
_MOST = 256  # long steps; more than one in ten of all on record is no pause
_NAME_IT = "if this is a checkpoint or an evaluation, wrap it in `with monitor.phase(name)`"
_HOLDERS = 4
_BLINDING = 0.4  # of the steps
_STEPS = 500
_CHUNK = 64
_INFO_PCT, _WARNING_PCT = 1.0, 5.0
_PAUSES = 3
_PAUSE_SHARE, _PAUSE_MS = 0.02, 1.0  # of a step, and at least
_NAMED = 8
_ADVICE = (
    "call gc.freeze() once the model is built; or call gc.disable(), and gc.collect() every few hundred steps at the "
    "same step on all ranks"
)


def find_pauses(run: Run, ages: NDArray[np.float64]) -> list[Finding]:
    """Named pauses, one finding a name, and unnamed ones, one a rank.

    One is told of while the last was less than 50 steps ago, or while they cost 1 % of the time on record.
    """
    ranks = np.flatnonzero(alive(run, ages) & (run.rings.last >= 0))
    if not ranks.size:
        return []
    witness = int(ranks[0])  # synchronous steps take equally long on all ranks
    slots = np.argsort(run.rings.step[witness])
    slots = slots[run.rings.step[witness, slots] >= 0]
    steps, durations = run.rings.step[witness, slots], run.rings.column["duration"][witness, slots]
    named = [_named(name, pauses, steps, durations) for name, pauses in run.marks.pauses.items()]
    return [*filter(None, named), *_unnamed(run, ranks, steps, durations)]


def _worth(cost_pct: float, last: int, newest: int) -> bool:
    return cost_pct >= _WORTH_PCT or newest - last <= _LATELY_STEPS


def _named(name: str, pauses: dict[int, Pause], steps: I64, durations: F32) -> Finding | None:
    """The pauses of one name within the steps on record."""
    on_record = {step: pause for step, pause in pauses.items() if step >= steps[0]}
    if not on_record:
        return None
    total = sum(pause.ms for pause in on_record.values())
    cost = min(100.0, 100 * total / max(1.0, float(durations.sum())))
    last = max(on_record)
    if not _worth(cost, last, int(steps[-1])):
        return None
    newest = on_record[last]
    many = newest.ranks > 1
    where = f"on {newest.ranks:,} ranks" if many else f"on rank {newest.rank}"
    often = f"{len(on_record)} time{'s' if len(on_record) > 1 else ''}, {pct(cost)} % of the run's time"
    if not many and len(on_record) >= _BLINDING * (last + 1 - min(on_record)) and len(on_record) > 1:
        often += "; steps that contain it are not used to compare ranks"
    return Finding(
        kind="pause",
        severity="info",
        summary=f"{clean(name, 40)} {where}: {age(newest.ms / 1e3)} at step {last:,} ({often})",
        ranks=() if many else (newest.rank,),
        phase="other",
        since_step=min(on_record),
        cost_pct=cost,
        evidence={
            "name": clean(name, 40),
            "last_ms": newest.ms,
            "total_ms": total,
            "times": len(on_record),
            "last_step": last,
        },
        advice="save less often, or in the background (torch.distributed.checkpoint.async_save)"
        if cost >= 5 and "checkpoint" in name.lower()
        else "",
    )


def _unnamed(run: Run, ranks: I64, steps: I64, durations: F32) -> list[Finding]:
    """Long steps in which the work of one rank stands out from everybody's, gathered by rank."""
    usual = float(np.nan_to_num(median(durations)))
    long = durations >= max(_STALL_MS, _STALL_TIMES * usual)
    places = np.flatnonzero(long & (steps >= WARM_UP))[-_MOST:]
    if not places.size or len(ranks) < 2 or len(steps) < WARM_UP:
        return []
    work, marked, gc = (np.nan_to_num(run.rings.take(name, steps[places])[ranks]) for name in ("work", "marked", "gc"))
    holder, rows = work.argmax(axis=0), np.arange(len(places))
    held_up = work[holder, rows] - np.partition(work, -2, axis=0)[-2]
    alone = (held_up >= durations[places] / 2) & (marked[holder, rows] < held_up / 2)
    whole = held_up >= max(_AT_LEAST_MS, _TIMES * usual)
    alone &= whole | (gc[holder, rows] < held_up / 2)  # of short ones that the collector made, the rule on it tells
    held: dict[int, list[tuple[int, float]]] = {}
    for at in np.flatnonzero(alone).tolist():
        held.setdefault(int(ranks[holder[at]]), []).append((int(steps[places[at]]), float(held_up[at])))
    worst = sorted(held, key=lambda rank: -sum(ms for _, ms in held[rank]))[:_HOLDERS]
    found = (_told(run, rank, held[rank], steps, durations) for rank in worst)
    return [finding for finding in found if finding is not None]


def _told(run: Run, rank: int, held: list[tuple[int, float]], steps: I64, durations: F32) -> Finding | None:
    """All that a rank held the others up for, if rare stalls cost much together; else what is a pause by itself."""
    total = 100 * sum(ms for _, ms in held) / max(1.0, float(durations.sum()))
    since = float(steps[-1]) - held[0][0] + 1
    if total < _STALLS_PCT or len(held) < _STALLS or len(held) > _OFTEN * since:
        least = max(_AT_LEAST_MS, _TIMES * float(np.nan_to_num(median(durations))))
        held = [(step, ms) for step, ms in held if ms >= least]
    return _held_up(run, rank, held, steps, durations) if held else None


def _held_up(run: Run, rank: int, pauses: list[tuple[int, float]], steps: I64, durations: F32) -> Finding | None:
    (last, ms), total = pauses[-1], sum(ms for _, ms in pauses)
    cost = min(100.0, 100 * total / max(1.0, float(durations.sum())))
    if not _worth(cost, last, int(steps[-1])):
        return None
    at = np.array([last], np.int64)
    spent = {name: float(np.nan_to_num(run.rings.take(name, at)[rank, 0])) for name in PHASES}
    longest = max(spent, key=lambda name: spent[name])
    phase = longest if spent[longest] >= ms / 2 else "work"
    state = run.ranks[rank]
    again = f"; {len(pauses)} times, {pct(cost)} % of the run's time" if len(pauses) > 1 else ""
    return Finding(
        kind="pause",
        severity="info",
        summary=f"rank {rank} held the others up for {age(ms / 1e3)} at step {last:,} ({phase}){again}",
        ranks=(rank,),
        nodes=() if state is None else (state.frame.host,),
        phase=phase,
        since_step=pauses[0][0],
        cost_pct=cost,
        evidence={"last_ms": ms, "total_ms": total, "times": len(pauses), "last_step": last},
        advice=_advice(phase),
    )


def _advice(phase: str) -> str:
    """Nobody saves or evaluates in forward or backward; an evaluation may well wait for a loader of its own."""
    if phase in ("forward", "backward"):
        return advice_on(phase)
    return f"{advice_on(phase)}; {_NAME_IT}" if phase == "input" else _NAME_IT


class GcRule:
    """Adds up, step by step, what the job would have saved without the collector."""

    def __init__(self) -> None:
        self._steps = NewSteps()
        self._judged: NDArray[np.float64] = np.empty((0, 4))  # step, duration, saved, the collector's longest: ms

    def update(self, run: Run, ages: NDArray[np.float64]) -> list[Finding]:
        """Take in the steps finished since the last call; the verdict is on the last 500 usable ones."""
        ranks = alive(run, ages)
        steps = self._steps.take(run, ranks)
        if steps.size and len(self._judged) and steps[-1] < self._judged[-1, 0]:
            self._judged = np.empty((0, 4))
        for start in range(0, len(steps), _CHUNK):
            self._add(run, ranks, steps[start : start + _CHUNK])
        self._judged = self._judged[-_STEPS:]
        return self._verdict(run, ranks)

    def _add(self, run: Run, ranks: NDArray[np.bool_], steps: I64) -> None:
        """`saved = max_r work - max_r(work - gc)`: what the slowest rank would have been faster."""
        take = {name: run.rings.take(name, steps)[ranks] for name in ("work", "gc", "duration")}
        gc = np.minimum(np.nan_to_num(take["gc"]), take["work"])
        usable = (steps >= WARM_UP) & ~paused_steps(run.rings, steps, np.flatnonzero(ranks))
        saved = take["work"].max(axis=0) - (take["work"] - gc).max(axis=0)
        rows = np.stack([steps, take["duration"].max(axis=0), saved, gc.max(axis=0)], axis=1)
        self._judged = np.concatenate([self._judged, rows[usable]])

    def _verdict(self, run: Run, ranks: NDArray[np.bool_]) -> list[Finding]:
        step, duration, saved, longest = self._judged.T
        if not len(step):
            return []
        cost = 100 * float(saved.sum()) / max(1e-9, float(duration.sum()))
        pauses = saved >= max(_PAUSE_MS, _PAUSE_SHARE * float(np.median(duration)))
        if cost < _INFO_PCT or pauses.sum() < _PAUSES:
            return []
        worst = _worst(run, ranks, step[pauses].astype(np.int64))
        typical, often = float(np.median(longest[pauses])), len(step) / int(pauses.sum())
        return [
            Finding(
                kind="gc_pauses",
                severity="warning" if cost >= _WARNING_PCT else "info",
                summary=f"Python's garbage collector costs {pct(cost)} % of the run's time: pauses of {ms(typical)}, "
                f"one in {often:.0f} steps, mostly on {format_ranks(worst)}",
                ranks=tuple(worst),
                since_step=int(step[pauses][0]),
                since_is_bound=len(step) >= _STEPS,
                cost_pct=cost,
                evidence={"pauses": int(pauses.sum()), "pause_ms": typical, "steps": len(step), "every": often},
                advice=_ADVICE,
            )
        ]


def _worst(run: Run, ranks: NDArray[np.bool_], steps: I64) -> list[int]:
    """The ranks with half of the worst rank's time in the collector or more, worst first, at most eight."""
    total = np.nan_to_num(run.rings.take("gc", steps)).sum(axis=1) * ranks
    order = np.argsort(-total, kind="stable")[:_NAMED]
    return [int(rank) for rank in order if total[rank] >= total.max() / 2]
