"""The last steps of every rank: one [world, capacity] array a column, where step s lies in slot s % capacity.

In memory the values of all ranks at one step lie beside each other: what is read are nearly always the newest steps of
all ranks, and so they are read in one go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ddpmon.run.medians import median
from ddpmon.schema import HOST_COLUMNS, StepColumns

F16 = NDArray[np.float16]
F32 = NDArray[np.float32]
I64 = NDArray[np.int64]
T = TypeVar("T", bound=np.generic)

MEASURED = ("duration", "input", "forward", "backward", "optimizer", "exposed", "barrier", "marked", "allreduce", "gc")
LOGGED = ("loss", "samples", "tokens")
DERIVED = ("work", "other", "wait")
_LARGEST_MS = 1e9
_LONGEST_WAIT = 1.5  # of the step's duration: the two are measured by different clocks on a GPU
_LARGEST_STEP = 1 << 48
_CELLS = 3 << 18
# Of more ranks all times but the step's own are kept in half precision, which is three digits: 0.05 % of a phase, where
# healthy steps differ by more. At 4,096 ranks a column takes 2 MB instead of 4. They are kept in units of 1,024 ms, a
# power of two that changes no digit, since half precision ends at 65,504: a wait of more than 65 s is not rare.
_MOST_RANKS_IN_FULL = 1024
_HALVES = frozenset((*MEASURED, *HOST_COLUMNS)) - {"duration"}
_HALF_MS = np.float32(1024)
_LARGEST_HALF = np.float32(np.finfo(np.float16).max)
_ROWS_AT_ONCE = 1 << 17  # of records taken in together, so that many long ones do not take much memory at a time
Records = Sequence[tuple[int, StepColumns]]
Tables = Sequence[tuple[Sequence[str], NDArray[Any]]]


def capacity_for(world_size: int) -> int:
    """Steps kept a rank: what 786,432 cells a column allow, from 64 to 2,048."""
    return int(min(2048, max(64, _CELLS // world_size)))


class Rings:
    """All ranks' recent steps, aligned by step number.

    Attributes:
        step: [world, capacity] the step in each slot, -1 where there is none. It is int32 until a run has more than
            2^31 steps, 24 days of steps of 1 ms, and int64 from then on: at 4,096 ranks that is 4 MB.
        last: [world] the newest step on record, -1 where there is none.
        set_aside: records that could not be true (a duration that is 0, negative or infinite, waits far longer than
            the step) and were left out.
        touched: [world] the ranks whose records have changed since somebody last cleared this.
        changed_from: the lowest step that was written since somebody last set this to `NOTHING`. Steps that lie a whole
            ring below the newest do not count: a rank that has restarted writes such ones where it had none.
    """

    NOTHING = 1 << 62

    def __init__(self, world_size: int) -> None:
        self.capacity = capacity_for(world_size)
        shape = (self.capacity, world_size)
        self.step: NDArray[np.int32] | I64 = np.full(shape, -1, np.int32).T
        # Of the columns that ranks send [world, capacity], NaN where unknown; `take` works out the others. Those of the
        # host are there once a rank has sent them: its clock is then a device's. A column with one value in all records
        # is that value broadcast. Where `step` is -1 a column may have any value.
        self._unknown: F32 = np.broadcast_to(np.float32(np.nan), shape).T
        self._column: dict[str, F32 | F16] = dict.fromkeys((*MEASURED, *LOGGED), self._unknown)
        self._halves = _HALVES if world_size > _MOST_RANKS_IN_FULL else frozenset[str]()
        self.last: I64 = np.full(world_size, -1, np.int64)
        self.set_aside = 0
        self.touched: NDArray[np.bool_] = np.ones(world_size, np.bool_)
        self.changed_from = 0
        # What `_held` has looked up, until a step is written.
        self._looked_up: dict[tuple[bytes, bytes | None], tuple[NDArray[np.bool_], bool]] = {}

    @property
    def of_device(self) -> bool:
        """Whether the ranks' clock is a device's."""
        return "lead" in self._column

    def is_uniform(self, name: str) -> bool:
        """Whether a column has had one value in all records; of those that are worked out it is not known."""
        return name in self._column and not self._column[name].flags.writeable

    def is_nothing(self, name: str) -> bool:
        """Whether all records have 0 in a column, or nothing."""
        return self.is_uniform(name) and not self._column[name][0, 0] > 0

    def clear(self, rank: int) -> None:
        """Forget a rank that has restarted."""
        self._looked_up.clear()
        self.step[rank] = -1
        self.last[rank] = -1
        self.touched[rank] = True
        self.changed_from = 0

    def add(self, records: Records) -> None:
        """Take step records in, at most one set of columns a rank; a record never replaces one of a later step.

        What is on record already is left alone: a frame repeats the steps of some seconds.
        """
        for names, part in _alike(records):
            self._add(names, part)

    def _add(self, names: tuple[str, ...], records: Records) -> None:
        steps = np.frombuffer(b"".join([columns.step for _, columns in records]), "<i8").astype(np.int64)
        who = np.repeat([rank for rank, _ in records], [len(columns) for _, columns in records])
        tables = zip(*[columns.values.values() for _, columns in records], strict=True)  # all in the order of `names`
        values = {
            name: np.frombuffer(b"".join(parts), "<f2" if name in HOST_COLUMNS else "<f4")
            for name, parts in zip(names, tables, strict=True)
        }
        new = self.new(who, steps)
        self._take(who[new], steps[new], {name: _as_f32(column[new]) for name, column in values.items()})

    def add_rows(self, who: I64, steps: I64, tables: Tables) -> None:
        """Take in rows that have the same columns.

        Args:
            who: [n] the rank of each row, -1 for one that is left out.
            steps: [n] its step; those of a rank may have come before, and are then left alone.
            tables: names of columns, and their values [n, columns] as float32 or float16.
        """
        new = self.new(who, steps)
        rows = [(names, _as_f32(table[new])) for names, table in tables]
        values = {name: table[:, place] for names, table in rows for place, name in enumerate(names)}
        self._take(who[new], steps[new], values)

    def new(self, who: I64, steps: I64) -> I64:
        """The places of the rows that are not on record, and not overtaken."""
        return np.flatnonzero(((self.step[who, steps % self.capacity] < steps) | (steps < 0)) & (who >= 0))

    def _take(self, who: I64, steps: I64, values: dict[str, F32]) -> None:
        """Write new rows, but for those that cannot be true."""
        good = believable(steps, values)
        if not good.all():
            self.set_aside += len(good) - int(np.count_nonzero(good))
            steps, who = steps[good], who[good]
            values = {name: column[good] for name, column in values.items()}
        if steps.size:
            self._looked_up.clear()
            if self.step.dtype != np.int64 and int(steps.max()) > np.iinfo(np.int32).max:
                self.step = self.step.astype(np.int64)
            cells = self.cells(who, steps % self.capacity)
            self._write(cells, values)
            self.step.T.reshape(-1)[cells] = steps
            recent = steps[steps > int(self.last.max()) - self.capacity]
            self.changed_from = min(self.changed_from, int(recent.min(initial=self.NOTHING)))
            np.maximum.at(self.last, who, steps)
            self.touched[who] = True

    def _write(self, cells: I64, values: dict[str, F32]) -> None:
        """Fill the columns; of those of the host, what no duration can be is unknown."""
        unknown = np.full_like(values["duration"], np.nan)
        for name in (*MEASURED, *LOGGED):
            self._fill(name, cells, values.get(name, unknown))
        if self.of_device or "lead" in values:
            for name in HOST_COLUMNS:
                found = values.get(name, unknown)
                self._fill(name, cells, np.where((found >= 0) & (found <= _LARGEST_MS), found, np.float32(np.nan)))

    def _fill(self, name: str, cells: I64, found: F32) -> None:
        """Write one column; it is broadcast until a record has another value than those before."""
        column = self._column.setdefault(name, self._unknown)
        if self.is_uniform(name):
            is_first = bool((self.last < 0).all())
            value = found[0] if is_first else column[0, 0]
            if (np.isnan(found) if np.isnan(value) else found == value).all():
                self._column[name] = np.broadcast_to(value, column.shape)
                return
            kept = _halved(value) if name in self._halves else value
            column = self._column[name] = np.full(column.T.shape, kept, kept.dtype).T
        column.T.reshape(-1)[cells] = _halved(found) if name in self._halves else found

    def take(self, name: str, steps: I64, who: I64 | None = None) -> F32:
        """[ranks, len(steps)] of a column at these steps, NaN where a rank has no record of the step.

        The ranks are those in `who`, by default all.
        """
        table: F32 = self.takes((name,), steps, who)[0]
        return table

    def takes(self, names: Sequence[str], steps: I64, who: I64 | None = None) -> F32:
        """[len(names), ranks, len(steps)] of several columns; the ranks of one step lie beside each other."""
        cut: Callable[[Any], Any] = self._cut(steps, who)
        present, are_all = self._held(steps, who)
        tables = np.empty((len(names), *present.T.shape), np.float32)
        for table, values in zip(tables, self._values(names, lambda column: cut(column).T), strict=True):
            table[:] = values
        found: F32 = tables.swapaxes(1, 2)
        if not are_all:
            np.copyto(found, np.float32(np.nan), where=~present)
        return found

    def cells(self, who: I64, slots: I64) -> I64:
        """The numbers of cells, for `steps_in` and `values_in`."""
        return slots * len(self.last) + who

    def steps_in(self, cells: I64) -> NDArray[np.int32] | I64:
        """The steps that these cells hold, -1 in those that hold none."""
        return self.step.T.reshape(-1).take(cells)

    def values_in(self, names: Sequence[str], cells: I64) -> list[F32]:
        """What these cells hold, one table of their shape a column; anything where they hold no step."""
        tables = self._values(names, lambda column: column.T.reshape(-1).take(cells))
        return [np.broadcast_to(table, cells.shape) for table in tables]

    def _values(self, names: Sequence[str], cut: Callable[[F32 | F16], F32 | F16]) -> list[F32 | np.float32]:
        """What `cut` takes out of each of these columns, or of those that it is made of; one value where all are it."""

        @cache
        def stored(name: str) -> F32 | np.float32:
            column = self._column[name]
            return _whole(cut(column)) if column.flags.writeable else np.float32(column[0, 0])

        return [_derived(name, stored) if name in DERIVED else stored(name) for name in names]

    def of(self, name: str, ranks: I64 | Sequence[int]) -> F32:
        """[len(ranks), capacity] one of the columns that are sent, slot by slot; its step is in `step`."""
        return _whole(self._column[name][ranks])

    def usual_ms(self, ranks: I64 | Sequence[int]) -> float:
        """The median duration of the steps on record of these ranks, NaN where they have none."""
        return median(np.where(self.step[ranks] >= 0, self.of("duration", ranks), np.float32(np.nan)))

    def present(self, steps: I64, who: I64 | None = None) -> NDArray[np.bool_]:
        """[ranks, len(steps)] whether the rank has a record of the step; not to be written."""
        return self._held(steps, who)[0]

    def _held(self, steps: I64, who: I64 | None) -> tuple[NDArray[np.bool_], bool]:
        """What `present` says, and whether all are; it is looked up once, since many rules ask for the same steps."""
        ranks = None if who is None or len(who) == len(self.last) else who.tobytes()
        key = steps.tobytes(), ranks
        known = self._looked_up.get(key)
        if known is None:
            asked = steps.astype(self.step.dtype)  # to compare int32 with int64 takes three times as long
            present: NDArray[np.bool_] = self._cut(steps, who)(self.step) == asked
            present.flags.writeable = False
            known = present, bool(present.all())
            if known[1]:  # the usual case, for which no table needs to be kept
                known = np.broadcast_to(np.True_, present.shape), True
            self._looked_up[key] = known
        return known

    def _cut(self, steps: I64, who: I64 | None) -> Callable[[NDArray[T]], NDArray[T]]:
        """What cuts [ranks, len(steps)] out of a table; steps that follow on each other are cut out whole."""
        count = len(steps)
        slots = steps % self.capacity

        def of_ranks(table: NDArray[T]) -> NDArray[T]:
            """The columns of the ranks in a table [steps, world]; `table[:, who]` takes three times as long."""
            return table if who is None or len(who) == len(self.last) else table.take(who, axis=1)

        if not count or count > self.capacity or not bool((steps[1:] == steps[:-1] + 1).all()):
            return lambda table: of_ranks(table.T[slots]).T
        start = int(slots[0])
        if start + count <= self.capacity:
            return lambda table: of_ranks(table.T[start : start + count]).T
        rest = start + count - self.capacity
        return lambda table: np.concatenate([of_ranks(table.T[start:]), of_ranks(table.T[:rest])]).T


def _alike(records: Records) -> Iterator[tuple[tuple[str, ...], Records]]:
    """Records that have the same columns, so many at a time that they are not too large together."""
    groups: dict[tuple[str, ...], list[tuple[int, StepColumns]]] = {}
    for record in records:
        if record[1].step:
            groups.setdefault(tuple(record[1].values), []).append(record)
    for names, group in groups.items():
        longest = max(len(columns) for _, columns in group)
        many = max(1, _ROWS_AT_ONCE // max(1, longest))
        for start in range(0, len(group), many):
            yield names, group[start : start + many]


def _derived(name: str, stored: Callable[[str], F32 | np.float32]) -> F32:
    """`wait = exposed + barrier`; `work` and `other` are the rest of the step (docs/design.md "Formulas")."""
    barrier = stored("barrier")
    known: F32 = np.where(np.isnan(barrier), np.float32(0), barrier)
    wait: F32 = stored("exposed") + known
    if name == "wait":
        return wait
    rest: F32 = stored("duration") - wait
    if name == "other":  # unknown if one of the named phases is
        rest = rest - (stored("input") + stored("forward") + stored("backward") + stored("optimizer"))
    return np.maximum(rest, 0)


def _halved(values: Any) -> Any:
    """Times in ms in half precision; the largest of it for those above."""
    return np.minimum(values / _HALF_MS, _LARGEST_HALF).astype(np.float16)


def _whole(values: F32 | F16) -> F32:
    """The same in ms."""
    if values.dtype != np.float16:
        return values  # type: ignore[return-value]  # the only other one
    whole: F32 = values.astype(np.float32)
    whole *= _HALF_MS
    return whole


def _as_f32(values: NDArray[Any]) -> F32:
    return values.astype(np.float32, copy=False)


def believable(steps: I64, values: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
    """Records whose step is a step, with durations that are finite and not negative, and waits that fit into them."""
    good = (steps >= 0) & (steps <= _LARGEST_STEP)
    duration = values.get("duration")
    if duration is None:
        return np.zeros_like(good)
    good &= np.isfinite(duration) & (duration > 0)
    for name in MEASURED:
        column = values.get(name)
        if column is not None:
            good &= ~((column < 0) | (column > _LARGEST_MS))  # NaN is neither
        if column is not None and name in ("exposed", "barrier"):
            good &= ~(column > _LONGEST_WAIT * np.minimum(duration, _LARGEST_MS) + 1)
    return good
