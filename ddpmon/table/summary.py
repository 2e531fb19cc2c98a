"""A table of steps in a few figures, and two of them side by side."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ddpmon.diagnose.late_policy import SUSTAINED
from ddpmon.format import plural
from ddpmon.run.medians import median
from ddpmon.schema import PHASES
from ddpmon.snapshot import Finding
from ddpmon.table.fields import Array
from ddpmon.table.normalise import Records, normalise
from ddpmon.table.read import Table
from ddpmon.table.verdict import judge_rows

OF_RANK = ("work_ms", "wait_ms", *(f"{name}_ms" for name in PHASES))
SLOWEST = "slowest_"  # before the names of the slowest rank's figures
OF_JOB = ("step_ms", "slow_step_ms", "lost_pct", "throughput", "rank_throughput")
FIGURES = (*OF_JOB, *(f"{SLOWEST}{name}" for name in OF_RANK), *OF_RANK)
_SLOW = 0.95


@dataclass(frozen=True, slots=True)
class TableSummary:
    """What a table comes to.

    Attributes:
        source: what it is called. ranks, steps: how many it has; `first_step` and `last_step` are the ends of what is
            compared, without the warm-up.
        slowest_rank: the one that works longest in its median step; None where there is no other one.
        figures: name -> value, NaN where unknown: medians over steps in ms, with `slowest_` before their names those of
            the slowest rank, without it over the other ranks; `slow_step_ms` is the step time that one step in 20
            exceeds, `lost_pct` the share of the time that ranks wait for others, `throughput` in samples/s of the whole
            run, `rank_throughput` of a rank.
        findings: what `ddpmon diagnose` says of it.
        notes: what was left out or is missing.
    """

    source: str
    ranks: int
    steps: int
    first_step: int
    last_step: int
    slowest_rank: int | None
    figures: Mapping[str, float]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]


def summarise(table: Table) -> TableSummary:
    """The figures of a table.

    Raises:
        TableError: it cannot be judged.
    """
    verdict = judge_rows(table)
    records, _ = normalise(table)
    kept = _past_warm_up(records)
    steps, ranks = records.step[kept], records.rank[kept]
    values = _with_work({name: column[kept] for name, column in records.values.items()})
    slowest = _slowest(ranks, values["work"])
    alone = ranks == (-1 if slowest is None else slowest)
    figures = {
        **dict(_of_job(steps, values)),
        **{f"{SLOWEST}{name}": value for name, value in _of_ranks(values, alone).items()},
        **_of_ranks(values, ~alone),
    }
    return TableSummary(
        source=table.source,
        ranks=verdict.ranks,
        steps=len(np.unique(steps)),
        first_step=int(steps.min()),
        last_step=int(steps.max()),
        slowest_rank=slowest,
        figures=figures,
        findings=verdict.findings,
        notes=verdict.notes,
    )


def _past_warm_up(records: Records) -> Array:
    """[n] the rows past the warm-up; all where there are no others."""
    late: Array = records.step >= SUSTAINED.warm_up_steps
    return late if late.any() else np.ones(len(late), bool)


def _with_work(values: Mapping[str, Array]) -> dict[str, Array]:
    """The columns with wait, work, and what of the work no named phase takes."""
    nothing = np.full(len(values["duration"]), np.nan)
    wait = values["exposed"] + np.nan_to_num(values.get("barrier", nothing))
    work = np.maximum(values["duration"] - wait, 0)
    named = sum(values.get(name, nothing) for name in PHASES if name != "other")
    return {**values, "wait": wait, "work": work, "other": np.maximum(work - named, 0)}


def _slowest(ranks: Array, work: Array) -> int | None:
    """The rank with the greatest median work."""
    known = np.unique(ranks)
    medians = [median(work[ranks == rank]) for rank in known]
    return int(known[int(np.nanargmax(medians))]) if len(known) > 1 else None


def _of_ranks(values: Mapping[str, Array], rows: Array) -> dict[str, float]:
    """The figures of what the ranks of these rows [n] do."""
    columns = {name: values.get(name.removesuffix("_ms")) for name in OF_RANK}
    return {name: math.nan if column is None else median(column[rows]) for name, column in columns.items()}


def _of_job(step: Array, values: Mapping[str, Array]) -> Iterator[tuple[str, float]]:
    """The figures of the job, from rows in the order of their steps."""
    starts = np.flatnonzero(np.diff(step, prepend=-1))
    many = np.diff(starts, append=len(step))
    duration = np.add.reduceat(values["duration"], starts) / many
    waited = np.add.reduceat(values["wait"], starts) / many - np.minimum.reduceat(values["wait"], starts)
    yield "step_ms", median(duration)
    yield "slow_step_ms", float(np.quantile(duration, _SLOW))
    yield "lost_pct", 100 * median(waited / duration)
    samples = np.nan_to_num(values.get("samples", np.zeros(len(step))))
    total = np.add.reduceat(samples, starts)
    rate = np.where(total > 0, total, np.nan) / duration * 1e3
    yield "throughput", median(rate)
    yield "rank_throughput", median(rate / many)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two tables side by side.

    Attributes:
        before, after: the two.
        basis: what tells which is faster: "samples_per_s_and_rank" where both log samples, else "step_ms".
        slower_pct: by how much more time `after` takes for a sample or a step; negative where it is faster.
    """

    before: TableSummary
    after: TableSummary
    basis: str
    slower_pct: float

    def changes(self) -> Iterator[tuple[str, float, float, float]]:
        """Each figure: its name, before, after, and the change in percent."""
        for name in FIGURES:
            a, b = self.before.figures[name], self.after.figures[name]
            yield name, a, b, 100 * (b / a - 1) if a else math.nan

    def notes(self) -> Iterator[str]:
        """What makes the two hard to compare."""
        a, b = self.before, self.after
        if a.ranks != b.ranks:
            yield f"the first has {plural(a.ranks, 'rank')}, the second {b.ranks:,}: compared is what a rank does"
        for each in (a, b):
            if each.steps < SUSTAINED.verdict_steps:
                yield f"{each.source} has only {plural(each.steps, 'step')} past the warm-up: the figures may be chance"


def compare(before: TableSummary, after: TableSummary) -> Comparison:
    """Which of two tables is faster, and by how much."""
    rates = [each.figures["rank_throughput"] for each in (before, after)]
    if all(math.isfinite(rate) and rate > 0 for rate in rates):
        return Comparison(before, after, "samples_per_s_and_rank", 100 * (rates[0] / rates[1] - 1))
    return Comparison(before, after, "step_ms", 100 * (after.figures["step_ms"] / before.figures["step_ms"] - 1))
