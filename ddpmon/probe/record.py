"""One step as the training thread leaves it (marks), and as the publisher reads it (milliseconds)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ddpmon.leads import UNKNOWN, Interval, Leads, Mark, StepTimes
from ddpmon.probe.clock import Clock

NAN = math.nan
ALWAYS_PARTS = -1
NO_NUMBER = float("nan")  # this very object: what was logged is no number, while a loss may well be NaN

Milliseconds = Callable[[Any, Any], float]  # from one mark of a record to another


class Taken:
    """A mark that came, and the phase of the thread after it ("" if unknown)."""

    __slots__ = ("mark", "phase")

    def __init__(self, mark: Any, phase: str = "") -> None:
        self.mark = mark
        self.phase = phase


class StepRecord:
    """What happened between two sync points, as raw marks.

    Attributes:
        step: number of the synchronising step.
        start: mark of the previous sync point; for step 0 of the first thing seen.
        ready: mark of the last gradient's readiness. sync: mark of this step's sync point.
        spans: (column, start mark, end mark, the column that this span lies within or None, how many such spans it
            stands for: only one in so many was marked).
        input_ns: host time inside the DataLoader's `__next__`. gc_ns: inside the garbage collector.
        loads: where the clock is a device's, when those calls began and ended on the host's clock.
        counts: samples and tokens that were still on the device when they were logged; they add to these.
        parts: into how many parts the step's loss was divided: if there are as many losses, they add up to it.
            `ALWAYS_PARTS` if they do in any case, 0 if each is the loss of its micro-batch.
        buckets: per bucket (index, bytes, launch mark, done mark), in order of launch.
        taken: every mark that came while this step was the open one, for a clock that takes its marks back.
        captured: whether a mark was taken while a CUDA graph was being captured, so that the step cannot be timed.
    """

    __slots__ = (
        "allreduce_ms",
        "buckets",
        "captured",
        "counts",
        "gc_ns",
        "input_ns",
        "input_waits",
        "loads",
        "losses",
        "marked",
        "parts",
        "ready",
        "samples",
        "spans",
        "start",
        "step",
        "sync",
        "taken",
        "tokens",
    )

    def __init__(self, step: int, start: Any) -> None:
        self.step = step
        self.start = start
        self.ready: Any = None
        self.sync: Any = None
        self.spans: list[tuple[str, Any, Any, str | None, int]] = []
        self.input_ns = 0
        self.gc_ns = 0
        self.input_waits: list[tuple[Any, Any]] | None = None  # the rare lists are made when there is something in them
        self.loads: list[tuple[int, int]] | None = None
        self.marked: list[tuple[str, int]] | None = None
        self.losses: list[Any] = []
        self.samples = self.tokens = NAN
        self.counts: list[tuple[str, Any]] | None = None
        self.parts = 0
        self.allreduce_ms = NAN
        self.buckets: list[list[Any]] | None = None
        self.taken: list[Taken] = []
        self.captured = False

    def readable(self, clock: Clock) -> bool:
        """Whether every mark and every number can be read without waiting."""
        passed = (clock.ready,) if clock.is_quiet else ()
        return clock.ready(self.sync) and all(
            each.ready(*passed)
            for each in (*self.losses, *(count for _, count in self.counts or ()))
            if type(each) is not float
        )

    def marks(self) -> list[Any]:
        """All marks that came with this record; the next one's may still refer to them."""
        marks = [taken.mark for taken in self.taken]
        return marks + [mark for bucket in self.buckets or () for mark in bucket[2:] if mark is not None]


@dataclass(slots=True)
class StepRow:
    """One finished step in numbers: `values` in the order of `schema.STEP_COLUMNS`, milliseconds, NaN where unknown.

    Where the clock is the host's, the columns of the host are not there.
    """

    step: int
    at: float  # when it was read, monotonic seconds
    values: Sequence[float]
    bucket_sizes: Sequence[int] = ()
    bucket_ms: Sequence[float] = ()
    marks: Sequence[tuple[str, float]] = ()
    bad_losses: Sequence[float] = ()  # of any micro-batch: those not finite

    @property
    def duration_ms(self) -> float:
        """Sync point to sync point."""
        return self.values[0]


class Elapsed:
    """The marks of one record on a device's clock: the device is asked once for each, and not for each pair of them.

    Its answer takes some microseconds of the interpreter, which the training thread may want. It is a float32, so that
    the marks of a step are told from its beginning, and not from that of the run.
    """

    __slots__ = ("_known", "_ms", "_start")

    def __init__(self, record: StepRecord, clock: Clock) -> None:
        self._start, self._ms = record.start, clock.ms
        self._known = {id(record.start): 0.0}

    def at(self, mark: Any) -> float:
        """Milliseconds from the record's start to a mark."""
        found = self._known.get(id(mark))
        if found is None:
            found = self._known[id(mark)] = self._ms(self._start, mark)
        return found

    def ms(self, start: Any, end: Any) -> float:
        """Milliseconds from one mark to another."""
        return self.at(end) - self.at(start)


def resolve(record: StepRecord, ms: Milliseconds, at: float, host: Sequence[float] = ()) -> StepRow:
    """Turn a finished record's marks into milliseconds (docs/design.md "Sources").

    Args:
        record: the step.
        ms: tells those between two of its marks.
        at: when it is read, monotonic seconds.
        host: the values of `schema.HOST_COLUMNS`; none where the clock is the host's.
    """
    duration, exposed = ms(record.start, record.sync), ms(record.ready, record.sync)
    spent = _spent(record, ms, duration - exposed)
    losses = [loss if type(loss) is float else float(loss.value()) for loss in record.losses]
    values = (
        duration,
        *(spent["input"], spent["forward"], spent["backward"], spent["optimizer"]),
        exposed,
        spent["barrier"],
        sum(ns for _, ns in record.marked) / 1e6 if record.marked else 0.0,
        record.allreduce_ms,
        record.gc_ns / 1e6,
        sum(losses) / (1 if record.parts in (ALWAYS_PARTS, len(losses)) else len(losses)) if losses else NAN,
        _counted(record, "samples"),
        _counted(record, "tokens"),
        *host,
    )
    row = StepRow(record.step, at, values)
    if not math.isfinite(values[10]):
        row.bad_losses = [loss for loss in losses if not math.isfinite(loss) and loss is not NO_NUMBER]
    if record.marked:
        row.marks = [(name, ns / 1e6) for name, ns in record.marked]
    if record.buckets:
        row.bucket_sizes = [bucket[1] for bucket in record.buckets]
        row.bucket_ms = _bucket_ms(record.buckets, ms)
    return row


def _spent(record: StepRecord, ms: Milliseconds, before_ready: float) -> dict[str, float]:
    """The milliseconds of each phase and of `barrier`, which is not part of them; `before_ready` are those of all.

    Collectives that were not marked are taken to be as long as the marked one that stands for them. It may have been
    the one that waited for a late rank: together they are no longer than what they lie in.
    """
    spent = {"forward": 0.0, "backward": 0.0, "optimizer": 0.0}
    spent["input"] = record.input_ns / 1e6 if not record.input_waits else _input_ms(record, ms)
    blocked: dict[str | None, tuple[float, float]] = {}  # in what: as measured, and as it is with those not marked
    for column, start, end, within, stands_for in record.spans:
        took = ms(start, end)
        if column == "barrier":
            measured, estimated = blocked.get(within, (0.0, 0.0))
            blocked[within] = measured + took, estimated + stands_for * took
        else:
            spent[column] += took
    outside, barrier = before_ready - sum(spent.values()), 0.0
    for within, (measured, estimated) in blocked.items():
        barrier += (took := min(estimated, max(measured, outside if within is None else spent[within])))
        if within is not None:
            spent[within] = max(0.0, spent[within] - took)
    return {**spent, "barrier": barrier}


def _counted(record: StepRecord, name: Literal["samples", "tokens"]) -> float:
    """The sum of what was logged, NaN where nothing was."""
    known: float = getattr(record, name)
    counts = [float(count.value()) for of, count in record.counts or () if of == name]
    return sum(counts, 0.0 if known != known else known) if counts else known


def _input_ms(record: StepRecord, ms: Milliseconds) -> float:
    """Host time in the loader, but no more than the device stood idle for before forward."""
    waits = record.input_waits or ()
    return min(record.input_ns / 1e6, sum(max(0.0, ms(before, forward)) for before, forward in waits))


def _bucket_ms(buckets: list[list[Any]], ms: Milliseconds) -> list[float]:
    """Per bucket `done_b - max(launch_b, done_{b-1})`, NaN where a mark is missing."""
    times: list[float] = []
    before: Any = None
    for _, _, launch, done in buckets:
        if done is None:
            times.append(NAN)
            continue
        took = ms(launch, done)
        if before is not None:
            took = min(took, ms(before, done))
        times.append(max(0.0, took))
        before = done
    return times


class HostTimes:
    """Makes `schema.HOST_COLUMNS` of finished records, which must come in order and before their marks are recycled.

    Device times are added up from step to step: two events that are hours apart give a duration too coarse.
    """

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._leads = Leads()
        self._next: int | None = None  # a step number and no mark: marks are used again
        self._at = 0.0

    def of(self, record: StepRecord, elapsed: Elapsed) -> tuple[float, ...]:
        """The columns' values of one step, NaN where they cannot be told. Never raises."""
        try:
            if record.step != self._next:  # steps were lost between
                self._begin()
            times = self._times(record, elapsed.at)
            self._next, self._at = record.step + 1, self._at + times.duration
            return self._leads.take(times)
        except Exception:
            self._begin()
            return UNKNOWN

    def _times(self, record: StepRecord, at: Callable[[Any], float]) -> StepTimes:
        base, forward = self._at, None
        loads = [(began / 1e6, ended / 1e6) for began, ended in record.loads or ()]
        phases: dict[str, list[Interval]] = {"input": loads, "forward": [], "backward": [], "optimizer": []}
        waits: list[Interval] = []
        marks: list[Mark] = []
        for column, start, end, *_ in record.spans:
            begins, ends = (start.host_ns / 1e6, base + at(start)), (end.host_ns / 1e6, base + at(end))
            marks += (begins, ends)
            if column == "barrier":
                waits.append((begins[1], ends[1]))
                continue
            phases[column].append((begins[0], ends[0]))
            if forward is None and column == "forward":
                forward = begins
        ready, sync = ((mark.host_ns / 1e6, base + at(mark)) for mark in (record.ready, record.sync))
        marks += (ready, sync)
        waits.append((ready[1], sync[1]))
        if _has_unmarked(record):  # the device may have waited in them at any time of the step
            waits = [(base, sync[1])]
        if forward is None:
            raise ValueError("a step without a forward")
        return StepTimes(
            begins=record.start.host_ns / 1e6,
            ends=ready[0],
            synced=sync[0],
            phases=phases,
            marks=marks,
            forward=forward,
            waits=waits,
            duration=sync[1] - base,
        )


def _has_unmarked(record: StepRecord) -> bool:
    """Whether there were collectives without marks: a marked one then stands for several."""
    return any(span[4] > 1 for span in record.spans)
