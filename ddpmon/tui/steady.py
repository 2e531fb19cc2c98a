"""Figures that stand still: one is shown as it was before while it differs from that by no more than chance does."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ddpmon.diagnose.kinds import KINDS
from ddpmon.format import pct
from ddpmon.report.base_step import NOISE_SHARE, base_step_ms
from ddpmon.report.build import lateness_as_found
from ddpmon.report.verdicts import identity, is_past
from ddpmon.schema import PHASES
from ddpmon.snapshot import Finding, Floats, JobView, Ranks, Snapshot

Evidence = Mapping[str, float | int | str]
# Of the base step, and of a rate: twice the noise of a median over 20 steps. In simulated runs, whose steps vary by
# 2 %, figures of the run and of findings then change once in ten seconds or less; they changed every second.
SHARE = 2 * NOISE_SHARE
POINTS, POINTS_SHARE = 0.5, 0.05  # of a figure in percent: so many points, or that share of it. Chosen.
OTHER_SHARE = 0.02  # of what else a finding rests on. Chosen.
COUNTED = 1.0  # of a number of steps
TIMES = ("step", "work", "exposed", "barrier", "wait", "allreduce", *PHASES)
# A number with a unit is a figure; one without is a rank, a pid, a step or a count, and tells something else.
_FIGURE = re.compile(r"[\d.,]+(?= ?(?:µs|ms|s|min|h|%|[KMGT]i?B|W|MHz)\b|%)")


def steady(before: Snapshot, now: Snapshot) -> Snapshot:
    """`now` with the figures of the last 20 steps as `before` has them, where they are the same but for chance.

    A moment of the past, and a run that is over or whose store is gone, is shown as it is.
    """
    base = base_step_ms(now)
    if base is None or now.run is None or now.ranks is None or before.ranks is None or not _goes_on(before, now):
        return now
    kept = {identity(finding): finding for finding in before.findings}
    findings = tuple(_finding(kept.get(identity(finding)), finding, SHARE * base) for finding in now.findings)
    ranks = _ranks(before.ranks, now.ranks, base)
    ranks = replace(ranks, lateness_ms=lateness_as_found(ranks.lateness_ms, findings, now.run.state))
    return replace(now, job=_job(before.job, now.job, SHARE * base), ranks=ranks, findings=findings)


def _goes_on(before: Snapshot, now: Snapshot) -> bool:
    """Whether two pictures are of one run that goes on, and neither of its past."""
    if before.run is None or now.run is None or before.replay is not None or now.replay is not None:
        return False
    return before.run.id == now.run.id and before.run.world_size == now.run.world_size and not is_past(now)


def _ranks(before: Ranks, now: Ranks, base: float) -> Ranks:
    """Their times; a lateness goes back to ±0 at half of what it takes to leave that."""
    noise = NOISE_SHARE * base
    times: dict[str, Any] = {f"{name}_ms": _times(before, now, f"{name}_ms", noise) for name in TIMES}
    late = _times(before, now, "lateness_ms", SHARE * base)
    return replace(now, **times, lateness_ms=np.where(np.abs(now.lateness_ms) < noise, 0.0, late))


def _times(before: Ranks, now: Ranks, column: str, within: float) -> Floats:
    old, new = before.column(column), now.column(column)
    found: Floats = np.where(np.abs(new - old) <= within, old, new)
    return found


def _job(before: JobView, now: JobView, within: float) -> JobView:
    """The run's figures; they are as they are now where other ranks than before are counted."""
    if before.throughput_ranks != now.throughput_ranks:
        return now
    return replace(
        now,
        step_ms=_held(before.step_ms, now.step_ms, within),
        allreduce_ms=_held(before.allreduce_ms, now.allreduce_ms, within),
        exposed_ms=_held(before.exposed_ms, now.exposed_ms, within),
        throughput=_held(before.throughput, now.throughput, SHARE * (now.throughput or 0.0)),
        tokens_per_s=_held(before.tokens_per_s, now.tokens_per_s, SHARE * (now.tokens_per_s or 0.0)),
        sync_efficiency=_held(before.sync_efficiency, now.sync_efficiency, SHARE),
        lost_to_waiting_pct=_held(
            before.lost_to_waiting_pct, now.lost_to_waiting_pct, _points(now.lost_to_waiting_pct)
        ),
    )


def _points(percent: float | None) -> float:
    return max(POINTS, POINTS_SHARE * (percent or 0.0))


def _held(old: float | None, new: float | None, within: float) -> float | None:
    """The old figure where the new one is within so much of it."""
    return old if old is not None and new is not None and abs(new - old) <= within else new


def _finding(old: Finding | None, new: Finding, within: float) -> Finding:
    """A finding on lateness as it was said before, as a whole, where all of its figures are the same but for chance.

    Where another figure is not, such as the steps that a lateness now and then was seen in, only its cost stands still.
    """
    if old is None or not KINDS[new.kind].late:
        return new
    cost = _held(old.cost_pct, new.cost_pct, _points(new.cost_pct))
    if cost != old.cost_pct:
        return new
    if _says_the_same(old, new) and _is_near(old.evidence, new.evidence, within):
        return old
    return new if cost is None or new.cost_pct is None else _with_cost(cost, new.cost_pct, new)


def _with_cost(cost_pct: float, known_pct: float, finding: Finding) -> Finding:
    """The finding with this cost instead of what is known, in its sentence, too; as it is where that has a range."""
    said, shown = (f"Costs {pct(each)} %" for each in (known_pct, cost_pct))
    if said != shown and said not in finding.summary:
        return finding
    words = {name: getattr(finding, name).replace(said, shown) for name in ("summary", "brief")}
    evidence = {key: cost_pct if key == "cost_pct" else value for key, value in finding.evidence.items()}
    return replace(finding, **words, evidence=evidence, cost_pct=cost_pct)


def _says_the_same(old: Finding, new: Finding) -> bool:
    """Whether two findings differ in the figures of their words only."""
    words = ("summary", "brief", "cause", "advice")
    figures = {name: getattr(new, name) for name in (*words, "evidence", "cost_pct")}
    return replace(old, **figures) == new and all(_bare(old, name) == _bare(new, name) for name in words)


def _bare(finding: Finding, name: str) -> str:
    return _FIGURE.sub("", str(getattr(finding, name)))


def _is_near(old: Evidence, new: Evidence, within: float) -> bool:
    """Whether the same figures are known, and all of them are near."""
    return old.keys() == new.keys() and all(_is_alike(name, old[name], new[name], within) for name in new)


def _is_alike(name: str, old: float | int | str, new: float | int | str, within: float) -> bool:
    """Whether a figure is near the old one; text and what is no count of steps, such as a pid, is the same."""
    is_name = isinstance(new, int) and not name.endswith("_steps")
    if is_name or isinstance(old, str) or isinstance(new, str) or not math.isfinite(new - old):
        return old == new
    rooms = {"_ms": within, "_pct": _points(new), "_steps": COUNTED}
    room = next((room for end, room in rooms.items() if name.endswith(end)), 0.0)
    return abs(new - old) <= max(room, OTHER_SHARE * abs(new))
