"""One rank over its last steps beside the other ranks: what its screen draws."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from ddpmon.run.medians import some_of, without
from ddpmon.run.model import SILENT_S, Run
from ddpmon.run.resources import RESOURCES
from ddpmon.run.silence import fallen_silent, still_there
from ddpmon.run.step_map import STEPS
from ddpmon.schema import PHASES
from ddpmon.snapshot import Course, Floats, Ints, RankDetail

SHARES = (0.05, 0.5, 0.95)
# So many other ranks, evenly spaced, stand for all of them: of 64 the 5 % and 95 % marks are the 4th and the 61st. It
# bounds what a tick sorts at 4,096 ranks. Chosen, not measured.
MOST_PEERS = 64
_OF_STEPS = (*PHASES, "work", "wait", "loss")


def build_detail(run: Run, rank: int, late: Collection[int] = (), named: Collection[int] = ()) -> RankDetail | None:
    """The newest steps of a rank and the readings of its machine; None before it was heard of.

    The ranks that findings call late are not among the others that it is compared with, and those that findings name,
    such as for their memory, are not among those that its machine is compared with; see `others_of`.
    """
    state = run.ranks[rank] if 0 <= rank < len(run.ranks) else None
    if state is None:
        return None
    peers, machines = peers_of(run, rank, late), peers_of(run, rank, late, named)
    held = run.latest.column("gpu_memory")
    machines = np.array(still_there(machines.tolist(), run.gpu_of, held), np.int64)
    return RankDetail(
        rank=rank,
        courses={**_of_steps(run, rank, peers), **_of_readings(run, rank, machines)},
        notes=tuple(state.frame.notes),
        stall=state.frame.stall,
        failure=state.frame.failure,
    )


def peers_of(run: Run, rank: int, late: Collection[int] = (), named: Collection[int] = ()) -> Ints:
    """The other ranks that take part, at most `MOST_PEERS`, evenly spaced; if they can be, without `late` and `named`.

    Silent ranks are none of them. A rank that has restarted on its own has none: its steps are of other times.
    """
    latest = run.latest
    ages = np.fmax.reduce(latest.heard_at, initial=-np.inf) - latest.heard_at
    taking_part = run.taking_part() & ~fallen_silent(ages, latest.ended)
    taking_part[rank] = False
    others: Ints = np.flatnonzero(taking_part & ~run.out_of_step()[rank])
    return some_of(without(others, late, named), MOST_PEERS)


def _of_steps(run: Run, rank: int, peers: Ints) -> dict[str, Course]:
    """The courses by step, from the first step of the rank that is on record."""
    newest = int(run.rings.last[rank])
    steps = np.arange(max(0, newest + 1 - min(STEPS, run.rings.capacity)), newest + 1)
    who = np.sort(np.append(peers, rank))
    own = int(np.searchsorted(who, rank))
    tables = run.rings.takes(_OF_STEPS, steps, who).astype(np.float64)
    known = np.flatnonzero(np.isfinite(tables[_OF_STEPS.index("work"), own]))
    steps, tables = (steps[known[0] :], tables[:, :, known[0] :]) if known.size else (steps[:0], tables[:, :, :0])
    courses = {
        name: Course(steps, table[own], quantiles(np.delete(table, own, axis=0)))
        for name, table in zip(_OF_STEPS, tables, strict=True)
    }
    return {**courses, "lateness": _lateness(run, peers, courses["work"])}


def _lateness(run: Run, peers: Ints, work: Course) -> Course:
    """Work minus the median work of the others, the `peers`, at the same step.

    Of the newest steps, which some ranks have not told of yet, no lateness is known.
    """
    if not len(work.others):
        return Course(work.step, np.full(len(work.step), np.nan), work.others)
    middle = work.others[1]
    own = np.where(work.step <= _all_told_until(run, peers), work.own, np.nan)
    return Course(work.step, own - middle, work.others - middle)


def _all_told_until(run: Run, ranks: Ints) -> int:
    """The newest step of which all of these ranks have told, but for those that are silent or stand still."""
    latest, last = run.latest, run.rings.last[ranks]
    heard_at = latest.heard_at[ranks]
    still_s = np.nanmax(heard_at) - heard_at + np.nan_to_num(latest.step_s[ranks])
    goes_on = still_s <= SILENT_S
    return int(last[goes_on].min() if goes_on.any() else last.min())


def _of_readings(run: Run, rank: int, peers: Ints) -> dict[str, Course]:
    """The courses by reading; of each other rank its newest reading at that step."""
    own = run.resources.of(rank)
    step = own[:, 0].astype(np.int64)
    tables = np.full((len(RESOURCES) - 1, len(peers), len(step)), np.nan)
    for place, peer in enumerate(peers.tolist()):
        points = run.resources.of(peer)
        at = np.searchsorted(points[:, 0], step, side="right") - 1
        seen = at >= 0
        tables[:, place, seen] = points[at[seen], 1:].T
    return {
        name: Course(step, own[:, column + 1], quantiles(table))
        for column, (name, table) in enumerate(zip(RESOURCES[1:], tables, strict=True))
    }


def quantiles(values: NDArray[np.float64]) -> Floats:
    """[3, N] below which 5 %, 50 % and 95 % of the known values of each column [n, N] are; no rows for n = 0."""
    if not len(values):
        return np.empty((0, values.shape[1]))
    ordered = np.sort(values, axis=0)  # NaN sorts last
    count = np.isfinite(values).sum(axis=0)
    columns = np.arange(values.shape[1])
    found = []
    for share in SHARES:
        place = np.maximum(share * (count - 1), 0.0)
        low, high = np.floor(place).astype(np.int64), np.ceil(place).astype(np.int64)
        part = place - low
        found.append(ordered[low, columns] * (1 - part) + ordered[high, columns] * part)
    result: Floats = np.where(count > 0, np.stack(found), np.nan)
    return result
