"""Marks and numbers of a device, with stand-ins for it: nothing is waited for, nothing is lost, and little is made."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
import torch
import torch.distributed as dist

from ddpmon.probe import collectives
from ddpmon.probe.buckets import ReducerLog
from ddpmon.probe.clock import Clock
from ddpmon.probe.collectives import hook_collectives
from ddpmon.probe.event_log import EventLog
from ddpmon.probe.frame_builder import FrameBuilder
from ddpmon.probe.host_sampler import HostSampler
from ddpmon.probe.identity import Identity
from ddpmon.probe.loss import LossReader
from ddpmon.probe.record import Elapsed, resolve
from ddpmon.probe.step_assembler import MAX_SPANS, StepAssembler
from ddpmon.schema import HOST_COLUMNS

SAMPLES = 11  # the place of the column in `schema.STEP_COLUMNS`
MS = 1_000_000


class Mark:
    """A moment on the counting clock."""

    def __init__(self, at: int) -> None:
        self.host_ns = at * MS
        self.at = at
        self.is_free = False


class CountingClock:
    """A clock that wants its marks back: says how many are out, and refuses a mark that is used after it came back."""

    name = "counting"
    is_quiet = is_stalling = False

    def __init__(self) -> None:
        self.out = 0
        self.given = 0

    def read_here(self) -> None:
        pass

    def read_aside(self) -> Callable[[], None]:
        return self.read_here

    def mark(self) -> Mark:
        self.out += 1
        self.given += 1
        return Mark(self.given)

    def ready(self, mark: Mark) -> bool:
        assert not mark.is_free
        return True

    def ms(self, start: Mark, end: Mark) -> float:
        assert not any((start.is_free, end.is_free)), "read after it was taken back"
        return float(end.at - start.at)

    def recycle(self, marks: list[Mark]) -> None:
        for mark in marks:
            assert not mark.is_free, "taken back twice"
            mark.is_free = True
        self.out -= len(marks)


def recorder_of(clock: Clock, losses: LossReader | None = None) -> EventLog:
    def fail(error: Exception) -> None:
        raise error

    return EventLog(clock, losses or LossReader(), fail)


def take_step(log: EventLog, number: int, within: Callable[[EventLog], None] = lambda _log: None) -> None:
    """One step as the hooks leave it, with something in the middle."""
    log.put("load", 0, log.clock.mark() if number == 0 else None)
    log.put("loaded", 1, 1, None)
    log.mark_as("forward")
    within(log)
    log.mark_as("forwarded")
    log.mark_as("ready")
    log.put("synced", log.clock.mark(), number)
    log.last_step = number
    log.mark_as("optimizer")
    log.mark_as("optimized")


def read(replay: StepAssembler, clock: Clock) -> list[tuple[float, ...]]:
    """Make rows of what there is, as the publisher does."""
    replay.drain()
    rows = []
    while replay.finished:
        record = replay.finished.popleft()
        rows.append(tuple(resolve(record, Elapsed(record, clock).ms, 0.0).values))
        replay.recycle(record)
    return rows


def collective(log: EventLog) -> None:
    log.mark_as("barrier")
    log.put("barriered", log.clock.mark(), 1)


def asynchronous(log: EventLog) -> None:
    for _ in range(20):
        log.mark_as("barrier")
        log.put("barriered", log.clock.mark(), 0)


def evaluating(log: EventLog) -> None:
    log.pause("eval")
    collective(log)
    log.mark_as("optimizer")
    log.mark_as("optimized")
    log.resume()


def accumulating(log: EventLog) -> None:
    for _ in range(3):
        log.mark_as("forwarded")
        log.mark_as("computed")
        log.mark_as("forward")


def abandoned(log: EventLog) -> None:
    """A forward without a backward, an optimizer's step that raised, a collective that did."""
    log.mark_as("forwarded")
    log.mark_as("forward")
    log.mark_as("optimizer")
    log.mark_as("barrier")


def with_buckets(log: EventLog) -> None:
    log.put("bucket", [0, 8, log.clock.mark(), log.clock.mark()])


def unreadable(log: EventLog) -> None:
    if log.last_step % 3 == 0:
        log.put("forward")


@pytest.mark.parametrize(
    "within", [collective, asynchronous, evaluating, accumulating, abandoned, with_buckets, unreadable]
)
def test_every_mark_goes_back_to_its_clock_once_and_not_too_early(within: Callable[[EventLog], None]) -> None:
    clock = CountingClock()
    log = recorder_of(clock)
    replay, out = StepAssembler(log), []
    for number in range(60):
        take_step(log, number, within)
        read(replay, clock)
        out.append(clock.out)
    assert clock.given > 60
    assert max(out[30:]) == max(out[10:30]), "no more are out than a few steps hold"


def draft_of(log: EventLog) -> FrameBuilder:
    me = Identity(0, 1, 0, 0, (0,), "host", 1, torch.device("cpu"), None, "gloo")
    ddp: Any = SimpleNamespace(parameters=list)
    reducer_log = ReducerLog(ddp, lambda _ms: None, on_cpu=False)
    return FrameBuilder(me, log, reducer_log, HostSampler(me, lambda: "run", {}, {}), lambda: "run")


@pytest.mark.parametrize(
    "within", [collective, asynchronous, evaluating, accumulating, abandoned, with_buckets, unreadable]
)
def test_host_times_are_published_from_marks_that_nobody_has_taken_back(within: Callable[[EventLog], None]) -> None:
    clock = CountingClock()
    log = recorder_of(clock)
    draft = draft_of(log)
    for number in range(40):
        take_step(log, number, within)
        draft.collect()
    steps = draft.word("running", 0).whole.steps
    assert len(steps.step) >= 8 * 20
    for name in HOST_COLUMNS:
        assert np.isfinite(np.frombuffer(steps.values[name], "<f2")).all()


def test_marks_of_steps_that_nobody_reads_in_time_go_back_too() -> None:
    clock = CountingClock()
    log = recorder_of(clock)
    replay = StepAssembler(log)
    for number in range(6000):
        take_step(log, number)
        replay.drain()
    assert clock.out < clock.given
    before = clock.out
    for number in range(6000, 7000):
        take_step(log, number)
        replay.drain()
    assert clock.out == before


def wrapped(patch: pytest.MonkeyPatch, log: EventLog, *names: str, does: Callable[..., None] = lambda *_: None) -> None:
    """Collectives that only do this, hooked; asynchronous ones return something to wait for."""

    def collective(*words: Any, async_op: bool = False) -> object:
        does(*words)
        return object() if async_op else None

    for name in names:
        patch.setattr(dist, name, collective)
    patch.setattr(collectives, "NAMES", names)
    hook_collectives(log)


def test_asynchronous_collectives_are_not_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = CountingClock()
    wrapped(monkeypatch, recorder_of(clock), "all_reduce")
    dist.all_reduce(torch.ones(1), async_op=True)
    assert clock.given == 0
    dist.all_reduce(torch.ones(1))
    assert clock.given == 2


def test_what_does_not_block_the_host_is_marked_as_far_as_a_step_can_afford(monkeypatch: pytest.MonkeyPatch) -> None:
    now, clock = [0], CountingClock()
    monkeypatch.setattr(collectives, "perf_counter_ns", lambda: now[0])
    log = recorder_of(clock)
    wrapped(monkeypatch, log, "all_gather", "barrier", "all_gather_object")

    def marked(step_ms: int, name: str, times: int = 100) -> int:
        log.last_step += 1
        now[0] += step_ms * MS
        before = clock.given
        for _ in range(times):
            getattr(dist, name)()
        return (clock.given - before) // 2

    assert marked(1000, "all_gather") == 100, "long steps: all of them"
    assert marked(1000, "all_gather") == 100
    assert marked(10, "all_gather") <= 25
    assert marked(10, "all_gather") >= 5, "and some of them always"
    assert marked(10, "barrier") == 100, "the host waits there"
    assert marked(10, "all_gather_object") == 100


def test_reductions_of_a_sharded_model_are_all_marked_however_short_its_steps_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, clock = [0], CountingClock()
    monkeypatch.setattr(collectives, "perf_counter_ns", lambda: now[0])
    log = recorder_of(clock)
    wrapped(monkeypatch, log, "reduce_scatter_tensor")
    log.sharded = log.in_backward = True
    for _ in range(3):
        log.last_step += 1
        now[0] += MS
        log.log.clear()
        log.syncing = False
        for _ in range(100):
            dist.reduce_scatter_tensor(torch.ones(1), torch.ones(1))
    assert [event[0] for event in log.log] == ["reduce", "reduced"] * 100
    assert log.syncing, "its backward ends a step"
    log.syncing = False
    dist.reduce_scatter_tensor(torch.ones(1), torch.ones(1), async_op=True)
    assert log.syncing


class PassingClock(CountingClock):
    """A counting clock whose time passes when the test says so."""

    now = 0

    def mark(self) -> Mark:
        super().mark()
        return Mark(self.now)


def many_collectives(patch: pytest.MonkeyPatch, clock: PassingClock, *, longest: int, inside: bool) -> list[Any]:
    """Steps of 96 collectives in a forward or behind the step; each takes 1, number 50 `longest`.

    To the host a step is so short that few of them can be marked.
    """
    patch.setattr(collectives, "perf_counter_ns", lambda: clock.now * MS // 100)

    def take(_tensors: object, time: int) -> None:
        clock.now += time

    log = recorder_of(clock)
    wrapped(patch, log, "all_gather", does=take)

    def normalise(_log: EventLog) -> None:
        gather: Callable[..., object] = dist.all_gather
        for number in range(96):
            gather([], longest if number == 50 else 1)

    replay = StepAssembler(log)
    for number in range(40):
        take_step(log, number, normalise if inside else lambda _log: None)
        if not inside:
            normalise(log)
    return read(replay, clock)


@pytest.mark.parametrize("inside", [True, False])
def test_one_collective_that_is_marked_stands_for_those_that_are_not(
    monkeypatch: pytest.MonkeyPatch, inside: bool
) -> None:
    clock = PassingClock()
    rows = many_collectives(monkeypatch, clock, longest=1, inside=inside)
    assert [row[6] for row in rows[4:]] == pytest.approx([96.0] * 35)
    assert clock.given < 40 * 2 * 96


@pytest.mark.parametrize("inside", [True, False])
def test_one_long_collective_among_many_that_are_not_marked_is_not_longer_than_its_step(
    monkeypatch: pytest.MonkeyPatch, inside: bool
) -> None:
    rows = many_collectives(monkeypatch, PassingClock(), longest=200, inside=inside)
    marked = [row for row in rows[4:] if row[6] > 200]
    assert 0 < len(marked) < len(rows[4:])
    for row in marked:
        assert sum(row[1:7]) <= row[0] + 1e-6


def test_a_step_without_end_keeps_a_bounded_number_of_marks() -> None:
    clock = CountingClock()
    log = recorder_of(clock)
    replay = StepAssembler(log)
    for _ in range(7 * MAX_SPANS):
        collective(log)
    replay.drain()
    take_step(log, 0)
    take_step(log, 1)
    replay.drain()
    (record,) = replay.finished
    assert len(record.marks()) < 5 * MAX_SPANS


def test_steps_lost_one_after_another_keep_a_bounded_number_of_marks() -> None:
    clock = CountingClock()
    log = recorder_of(clock)
    replay = StepAssembler(log)

    def unreadable_with_buckets(log: EventLog) -> None:
        log.put("forward")
        for _ in range(MAX_SPANS):
            with_buckets(log)

    for number in range(6):
        take_step(log, number, unreadable_with_buckets)
        replay.drain()
    take_step(log, 6)
    take_step(log, 7)
    replay.drain()
    (record,) = replay.finished
    assert (record.step, replay.dropped) == (6, 6)
    assert len(record.marks()) < 5 * MAX_SPANS
