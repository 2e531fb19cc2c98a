"""A table from its bytes to its findings."""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from ddpmon.diagnose.late_policy import SUSTAINED
from ddpmon.format import plural
from ddpmon.report.sentences import in_words
from ddpmon.run.rings import capacity_for
from ddpmon.snapshot import Finding
from ddpmon.table.fields import Array
from ddpmon.table.history import History
from ddpmon.table.normalise import Records, normalise, ranks_listed
from ddpmon.table.read import Table, read_table
from ddpmon.table.replay import STEPS_A_TICK, replay, tick_of
from ddpmon.table.trace_marks import read_marks, steps_of_marks

_NAMED = 3


class TableVerdict(Struct, frozen=True):
    """What there is to say of a table.

    Attributes:
        source: what the table is called.
        ranks, steps: how many it has. first_step, last_step: where it begins and ends.
        compared: steps past the warm-up that all ranks have rows of.
        enough: whether they are enough for a verdict.
        findings: those that last to its end, the worst first, then those that are over.
        complaints: the first rows that cannot be read, by line.
        refused: how many there are.
        notes: what was left out, derived or missing.
    """

    source: str
    ranks: int
    steps: int
    first_step: int
    last_step: int
    compared: int
    enough: bool
    findings: tuple[Finding, ...]
    complaints: tuple[str, ...]
    refused: int
    notes: tuple[str, ...]


def judge_table(stream: io.BufferedReader, source: str, *, of_marks: bool = False) -> TableVerdict:
    """Read a table, of steps or of marks, and judge it as a run would have been judged live.

    Raises:
        TableError: it cannot be judged.
        OSError: it cannot be read.
    """
    table = (read_marks if of_marks else read_table)(stream, source)
    return _verdict(table, *(steps_of_marks if of_marks else normalise)(table))


def judge_rows(table: Table) -> TableVerdict:
    """Judge a table of steps that has been read.

    Raises:
        TableError: it cannot be judged.
    """
    return _verdict(table, *normalise(table))


def _verdict(table: Table, records: Records, notes: list[str]) -> TableVerdict:
    compared, near, ranks = _compared(records), _near(records), np.unique(records.rank)
    history = History()
    for said, step in replay(records) if near else ():
        history.hear(said, step)
    return TableVerdict(
        source=table.source,
        ranks=len(ranks),
        steps=len(records.steps),
        first_step=int(records.steps[0]),
        last_step=int(records.steps[-1]),
        compared=compared,
        enough=compared >= SUSTAINED.verdict_steps and near and len(ranks) > 1,
        findings=in_words(history.alerts()),
        complaints=table.complaints,
        refused=table.refused,
        notes=(*notes, *_coverage(records, ranks), *_evidence(records, compared, near)),
    )


def _near(records: Records) -> bool:
    """Whether a window of steps lies within what the watcher's model keeps; the rows of a sparse log may not."""
    spacing = float(np.median(np.diff(records.steps))) if len(records.steps) > 1 else 1.0
    return spacing * SUSTAINED.window_steps <= capacity_for(records.world_size)


def _compared(records: Records) -> int:
    """Steps past the warm-up with rows of every rank that has rows around them."""
    return int((_complete(records) & (records.steps >= SUSTAINED.warm_up_steps)).sum())


def _complete(records: Records) -> Array:
    """[s] whether a step has a row of every rank that has one in the same tick."""
    pairs = np.unique(tick_of(records) * records.world_size + records.rank)
    talking = np.bincount(pairs // records.world_size)
    rows = np.bincount(np.searchsorted(records.steps, records.step))
    complete: Array = rows == talking[np.arange(len(rows)) // STEPS_A_TICK]
    return complete


def _coverage(records: Records, ranks: Array) -> Iterator[str]:
    """What the table lacks: ranks, steps of a rank, steps of all."""
    absent = np.setdiff1d(np.arange(records.world_size), ranks)
    if absent.size:
        yield f"no rows of {ranks_listed(absent)}"
    starts, ends = _spans(records, ranks)
    late, early = np.searchsorted(records.steps, starts), len(records.steps) - np.searchsorted(records.steps, ends)
    partly = np.maximum(late, early) > STEPS_A_TICK  # a log that breaks off a few steps before the others is no matter
    for at in np.flatnonzero(partly)[:_NAMED].tolist():
        yield f"rank {ranks[at]} has rows from step {starts[at]:,} to step {ends[at]:,} only"
    if partly.sum() > _NAMED:
        more = plural(int(partly.sum()) - _NAMED, "more rank")
        yield f"the rows of {more} also lack steps at the beginning or the end"
    if partly.any():
        yield "a slowdown of the whole run or its network is only judged where all ranks have rows"
    holes = int((~_complete(records)).sum())
    if holes:
        yield f"{holes:,} of {len(records.steps):,} steps lack rows of a rank and are not compared"


def _spans(records: Records, ranks: Array) -> tuple[Array, Array]:
    """[r] the first and the last step of each rank."""
    order = np.lexsort((records.step, records.rank))
    firsts = np.searchsorted(records.rank[order], ranks)
    lasts = np.append(firsts[1:], len(order)) - 1
    return records.step[order][firsts], records.step[order][lasts]


def _evidence(records: Records, compared: int, near: bool) -> Iterator[str]:
    """What the verdicts rest on, where it is little or can be doubted."""
    if records.steps[0] >= SUSTAINED.warm_up_steps:
        yield f"the table begins at step {records.steps[0]:,}, so no warm-up steps are left out"
    if len(np.unique(records.rank)) == 1:
        yield "there is only one rank, so there is nothing to compare it with"
    elif not near:
        spacing = int(np.median(np.diff(records.steps)))
        kept = capacity_for(records.world_size)
        apart = f"not judged: rows are {spacing:,} steps apart"
        yield f"{apart}, and {SUSTAINED.window_steps} of them must lie within {kept:,} steps"
    elif compared < SUSTAINED.verdict_steps:
        behind = f" after the first {SUSTAINED.warm_up_steps}" if records.steps[0] < SUSTAINED.warm_up_steps else ""
        steps = f"{plural(compared, 'step')}{behind} {'has' if compared == 1 else 'have'} rows of all ranks"
        yield f"not enough evidence: {steps}, and a verdict needs {SUSTAINED.verdict_steps}"
