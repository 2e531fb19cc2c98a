"""What a trouble costs in hours: a share of the time of all ranks; GPU-hours where the run is one on GPUs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ddpmon.report.step_clock import wall_of
from ddpmon.report.verdicts import stops_job
from ddpmon.snapshot import Finding, Snapshot

_HOUR_S = 3600
_HARDLY_ANY = 0.005  # hours that are shown as <0.01
OVERLAP = "the findings overlap: ranks that are late in the same steps lose the same time"
UNLIKE_WAITING = (
    "what a finding loses can exceed what is lost to waiting: it counts the time since its onset, and also that of the "
    "late ranks, which do not wait"
)
WAITING_MORE = (
    "what is lost to waiting can exceed what the findings lose: steps differ by chance, and all ranks wait for the "
    "slowest one of each step, the longer the more ranks there are"
)


def hour_unit(snapshot: Snapshot) -> str:
    """GPU-h of a run on GPUs, by what it says of itself or by the GPU of any rank; else rank-h."""
    info = None if snapshot.run is None else snapshot.run.info
    on_gpus = (info is not None and info.device == "cuda") or (snapshot.ranks is not None and any(snapshot.ranks.gpu))
    return "GPU-h" if on_gpus else "rank-h"


def lost_hours(finding: Finding, snapshot: Snapshot, not_before: float = -math.inf) -> float | None:
    """Hours that a lasting trouble has cost so far, over all ranks; None where that is not known.

    Of a run that stands still it is the ranks, times how long; else the share of the run's time that the trouble costs
    now, times the ranks and the time from its onset to the newest step: after that nothing is known of it, and a run
    that is over loses nothing more. Where the onset is a bound it is a least value.

    Args:
        finding: the trouble.
        snapshot: the moment up to which it counts.
        not_before: the Unix time from which it counts at the earliest.
    """
    since, run = loses_since(finding, snapshot), snapshot.run
    if since is None or run is None:
        return None
    lost_s = max(0.0, snapshot.taken_at - max(since, not_before))
    if _stands_s(finding) is not None:
        return run.world_size * lost_s / _HOUR_S
    if finding.cost_pct is None or run.step_age_s is None:
        return None
    return hours_within(max(0.0, lost_s - run.step_age_s), finding.cost_pct, run.world_size)


def lost_words(hours: float, unit: str, *, is_bound: bool, is_exact: bool = False) -> str:
    """`about 4.6 GPU-h`, of what began before it could be seen `at least 4.6 GPU-h`; nothing else of a standstill.

    The share that a trouble costs is one of its last steps, and stands for all of the time since its onset. Where that
    share falls, so do the hours, although nothing that was lost comes back: they are an estimate.
    """
    is_nothing = hours < _HARDLY_ANY
    lead = "at least " if is_bound else "" if is_exact or is_nothing else "about "
    return f"{lead}{hours_words(hours)} {unit}"


def loses_since(finding: Finding, snapshot: Snapshot) -> float | None:
    """The Unix time from which `lost_hours` counts; None where that is not known."""
    if (stands_s := _stands_s(finding)) is not None:
        return snapshot.taken_at - stands_s
    return None if finding.since_step is None else wall_of(snapshot, finding.since_step)


def _stands_s(finding: Finding) -> float | None:
    """For how many seconds the ranks have waited while the run stands still; None of any other finding."""
    seconds = finding.evidence.get("seconds")
    is_waited_for = "waiting" in finding.evidence and stops_job(finding)
    return float(seconds) if is_waited_for and isinstance(seconds, float | int) else None


def hours_within(seconds: float, pct: float, ranks: int) -> float:
    """Hours that so many ranks lose within so many seconds at a cost of `pct` percent of their time."""
    return pct / 100 * ranks * seconds / _HOUR_S


def lost_a_day(finding: Finding, world_size: int) -> float:
    """Hours a day that a lasting trouble costs, over all ranks."""
    return hours_a_day(finding.cost_pct or 0.0, world_size)


def together_words(hours: Sequence[float], unit: str, *, are_bounds: bool = False) -> str:
    """`at least 0.31, at most 0.50 GPU-h`: what several troubles cost together, which hold up the same steps in part.

    Where they do so in every step, the dearest costs all of it; where they never do, it is the sum. Empty below two.
    Where `are_bounds`, since one of them began before what is on record, there is no most.
    """
    if len(hours) < 2:
        return ""
    least, most = hours_words(max(hours)), hours_words(sum(hours))
    if are_bounds:
        return f"at least {least} {unit}"
    return f"at least {least}, at most {most} {unit}" if least != most else f"{least} {unit}"


def hours_a_day(pct: float, ranks: int) -> float:
    """Hours a day that so many ranks lose at a cost of `pct` percent of their time."""
    return hours_within(24 * _HOUR_S, pct, ranks)


def hours_words(hours: float) -> str:
    """0.12, 4.6, 78, 1,204; what is hardly anything as <0.01."""
    if hours < _HARDLY_ANY:
        return "<0.01"
    return f"{hours:,.{0 if hours >= 9.95 else 1 if hours >= 0.995 else 2}f}"
