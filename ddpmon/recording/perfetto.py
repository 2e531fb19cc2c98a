"""The steps of a recording as a Chrome trace, which Perfetto reads: one timeline for all ranks.

Its time is built from sync points, not from clocks. All ranks leave a step's sync point together, so it is one moment
for all of them; a rank's phases lie before it, back to the sync point before. Clocks of hosts may differ by seconds.
Times are whole microseconds: Perfetto drops a slice that overlaps the one before by the rounding of a fraction.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from ddpmon.recording.layout import COLUMNS, RecordingError
from ddpmon.recording.reader import Recording
from ddpmon.recording.step_table import StepTable
from ddpmon.recording.story import events_of

MOST_ROWS = 200_000  # of steps and ranks: 150 MB of JSON, which a browser still opens
_LONGEST_MS = 1e9  # of a step: eleven days; a damaged cell may hold anything
# A thread id equal to its process id is a main thread, which Perfetto draws first; so ids start above the rank.
PHASES, WAIT, MARKS = 1, 2, 3
RUN = 1 << 20  # the process of what belongs to no rank; above all ranks
_ORDER = ("input", "forward", "backward", "optimizer")
_PLACE = {name.removesuffix("_ms"): at for at, name in enumerate(COLUMNS)}
Event = dict[str, Any]
Floats = NDArray[np.float64]


class TooManySteps(ValueError):  # noqa: N818 (a size, and no mistake of the program)
    """The trace would be too large; the message says what to do."""


def write_trace(recording: Recording, out: TextIO, steps: tuple[int, int] | None) -> int:
    """Write the trace; returns the number of its events.

    Raises:
        RecordingError: there is no step.
        DamageError: the run's description cannot be read.
        TooManySteps: there are too many.
    """
    table = StepTable(recording, steps)
    rows: Floats = table.values()
    rows = rows[np.isfinite(rows[:, :2]).all(axis=1) & (rows[:, 2] > 0) & (rows[:, 2] < _LONGEST_MS)]
    if not len(rows):
        raise RecordingError("there is no step in that span")
    if len(rows) > MOST_ROWS:
        raise TooManySteps(f"{len(rows):,} steps of ranks are more than the {MOST_ROWS:,} of a trace: give --steps A:B")
    about = {
        "producer": "ddpmon",
        "time": "aligned on sync points, which all ranks leave together; clocks of hosts are not compared",
        "run": recording.info(table.run).name,
    }
    out.write(f'{{"displayTimeUnit": "ms", "otherData": {json.dumps(about)}, "traceEvents": [\n')
    count = 0
    for event in _events(recording, table, rows):
        out.write(f"{',' if count else ' '}{json.dumps(event, allow_nan=False)}\n")
        count += 1
    out.write("]}\n")
    return count


def _events(recording: Recording, table: StepTable, rows: Floats) -> Iterator[Event]:
    ranks = np.unique(rows[:, 1]).astype(int).tolist()
    yield from _names(ranks, table.nodes())
    ends: dict[int, int] = {}
    now = 0
    for flow, part in enumerate(np.split(rows, np.flatnonzero(np.diff(rows[:, 0])) + 1)):
        now = round(now + float(part[:, 2].max()) * 1e3)
        ends[int(part[0, 0])] = now
        yield from _step(part, now, flow)
    yield from _findings(recording, table, ends, {*ranks})


def _names(ranks: Sequence[int], nodes: dict[int, str]) -> Iterator[Event]:
    def told(what: str, pid: int, tid: int, **args: Any) -> Event:
        return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": args}

    for rank in ranks:
        host = f" - {nodes[rank]}" if rank in nodes else ""
        yield told("process_name", rank, 0, name=f"rank {rank}{host}")
        yield told("process_sort_index", rank, 0, sort_index=rank)
        for tid, name in ((PHASES, "phases"), (WAIT, "wait")):
            yield told("thread_name", rank, rank + tid, name=name)
    yield told("process_name", RUN, 0, name="run")
    yield told("process_sort_index", RUN, 0, sort_index=-1)
    yield told("thread_name", RUN, RUN + MARKS, name="findings")


def _step(part: Floats, end: int, flow: int) -> Iterator[Event]:
    """One step of all ranks, which ends at `end` in µs."""
    step = int(part[0, 0])
    exposed = np.clip(np.nan_to_num(part[:, 2 + _PLACE["exposed"]]), 0.0, part[:, 2])
    last = int(exposed.argmin())  # who waits least has come last
    for row, waited in zip(part, exposed, strict=True):
        yield from _of_rank(row, step, end, float(waited) * 1e3)
    if len(part) > 1:
        yield from _arrows(part, exposed, last, end, flow)
    yield _counter("step time, ms", end, float(np.median(part[:, 2])))
    losses = part[:, 2 + _PLACE["loss"]]
    if np.isfinite(losses).any():
        yield _counter("loss", end, float(np.median(losses[np.isfinite(losses)])))


def _of_rank(row: Floats, step: int, end: int, waited: float) -> Iterator[Event]:
    """The phases of one rank in one step, in the order in which they come, and its wait."""
    rank, duration = int(row[1]), float(row[2]) * 1e3
    values = {name: _us(row[2 + _PLACE[name]]) for name in (*_ORDER, "barrier")}
    waited = min(waited, duration)
    start, ready = end - duration, end - waited
    other = max(0.0, duration - waited - sum(values.values()))
    at = start
    for name, length in (("optimizer", values["optimizer"]), ("barrier", values["barrier"]), ("other", other),
                         ("input", values["input"]), ("forward", values["forward"]),
                         ("backward", values["backward"])):  # fmt: skip
        fits = max(0.0, min(length, ready - at))
        yield from _slice(rank, WAIT if name == "barrier" else PHASES, name, (at, at + fits), step)
        at += fits
    yield from _slice(rank, WAIT, "wait", (ready, end), step)


def _us(value: float) -> float:
    return float(value) * 1e3 if math.isfinite(value) and value > 0 else 0.0


def _slice(rank: int, tid: int, name: str, span: tuple[float, float], step: int) -> Iterator[Event]:
    """One slice from its beginning to its end; none if both ends round to the same microsecond."""
    start, end = map(round, span)
    if end > start:
        where = {"pid": rank, "tid": rank + tid, "ts": start, "dur": end - start}
        yield {"ph": "X", "name": name, **where, "args": {"step": step}}


def _arrows(part: Floats, exposed: Floats, last: int, end: int, flow: int) -> Iterator[Event]:
    """From the rank that came last, in its backward, to the end of everybody's wait."""
    ready = round(end - float(exposed[last]) * 1e3)
    for at, row in enumerate(part):
        if at != last and round(end - float(exposed[at]) * 1e3) < end:
            link = {"name": "waits for", "cat": "wait", "id": flow * len(part) + at}
            came, waits = int(part[last, 1]), int(row[1])
            yield {**link, "ph": "s", "pid": came, "tid": came + PHASES, "ts": ready - 1}
            yield {**link, "ph": "f", "bp": "e", "pid": waits, "tid": waits + WAIT, "ts": end - 1}


def _counter(name: str, at: int, value: float) -> Event:
    return {"ph": "C", "name": name, "pid": RUN, "tid": 0, "ts": at, "args": {"value": value}}


def _findings(recording: Recording, table: StepTable, ends: dict[int, int], ranks: set[int]) -> Iterator[Event]:
    """Each alert as an instant at its first step, on the ranks that it names."""
    steps = np.array(sorted(ends))
    for event in events_of(recording, table.run):
        since = event.since_step if event.since_step is not None else event.first_step
        if since is None or since > steps[-1] or (event.last_step or since) < steps[0]:
            continue
        at = ends[int(steps[min(int(np.searchsorted(steps, since)), len(steps) - 1)])]
        args = {"summary": event.summary, "severity": event.severity, "step": since, "cost_pct": event.cost_pct}
        mark = {"ph": "i", "name": event.kind, "ts": at, "args": args}
        named = [rank for rank in event.ranks if rank in ranks]
        yield {**mark, "pid": RUN, "tid": RUN + MARKS, "s": "g"}
        yield from ({**mark, "pid": rank, "tid": rank + PHASES, "s": "p"} for rank in named[:16])
