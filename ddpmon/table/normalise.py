"""Rows as read into records as the ranks would have made them: in order, each once, with work and waits known."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from ddpmon.format import plural
from ddpmon.run.rings import believable
from ddpmon.table.csv_lines import TableError, listed
from ddpmon.table.fields import COLUMNS, Array
from ddpmon.table.read import Table

_DISAGREE = 0.05
_SHORT_MS = 1.0  # no step with a reduction is as short
_CROWDED = 64  # a rank number far beyond the number of ranks is a slip, and costs memory for every number below it
_FEW_RANKS = 4096
_AGAIN = 3  # a loss scaler skips a step now and then; what comes back so often was not logged


class Records(Struct, frozen=True):
    """n records in order of step, then rank, each pair once.

    Attributes:
        step, rank: [n] int64.
        values: quantity of `schema.STEP_COLUMNS` -> [n] float64, NaN where unknown; duration and exposed are known.
        broken_loss: [n] whether the loss is not finite.
        nodes: rank -> its node; for all ranks or none.
        steps: [s] the steps, ascending. world_size: the highest rank number and one.
    """

    step: Array
    rank: Array
    values: dict[str, Array]
    broken_loss: Array
    nodes: dict[int, str]
    steps: Array
    world_size: int


def normalise(table: Table) -> tuple[Records, list[str]]:
    """The records of a table, and what a reader should know of how they came about.

    Raises:
        TableError: nothing is left, or a rank number that makes no sense.
    """
    notes = list(table.notes)
    chosen = _in_order(table, notes)
    values = {column.wire: table.values[name][chosen] for name, column in COLUMNS.items() if column.wire is not None}
    step = table.values["step"][chosen].astype(np.int64)
    rank = table.values["rank"][chosen].astype(np.int64)
    known = _know_waits(step, values, notes)
    if not known.any():
        raise TableError(f"no row of {table.source} holds the work of its rank: work_ms, or duration_ms and exposed_ms")
    known &= _possible(step, values, known, notes)
    if not known.any():
        raise TableError(
            f"no row of {table.source} is possible: a duration is above 0 ms, and no wait is longer than it"
        )
    if np.median(values["duration"][known]) < _SHORT_MS:
        notes.append("steps take less than 1 ms: are these durations in seconds? Milliseconds are expected")
    known &= ~rare(step, rank, known, notes)
    kept = {name: column[known] for name, column in values.items() if np.isfinite(column).any()}
    broken = _broken(rank, kept.get("loss"), table.broken_loss[chosen], known)
    step, rank = step[known], rank[known]
    check_numbers(rank, table.source)
    nodes = nodes_of(table, rank, notes)
    return Records(step, rank, kept, broken, nodes, np.unique(step), int(rank.max()) + 1), notes


def _in_order(table: Table, notes: list[str]) -> Array:
    """Which rows to take, in order of step and rank: of rows for the same step and rank the last one."""
    step, rank = table.values["step"], table.values["rank"]
    order = np.lexsort((rank, step))  # stable: the last of the file stays the last
    again = (np.diff(step[order]) == 0) & (np.diff(rank[order]) == 0)
    if again.any():
        notes.append(f"{_rows(again.sum())} ignored: a later row is for the same step and rank")
    chosen: Array = order[np.append(~again, True)]
    return chosen


def _know_waits(step: Array, values: dict[str, Array], notes: list[str]) -> Array:
    """Fill in duration and exposed from what is given (docs/design.md "Formulas"); returns where both are known now."""
    work = values.pop("work")
    barrier = np.nan_to_num(values["barrier"])
    alone = ~np.isnan(work) & np.isnan(values["duration"]) & np.isnan(values["exposed"])
    duration = np.where(np.isnan(values["duration"]), work + values["exposed"] + barrier, values["duration"])
    exposed = np.where(np.isnan(values["exposed"]), np.maximum(0, duration - work - barrier), values["exposed"])
    if alone.any():
        known_work = np.where(np.isnan(work), duration - exposed - barrier, work)
        exposed[alone] = np.maximum(0, _most_at_step(step, known_work) - work - barrier)[alone]
        duration[alone] = (work + exposed + barrier)[alone]
        notes.append(
            f"waits of {_rows(alone.sum())} derived: the longest work of any rank at that step minus the row's own"
        )
    apart = np.abs(duration - exposed - barrier - work) > _DISAGREE * duration
    if apart.any():
        notes.append(f"work_ms of {_rows(apart.sum())} replaced by duration - exposed - barrier, which differs from it")
    values["duration"], values["exposed"] = duration, exposed
    known: Array = ~np.isnan(duration) & ~np.isnan(exposed)
    if not known.all():
        notes.append(f"left out: {_rows((~known).sum())} without enough columns to compute the work")
    return known


def _possible(step: Array, values: dict[str, Array], known: Array, notes: list[str]) -> Array:
    """Rows that the watcher's model believes."""
    possible: Array = believable(step, values)
    if (known & ~possible).any():
        notes.append(
            f"left out: {_rows((known & ~possible).sum())} with impossible numbers; a duration is above 0 ms, and no "
            f"wait is longer than it"
        )
    return possible


def _most_at_step(step: Array, work: Array) -> Array:
    starts = np.flatnonzero(np.diff(step, prepend=-1))
    most: Array = np.repeat(np.fmax.reduceat(work, starts), np.diff(starts, append=len(step)))
    return most


def rare(step: Array, rank: Array, known: Array, notes: list[str]) -> Array:
    """Rows of ranks with rows at fewer than half of the steps that they span: no step is complete with them."""
    steps = np.unique(step[known])
    ranks, own = np.unique(rank[known], return_inverse=True)
    at = np.searchsorted(steps, step[known])
    first, last = np.full(len(ranks), len(steps)), np.zeros(len(ranks), np.int64)
    np.minimum.at(first, own, at)
    np.maximum.at(last, own, at)
    rare = 2 * np.bincount(own) < last - first + 1
    if not rare.any() or rare.all():
        return np.zeros(len(rank), bool)
    notes.append(f"left out: {ranks_listed(ranks[rare])}, with rows at fewer than half of the steps")
    return np.isin(rank, ranks[rare])


def _broken(rank: Array, loss: Array | None, said: Array, known: Array) -> Array:
    """Losses that are not finite, of ranks that have a finite one: where none is, nan means that there is no loss.

    So it does where a rank's loss is nan in most rows and finite again and again: it is logged now and then.
    """
    if loss is None:
        return np.zeros(int(known.sum()), bool)
    rank, broken = rank[known], said[known]
    finite, nan = np.isfinite(loss), broken & np.isnan(loss)
    order = np.argsort(rank, kind="stable")
    again = np.zeros(len(rank), bool)
    again[order[1:]] = finite[order[1:]] & nan[order[:-1]] & (rank[order[1:]] == rank[order[:-1]])
    count = int(rank.max(initial=-1)) + 1
    rows, nans, returns = (np.bincount(rank, weights=flags, minlength=count) for flags in (None, nan, again))
    now_and_then = (2 * nans >= rows) & (returns >= _AGAIN)
    logging = np.bincount(rank, weights=finite, minlength=count) > 0
    found: Array = broken & logging[rank] & ~(nan & now_and_then[rank])
    return found


def check_numbers(rank: Array, source: str) -> None:
    """Check that rank numbers count from 0.

    Raises:
        TableError: one makes no sense.
    """
    count, highest = len(np.unique(rank)), int(rank.max())
    if highest >= max(_FEW_RANKS, _CROWDED * count):
        raise TableError(f"{source} has {plural(count, 'rank')}, but one is numbered {highest:,}: ranks count from 0")


def nodes_of(table: Table, rank: Array, notes: list[str]) -> dict[int, str]:
    """Rank -> its node, of all ranks or of none."""
    ranks = np.unique(rank).tolist()
    nodes = {number: table.nodes[number] for number in ranks if number in table.nodes}
    if nodes and len(nodes) < len(ranks):
        notes.append(f"column node lacks {len(ranks) - len(nodes)} of {len(ranks)} ranks: hosts are not compared")
        return {}
    return nodes


def _rows(count: int) -> str:
    return f"{count:,} row{'s' if count > 1 else ''}"


def ranks_listed(ranks: Array) -> str:
    """Rank numbers as ranges, the first five of them."""
    return ("rank " if len(ranks) == 1 else "ranks ") + listed([*_ranges(ranks)])


def _ranges(numbers: Array) -> Iterator[str]:
    for part in np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1):
        yield f"{part[0]}" if len(part) == 1 else f"{part[0]} to {part[-1]}"
