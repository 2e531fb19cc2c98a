"""A table of marks, one row each, as a profiler's trace gives them; made into the records that ranks would publish."""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from ddpmon.leads import UNKNOWN, Leads, StepTimes
from ddpmon.run.medians import median
from ddpmon.run.rings import believable
from ddpmon.schema import HOST_COLUMNS
from ddpmon.table.csv_lines import Heading, Lines, TableError, need_columns, read_heading
from ddpmon.table.fields import STEP_AND_RANK, Array, Column
from ddpmon.table.normalise import Records, check_numbers, nodes_of, ranks_listed, rare
from ddpmon.table.read import Reader, Table

MARKS = ("input", "forward", "forwarded", "ready", "synced", "optimizer", "optimized")
INPUT, FORWARD, FORWARDED, READY, SYNCED, OPTIMIZER, OPTIMIZED = range(len(MARKS))
_NEEDED = [FORWARD, READY, SYNCED]
_LATEST_MS = 1e12
_BASE_STEPS = 256  # a trace that begins amid a run has a lead of 0 somewhere among so many
_APART, _APART_MS = 0.5, 5.0  # a synchronous step takes equally long on all ranks, but for their exits' skew


def _names(cells: tuple[str, ...]) -> tuple[Array, Array, Array]:
    """The places of marks in `MARKS`, as `columns.numbers` gives numbers."""
    places = {name: float(place) for place, name in enumerate(MARKS)}
    values = np.array([places.get(cell.strip().lower(), np.nan) for cell in cells])
    empty = np.array([not cell.strip() for cell in cells], bool)
    return values, empty, np.isnan(values) & ~empty


def _time() -> Column:
    return Column(None, "milliseconds", lambda values: np.abs(values) <= _LATEST_MS)


COLUMNS = {
    **STEP_AND_RANK,
    "mark": Column(None, f"one of {', '.join(MARKS)}", lambda values: values >= 0, needed=True, read=_names),
    "host_ms": _time(),
    "device_ms": _time(),
}


def read_marks(stream: io.BufferedReader, source: str) -> Table:
    """Read a table of marks.

    Raises:
        TableError: its heading lacks what is needed, or no row can be read.
        OSError: the stream cannot be read.
    """
    lines = Lines(stream)
    return Reader(lines, read_heading(lines, source, COLUMNS, _check), source, COLUMNS).table()


def _check(heading: Heading, source: str) -> None:
    if not heading.place:
        raise TableError(
            f"{source} is not a table of marks: its first line must name the columns step, rank, mark, host_ms and "
            f"device_ms"
        )
    need_columns(heading, source, ("step", "rank", "mark", "host_ms"))


class _Rank(Struct, frozen=True):
    """The marks of one rank: [s] steps, [s, 7] host and device times, NaN where unknown."""

    number: int
    steps: Array
    host: Array
    device: Array


def steps_of_marks(table: Table) -> tuple[Records, list[str]]:
    """The records of a table of marks, and what a reader should know of how they came about.

    Raises:
        TableError: nothing is left, or a rank number that makes no sense.
    """
    notes = list(table.notes)
    ranks = [*_ranks(table, notes)]
    timed = [rank for rank in ranks if np.isfinite(rank.device[:, _NEEDED]).all(axis=1).any()]
    if timed and len(timed) < len(ranks):
        absent = np.array([rank.number for rank in ranks if rank not in timed])
        notes.append(f"left out: {ranks_listed(absent)}, without device times: where they waited is unknown")
    made = [_device_steps(rank) if timed else _host_steps(rank) for rank in timed or ranks]
    step, rank = (np.concatenate([one[name] for one in made]).astype(np.int64) for name in ("step", "rank"))
    values = {name: np.concatenate([one[name] for one in made]) for name in made[0] if name not in ("step", "rank")}
    order = np.lexsort((rank, step))
    step, rank = step[order], rank[order]
    values = {name: column[order] for name, column in values.items()}
    known = _possible(step, values, notes)
    if not known.any():
        raise TableError(f"no step of {table.source} has forward, ready and synced in this order, in milliseconds")
    known &= ~rare(step, rank, known, notes)
    step, rank = step[known], rank[known]
    kept = {name: column[known] for name, column in values.items()}
    check_numbers(rank, table.source)
    nodes = nodes_of(table, rank, notes)
    broken = np.zeros(len(step), bool)
    return Records(step, rank, kept, broken, nodes, np.unique(step), int(rank.max()) + 1), notes


def _ranks(table: Table, notes: list[str]) -> Iterator[_Rank]:
    """The marks rank by rank; of rows for the same mark the last one counts."""
    step, rank, mark = (table.values[name].astype(np.int64) for name in ("step", "rank", "mark"))
    check_numbers(rank, table.source)
    key = np.stack([rank, step, mark])
    again = len(step) - np.unique(key, axis=1).shape[1]
    if again:
        rows = f"{again:,} row{'s' if again > 1 else ''}"
        notes.append(f"{rows} ignored: a later row is for the same mark of this step and rank")
    for number in np.unique(rank).tolist():
        own = np.flatnonzero(rank == number)
        steps, at = np.unique(step[own], return_inverse=True)
        host, device = (np.full((len(steps), len(MARKS)), np.nan) for _ in range(2))
        host[at, mark[own]] = table.values["host_ms"][own]
        device[at, mark[own]] = table.values["device_ms"][own]
        yield _Rank(number, steps, host, device)


def _possible(step: Array, values: dict[str, Array], notes: list[str]) -> Array:
    """Records of steps whose marks follow on each other, and that take as long as on the other ranks."""
    there = np.isfinite(values["duration"]) & np.isfinite(values["exposed"])
    good: Array = believable(step, values)
    usual = _usual(step, np.where(good, values["duration"], np.nan))
    with np.errstate(invalid="ignore"):
        together = np.abs(values["duration"] - usual) <= np.maximum(_APART * usual, _APART_MS)
    together |= step == step[0]  # it begins with its forward
    missing, apart = int((~there).sum()), int((there & ~(good & together)).sum())
    if missing:
        notes.append(
            f"left out: {_steps(missing)} without forward, ready and synced in this order, or without the step before"
        )
    if apart:
        notes.append(
            f"left out: {_steps(apart)} with another duration than on the other ranks: a clock was set or stood still"
        )
    found: Array = good & together
    return found


def _usual(step: Array, duration: Array) -> Array:
    """[n] the median of the known durations at the same step, NaN without any; `step` is in order."""
    parts = np.split(duration, np.flatnonzero(np.diff(step)) + 1)
    usual: Array = np.repeat([median(part) for part in parts], [len(part) for part in parts])
    return usual


def _steps(count: int) -> str:
    return f"{count:,} step{'s' if count > 1 else ''} of a rank"


def _columns(rank: _Rank, time: Array, idle: Array) -> dict[str, Array]:
    """Durations by one clock `time` [s, 7]; the optimizer marks of the iteration before lie in this step.

    `idle` is when the step before had nothing more to do: there the input begins.
    """
    before = _before(rank, time)
    ready, synced, forward = time[:, READY], time[:, SYNCED], time[:, FORWARD]
    start = np.where(np.isnan(before[:, SYNCED]) & (np.arange(len(time)) == 0), forward, before[:, SYNCED])
    orderly = (forward >= start) & (ready >= forward) & (synced >= ready)
    columns = {
        "duration": np.where(orderly, synced - start, np.nan),
        "forward": _positive(time[:, FORWARDED] - forward),
        "backward": _positive(ready - time[:, FORWARDED]),
        "optimizer": np.nan_to_num(_positive(before[:, OPTIMIZED] - before[:, OPTIMIZER])),
        "exposed": np.where(orderly, synced - ready, np.nan),
        "input": np.nan_to_num(_positive(idle)),
    }
    return {"step": rank.steps, "rank": np.full(len(rank.steps), rank.number), **columns}


def _before(rank: _Rank, time: Array) -> Array:
    """[s, 7] the marks of the iteration before; NaN where that is not there."""
    before = np.full_like(time, np.nan)
    before[1:] = np.where((np.diff(rank.steps) == 1)[:, None], time[:-1], np.nan)
    return before


def _positive(spans: Array) -> Array:
    with np.errstate(invalid="ignore"):
        return np.where(spans >= 0, spans, np.nan)


def _done(before: Array) -> Array:
    """[s] when an iteration's last work was done."""
    return np.where(np.isnan(before[:, OPTIMIZED]), before[:, SYNCED], before[:, OPTIMIZED])


def _host_steps(rank: _Rank) -> dict[str, Array]:
    """The records of a rank that trains on CPUs: the host's time tells all."""
    return _columns(rank, rank.host, rank.host[:, INPUT] - _done(_before(rank, rank.host)))


def _device_steps(rank: _Rank) -> dict[str, Array]:
    """The records of a rank with a device: durations by its device, and the host's side of each step."""
    loads = rank.host[:, INPUT] - _done(_before(rank, rank.host))
    idle = rank.device[:, FORWARD] - _done(_before(rank, rank.device))
    with np.errstate(invalid="ignore"):
        columns = _columns(rank, rank.device, np.minimum(loads, np.maximum(idle, 0)))
    host = np.array([*_host_times(rank, np.isfinite(columns["duration"]))])
    return columns | dict(zip(HOST_COLUMNS, host.T, strict=True))


def _host_times(rank: _Rank, whole: Array) -> Iterator[tuple[float, ...]]:
    """`schema.HOST_COLUMNS` of each step; unknown where a mark that it takes is missing, or the host's go back."""
    before = np.stack([_before(rank, rank.host), _before(rank, rank.device)], axis=2)
    own = np.stack([rank.host, rank.device], axis=2)
    leads = Leads() if rank.steps[0] == 0 else Leads(_base(rank))
    for at in range(len(rank.steps)):
        times = _step_times(before[at], own[at]) if whole[at] else None
        yield UNKNOWN if times is None else leads.take(times)


def _base(rank: _Rank) -> float:
    """Device time less host time without a lead, of a trace that begins amid a run."""
    lag = rank.device[:_BASE_STEPS] - rank.host[:_BASE_STEPS]
    return float(np.nanmin(lag)) if np.isfinite(lag).any() else np.inf


def _step_times(before: Array, own: Array) -> StepTimes | None:
    """One step of marks [7, 2] (host, device), those of the iteration before first."""
    first = own[FORWARD] if np.isnan(before[SYNCED]).any() else before[SYNCED]
    done = before[OPTIMIZED, 0] if np.isfinite(before[OPTIMIZED, 0]) else before[SYNCED, 0]
    named = {
        "input": (done, own[INPUT, 0]),
        "forward": (own[FORWARD, 0], own[FORWARDED, 0]),
        "backward": (own[FORWARDED, 0], own[READY, 0]),
        "optimizer": (before[OPTIMIZER, 0], before[OPTIMIZED, 0]),
    }
    phases = {name: [(float(a), float(b))] for name, (a, b) in named.items() if np.isfinite(a) and np.isfinite(b)}
    order = [first[0], own[FORWARD, 0], own[READY, 0], own[SYNCED, 0]]
    if not np.isfinite(order).all() or (np.diff(order) < 0).any() or any(a > b for ((a, b),) in phases.values()):
        return None
    marks = np.concatenate([before[OPTIMIZER:], own[FORWARD:OPTIMIZER]])
    ready, synced = own[READY], own[SYNCED]
    return StepTimes(
        begins=float(first[0]),
        ends=float(ready[0]),
        synced=float(synced[0]),
        phases=phases,
        marks=[(float(a), float(b)) for a, b in marks[np.isfinite(marks).all(axis=1)]],
        forward=(float(own[FORWARD, 0]), float(own[FORWARD, 1])),
        waits=[(float(ready[1]), float(synced[1]))],
        duration=float(synced[1] - first[1]),
    )
