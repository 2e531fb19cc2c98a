"""One step as the training thread leaves it (marks), and as the publisher reads it (milliseconds)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from ddpmon.probe.clock import Clock

NAN = math.nan
NO_NUMBER = float("nan")  # this very object: what was logged is no number, while a loss may well be NaN


class StepRecord:
    """What happened between two sync points, as raw marks.

    Attributes:
        step: number of the synchronising step.
        start: mark of the previous sync point; for step 0 of the first thing seen.
        ready: mark of the last gradient's readiness. sync: mark of this step's sync point.
        spans: (column, start mark, end mark, the column that this span lies within or None).
        input_ns: host time inside the DataLoader's `__next__`. gc_ns: inside the garbage collector.
        buckets: per bucket (index, bytes, launch mark, done mark), in order of launch.
    """

    __slots__ = (
        "allreduce_ms",
        "buckets",
        "gc_ns",
        "input_ns",
        "input_waits",
        "losses",
        "marked",
        "ready",
        "samples",
        "spans",
        "start",
        "step",
        "sync",
    )

    def __init__(self, step: int, start: Any) -> None:
        self.step = step
        self.start = start
        self.ready: Any = None
        self.sync: Any = None
        self.spans: list[tuple[str, Any, Any, str | None]] = []
        self.input_ns = 0
        self.gc_ns = 0
        self.input_waits: list[tuple[Any, Any]] | None = None  # the rare lists are made when there is something in them
        self.marked: list[tuple[str, int]] | None = None
        self.losses: list[Any] = []
        self.samples = NAN
        self.allreduce_ms = NAN
        self.buckets: list[list[Any]] | None = None

    def readable(self, clock: Clock) -> bool:
        """Whether every mark and every loss can be read without waiting."""
        return clock.ready(self.sync) and all(isinstance(loss, float) or loss.ready() for loss in self.losses)

    def marks(self) -> list[Any]:
        """All marks that this record alone owns (its start belongs to the step before)."""
        owned = [mark for _, start, end, _ in self.spans for mark in (start, end)]
        owned += [mark for bucket in self.buckets or () for mark in bucket[2:] if mark is not None]
        owned += [mark for mark in (self.ready, self.start) if mark is not None]
        return list({id(mark): mark for mark in owned}.values())  # one mark may end a span and begin the next


@dataclass(slots=True)
class StepRow:
    """One finished step in numbers: milliseconds by column of `schema.STEP_COLUMNS`, NaN where unknown."""

    step: int
    at: float  # when it was read, monotonic seconds
    values: dict[str, float]
    bucket_sizes: list[int] = field(default_factory=list)
    bucket_ms: list[float] = field(default_factory=list)
    marks: list[tuple[str, float]] = field(default_factory=list)
    bad_losses: list[float] = field(default_factory=list)  # of any micro-batch: those not finite


def resolve(record: StepRecord, clock: Clock, at: float) -> StepRow:
    """Turn a finished record's marks into milliseconds (DESIGN section 3)."""
    values = dict.fromkeys(("input", "forward", "backward", "optimizer", "barrier"), 0.0)
    values["input"] += _input_ms(record, clock)
    for column, start, end, within in record.spans:
        ms = clock.ms(start, end)
        values[column] += ms
        if within is not None:
            values[within] -= ms
    values = {column: max(0.0, ms) for column, ms in values.items()}
    values["duration"] = clock.ms(record.start, record.sync)
    values["exposed"] = clock.ms(record.ready, record.sync)
    marked, buckets = record.marked or [], record.buckets or []
    values["marked"] = sum(ns for _, ns in marked) / 1e6
    values["allreduce"] = record.allreduce_ms
    values["gc"] = record.gc_ns / 1e6
    losses = [loss if isinstance(loss, float) else loss.value() for loss in record.losses]
    values["loss"] = sum(losses) / len(losses) if losses else NAN
    values["samples"] = record.samples
    row = StepRow(record.step, at, values, marks=[(name, ns / 1e6) for name, ns in marked])
    row.bad_losses = [loss for loss in losses if not math.isfinite(loss) and loss is not NO_NUMBER]
    row.bucket_sizes = [bucket[1] for bucket in buckets]
    row.bucket_ms = _bucket_ms(buckets, clock)
    return row


def _input_ms(record: StepRecord, clock: Clock) -> float:
    """Host time in the loader; on a device clock no more than the device stood idle for before forward."""
    host_ms = record.input_ns / 1e6
    if not record.input_waits:
        return host_ms
    return min(host_ms, sum(max(0.0, clock.ms(before, forward)) for before, forward in record.input_waits))


def _bucket_ms(buckets: list[list[Any]], clock: Clock) -> list[float]:
    """Per bucket `done_b - max(launch_b, done_{b-1})`, NaN where a mark is missing."""
    times: list[float] = []
    before: Any = None
    for _, _, launch, done in buckets:
        if done is None:
            times.append(NAN)
            continue
        ms = clock.ms(launch, done)
        if before is not None:
            ms = min(ms, clock.ms(before, done))
        times.append(max(0.0, ms))
        before = done
    return times
