"""A moment that the reader has frozen, with what is asked for later, as far as it was known at that moment.

The watcher reads on meanwhile, and builds details of a rank and heat-maps of the newest steps only. What of these steps
lies before the moment is cut out; what is no longer among them is unknown.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ddpmon.snapshot import Course, Heat, RankDetail, Ranks, Snapshot


def as_of(moment: Snapshot, newer: Snapshot) -> Snapshot:
    """The frozen `moment`, with the rank and the metric that `newer` was built for."""
    if moment.run is None or newer.run is None or moment.run.id != newer.run.id:
        return moment
    return replace(moment, detail=_detail(moment, newer), chosen_heat=_heat(moment, newer), told=newer.told)


def _detail(moment: Snapshot, newer: Snapshot) -> RankDetail | None:
    """Of another rank than before, its courses up to the moment."""
    detail, ranks = newer.detail, moment.ranks
    if detail is None or ranks is None or not 0 <= detail.rank < len(ranks):
        return moment.detail
    if moment.detail is not None and moment.detail.rank == detail.rank:
        return moment.detail
    end = int(ranks.step[detail.rank]) if _is_same_process(ranks, newer.ranks, detail.rank) else -1
    courses = {name: _before(course, end) for name, course in detail.courses.items()}
    return RankDetail(detail.rank, courses, stall=ranks.stall[detail.rank], failure=ranks.failure[detail.rank])


def _is_same_process(ranks: Ranks, newer: Ranks | None, rank: int) -> bool:
    """Whether a rank has not restarted since: its steps would begin again."""
    return newer is not None and rank < len(newer) and int(newer.pid[rank]) == int(ranks.pid[rank])


def _before(course: Course, end: int) -> Course:
    """A course up to a step."""
    seen = slice(0, int(np.searchsorted(course.step, end, side="right")))
    return Course(course.step[seen], course.own[seen], course.others[:, seen])


def _heat(moment: Snapshot, newer: Snapshot) -> Heat | None:
    """The metric that is asked for over the steps of the moment; NaN where it is no longer on record."""
    heat, then = newer.chosen_heat, moment.heat
    if heat is None or then is None or len(heat.values) != len(then.values):
        return None
    if moment.chosen_heat is not None and moment.chosen_heat.metric == heat.metric:
        return moment.chosen_heat
    values = np.full_like(then.values, np.nan)
    _, here, there = np.intersect1d(then.step, heat.step, assume_unique=True, return_indices=True)
    values[:, here] = heat.values[:, there]
    return Heat(then.step, values, then.base_ms, heat.metric)
