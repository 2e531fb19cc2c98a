"""What the publisher's thread makes of events: those that came too fast, a sharded model's, parts of a loss."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
from ddpmon.probe.clock import CpuClock
from ddpmon.probe.event_log import MAX_EVENTS, EventLog
from ddpmon.probe.loss import LossReader
from ddpmon.probe.progress import Progress
from ddpmon.probe.record import StepRow, resolve
from ddpmon.probe.step_assembler import MAX_PENDING, StepAssembler
from ddpmon.schema import STEP_COLUMNS

MS = 1_000_000
EVENTS = ("forward", "forwarded", "ready", "synced", "log")


def recorder() -> EventLog:
    def fail(error: Exception) -> None:
        raise error

    return EventLog(CpuClock(), LossReader(), fail)


def take(recorder: EventLog, steps: range) -> None:
    """Steps of 10 ms: 2 ms of forward, 3 ms of backward, 1 ms of waiting."""
    for step in steps:
        at = 10 * MS * step
        recorder.put("forward", at + 4 * MS)
        recorder.put("forwarded", at + 6 * MS)
        recorder.put("ready", at + 9 * MS)
        recorder.put("synced", at + 10 * MS, step)
        recorder.put("log", float(step), 1, None, 0)


def rows(replay: StepAssembler) -> list[StepRow]:
    return [resolve(replay.finished.popleft(), CpuClock().ms, 0.0) for _ in range(len(replay.finished))]


def test_events_lost_are_steps_dropped_and_no_step_is_wrong() -> None:
    log = recorder()
    replay, steps = StepAssembler(log), 2 * MAX_EVENTS // len(EVENTS)
    take(log, range(10))
    replay.drain()
    take(log, range(10, steps))
    replay.drain()
    take(log, range(steps, steps + 10))
    replay.drain()
    found = rows(replay)
    assert found[-1].step == steps + 8, "the last one is still open to its loss"
    assert replay.dropped + len(found) + 1 == steps + 10
    assert len(found) <= MAX_PENDING
    assert [row.step for row in found] == list(range(found[0].step, steps + 9)), "lost ones are the oldest"
    for row in found:
        assert row.values[:7] == (10.0, 0.0, 2.0, 3.0, 0.0, 1.0, 0.0)
        assert row.values[-3:-1] == (float(row.step), 1.0)


def test_a_phase_whose_end_was_lost_is_not_for_ever() -> None:
    log = recorder()
    replay = StepAssembler(log)
    log.pause("eval")
    replay.drain()
    assert replay.phase == "eval"
    log.resume()
    take(log, range(MAX_EVENTS))
    replay.drain()
    take(log, range(MAX_EVENTS, MAX_EVENTS + 2))
    log.mark_as("optimizer")
    log.mark_as("optimized")
    take(log, range(MAX_EVENTS + 2, MAX_EVENTS + 4))
    replay.drain()
    assert rows(replay)[-1].values[4] > 0, "the optimizer counts again"


def test_a_step_of_the_optimizers_that_raised_in_its_closure_is_not_for_ever() -> None:
    log = recorder()
    replay = StepAssembler(log)
    log.put("optimizer", 1 * MS)
    take(log, range(1))  # the closure; what it raised was caught
    for step in range(1, 4):
        take(log, range(step, step + 1))
        log.put("optimizer", 10 * MS * (step + 1) + 1 * MS)
        log.put("optimized", 10 * MS * (step + 1) + 3 * MS)
    take(log, range(4, 6))
    replay.drain()
    assert [row.values[4] for row in rows(replay)][2:] == [2.0, 2.0, 2.0]
    assert replay.phase == "other"


def test_an_event_that_cannot_be_read_costs_its_step_alone() -> None:
    log = recorder()
    replay = StepAssembler(log)
    take(log, range(3))
    log.put("forward")
    take(log, range(3, 6))
    replay.drain()
    assert [row.step for row in rows(replay)] == [0, 1, 2, 4]
    assert replay.dropped == 1


def test_nothing_of_a_lost_step_is_kept_for_a_clock_that_takes_no_marks_back() -> None:
    log = recorder()
    replay = StepAssembler(log)
    log.put("forward")
    log.put("bucket", [0, 8, 1 * MS, 2 * MS])
    take(log, range(3))
    replay.drain()
    assert [(record.step, record.marks()) for record in replay.finished] == [(1, [])]


def sharded(recorder: EventLog, step: int, reductions: int) -> None:
    """A step of 10 ms of a sharded model, whose backward of 6 ms has reductions of 1 ms at its end."""
    at = 10 * MS * step
    recorder.put("forward", at + 2 * MS)
    recorder.put("barrier", at + 2 * MS)
    recorder.put("barriered", at + 3 * MS, 1)
    recorder.put("forwarded", at + 4 * MS)
    for place in range(reductions):
        recorder.put("reduce", at + (10 - reductions + place) * MS)
        recorder.put("reduced", at + (11 - reductions + place) * MS, 1)
    recorder.put("ready", at + 11 * MS)
    recorder.put("synced", at + 11 * MS, step)


def test_the_last_reduction_of_a_sharded_model_is_the_sync_point_and_the_others_are_waits() -> None:
    log = recorder()
    replay = StepAssembler(log)
    for step in range(4):
        sharded(log, step, 1 + step % 3)
    replay.drain()
    named = [dict(zip(STEP_COLUMNS, row.values, strict=False)) for row in rows(replay)]
    assert [row["duration"] for row in named[1:]] == [10.0, 10.0]
    assert [row["exposed"] for row in named] == [1.0] * 3
    assert [row["barrier"] for row in named] == [1.0, 2.0, 3.0], "the gathering in forward, and all but the last"
    assert [row["forward"] for row in named] == [1.0] * 3
    assert [row["backward"] for row in named] == [5.0, 4.0, 3.0]


def test_parts_of_a_loss_add_up_where_it_was_divided_into_as_many() -> None:
    log = recorder()
    replay = StepAssembler(log)
    for step, (losses, parts) in enumerate([((1.0, 2.0), 0), ((1.0, 2.0), 2), ((1.0, 2.0), 3), ((1.0, 2.0), -1)]):
        take_parts(log, step, losses, parts)
    take(log, range(4, 6))
    replay.drain()
    assert [row.values[10] for row in rows(replay)][:4] == [1.5, 3.0, 1.5, 3.0]


def take_parts(recorder: EventLog, step: int, losses: tuple[float, ...], parts: int) -> None:
    take(recorder, range(step, step + 1))
    recorder.log.pop()
    for loss in losses:
        recorder.put("log", loss, 1, None, parts)


def test_progress_is_the_jobs_own_count_and_an_eta_takes_two_looks() -> None:
    progress = Progress()
    assert (progress.step, progress.eta_s()) == (None, None)
    progress.take(10, 110, now=0.0)
    assert (progress.step, progress.total, progress.eta_s()) == (10, 110, None)
    progress.take(20, 110, now=5.0)
    assert progress.eta_s() == 45.0
    progress.take("many", 110, now=6.0)
    progress.take(float("nan"), 110, now=6.0)
    progress.take(True, 110, now=6.0)
    assert progress.step == 20
    progress.take(3, None, now=7.0)
    assert (progress.step, progress.total, progress.eta_s()) == (3, None, None)


def test_the_window_that_the_logger_tells_belongs_to_the_step_before() -> None:
    log, column = recorder(), STEP_COLUMNS.index("allreduce")
    replay = StepAssembler(log)
    take(log, range(4))
    log.put("allreduce", 2.5)  # at the sync point of step 3: DDP's logger takes a step in at the next forward
    take(log, range(4, 6))
    replay.drain()
    found = {row.step: row.values[column] for row in rows(replay)}
    assert [step for step, value in found.items() if value == 2.5] == [2]
