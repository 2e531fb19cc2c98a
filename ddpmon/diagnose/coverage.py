"""How much of the run is seen: silent ranks, ranks that two processes publish, steps and frames lost on the way."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ddpmon.diagnose.finding import Finding
from ddpmon.diagnose.wording import clean, does, format_ranks, on_host
from ddpmon.format import age
from ddpmon.run.model import LOST_S, SILENT_S, Run

_FIRST_FRAMES = 30  # a rank publishes once a second
_LATELY_S, _LATELY = 60.0, "within the last minute"
_WARNING_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class _Losses:
    """What was lost so far, at `at` seconds on the watcher's clock."""

    at: float
    steps: int
    frames: int
    rejected: int
    refused: int
    set_aside: int


class CoverageRule:
    """Says which verdicts lack evidence, and counts what was lost within the last minute."""

    def __init__(self) -> None:
        self._past: deque[_Losses] = deque()

    def update(self, run: Run, ages: NDArray[np.float64]) -> list[Finding]:
        """One finding if the picture has holes, none for a run that has just started or has ended."""
        standing = run.standing
        if not run.states:
            return _unheard(run)
        rank = int(standing.known.argmax())
        lost = self._lately(run, float(standing.heard_at[rank] + ages[rank]))
        if standing.failed.any() or standing.states == {"finished"}:
            return []
        with np.errstate(invalid="ignore"):
            silent: list[int] = np.flatnonzero((ages > SILENT_S) & (ages <= LOST_S) & ~standing.ended).tolist()
            apart: list[int] = np.flatnonzero(run.apart() & (ages <= SILENT_S)).tolist()
        missing: list[int] = []
        if int(standing.seq.max()) >= _FIRST_FRAMES or lost.rejected or lost.refused:
            missing = np.flatnonzero(~standing.known).tolist()
        some_lost = any((lost.steps, lost.frames, lost.rejected, lost.refused, lost.set_aside))
        if not silent and not missing and not apart and not some_lost:
            return []
        oldest_s = float(ages[silent].max(initial=0.0))
        return [_finding(run, (silent, missing, apart), lost, oldest_s)]

    def _lately(self, run: Run, now: float) -> _Losses:
        """What was lost within the last minute that this watcher has seen; its own counts begin with it."""
        total = _Losses(
            now,
            int(run.standing.dropped_steps.sum()),
            int(run.standing.dropped_frames.sum()),
            run.rejected.total(),
            run.refused,
            run.rings.set_aside,
        )
        if not self._past:
            self._past.append(replace(total, rejected=0, refused=0))
        self._past.append(total)
        while now - self._past[0].at > _LATELY_S:
            self._past.popleft()
        first = self._past[0]
        return _Losses(
            now,
            max(0, total.steps - first.steps),
            max(0, total.frames - first.frames),
            total.rejected - first.rejected,
            total.refused - first.refused,
            total.set_aside - first.set_aside,
        )


def _unheard(run: Run) -> list[Finding]:
    """Nobody has been heard of: a finding if that is because nothing could be read or believed."""
    lost = _Losses(0.0, 0, 0, run.rejected.total(), run.refused, 0)
    if not lost.rejected and not lost.refused:
        return []
    return [_finding(run, ([], list(range(run.info.world_size)), []), lost, 0.0, "so far")]


def _finding(
    run: Run, holes: tuple[list[int], list[int], list[int]], lost: _Losses, oldest_s: float, when: str = _LATELY
) -> Finding:
    silent, missing, apart = holes
    world = run.info.world_size
    absent = sorted([*silent, *missing])
    thinned = int(run.standing.thinned.sum())
    said = []
    if silent:
        said.append(f"{does(silent, 'have')} not reported for {age(oldest_s)}")
    if missing:
        said.append(
            f"{does(missing, 'have')} never reported, so a slowdown of the whole run or its network cannot be detected"
        )
    if apart:
        own = "its own" if len(apart) == 1 else "their own"
        said.append(f"{does(apart, 'have')} restarted on {own} and cannot be compared with the others")
    counts = [(lost.steps, "step", "dropped"), (lost.frames, "frame", "dropped"), (lost.rejected, "frame", "rejected")]
    counts += [(lost.refused, "frame", "refused"), (lost.set_aside, "step record", "set aside")]
    said += [f"{n:,} {what}{'s' * (n != 1)} {fate} {when}" for n, what, fate in counts if n]
    heard = world - len(absent)
    if absent and 2 * heard <= world:
        said.append(f"there is not enough evidence for a verdict: only {heard:,} of {world:,} ranks have reported")
    return Finding(
        kind="monitor_degraded",
        severity="warning" if len(absent) >= _WARNING_SHARE * world else "info",
        summary="the monitor does not see the whole run: " + "; ".join(said),
        ranks=tuple(absent),
        evidence={
            "not_reporting": len(silent),
            "never_heard_of": len(missing),
            "dropped_steps": lost.steps,
            "dropped_frames": lost.frames,
            "rejected_frames": lost.rejected,
            "refused_frames": lost.refused,
            "set_aside": lost.set_aside,
            "thinned_ranks": thinned,
        },
        advice=_advice(absent, apart, lost),
    )


def _advice(absent: list[int], apart: list[int], lost: _Losses) -> str:
    if absent:
        hosts = "its host reaches" if len(absent) == 1 else "their hosts reach"
        return f"check that {does(absent, 'attach')} the monitor, and that {hosts} the store"
    if apart:
        return "restart the whole run, so that all ranks continue from the same step"
    if lost.steps or lost.frames:
        return "the store or a rank's host is too busy to take in frames; the training is not affected"
    if lost.refused:
        return "set the same DDPMON_TOKEN for every rank and every dashboard; the notices say what was wrong"
    if lost.rejected:
        return "use the same ddpmon release in the training and here; the notices name the keys"
    return "check the clocks of the hosts: these steps have impossible durations"


def find_doubled(run: Run, ages: NDArray[np.float64]) -> list[Finding]:
    """One finding for all ranks of which this was seen within the last minute."""
    if not run.doubles.seen:
        return []
    now = float(np.nanmax(run.standing.heard_at + ages))
    ranks = sorted(rank for rank, double in run.doubles.seen.items() if now - double.at <= _LATELY_S)
    if not ranks:
        return []
    double = run.doubles.seen[ranks[0]]
    pair = " and ".join(f"pid {pid} on {clean(host, 60)}" for pid, host in (double.kept, double.other))
    first = "" if len(ranks) == 1 else f"rank {ranks[0]}: "
    return [
        Finding(
            kind="monitor_degraded",
            severity="warning",
            summary=(
                f"two processes publish as {format_ranks(ranks)} ({first}{pair}): two trainings share one run, and the "
                f"figures describe neither"
            ),
            ranks=tuple(ranks),
            evidence={"ranks_written_twice": len(ranks)},
            advice="give each training its own store or rendezvous, or stop the one that should not run",
        )
    ]


def lost_ranks(run: Run, ages: NDArray[np.float64]) -> NDArray[np.int64]:
    """Ranks that were heard of once and have been silent too long without having said that they end."""
    with np.errstate(invalid="ignore"):
        return np.flatnonzero((ages > LOST_S) & ~run.standing.ended)


def find_lost(run: Run, ages: NDArray[np.float64]) -> list[Finding]:
    """One finding for all lost ranks, if there are any."""
    lost = lost_ranks(run, ages)
    if not lost.size:
        return []
    first = int(lost[np.argmax(ages[lost])])
    state = run.ranks[first]
    assert state is not None  # a rank with an age has a frame
    frame = state.frame
    one, many = f"rank {first} ({frame.host}) has", f"{lost.size} ranks (first rank {first}, {frame.host}) have"
    whose = one if lost.size == 1 else many
    summary = (
        f"{whose} been silent for {ages[first]:.0f} s, last seen at step {max(frame.step, 0):,} in {frame.phase}: "
        f"killed, stopped or disconnected"
    )
    hosts = sorted({state.frame.host for rank in lost.tolist() if (state := run.ranks[rank]) is not None})
    return [
        Finding(
            kind="rank_lost",
            severity="critical",
            summary=summary,
            ranks=tuple(lost.tolist()),
            nodes=tuple(hosts),
            since_step=frame.step if frame.step >= 0 else None,
            evidence={"silent_s": float(ages[first])},
            advice=f"see whether it still runs: {on_host(frame.host, f'ps -p {frame.pid}')}; then check its log, "
            "the kernel's log (dmesg) and the network",
        )
    ]
