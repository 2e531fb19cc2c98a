"""What the probe says that it takes of the training thread."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from time import perf_counter_ns
from typing import Any

import pytest

pytest.importorskip("torch")

from ddpmon.probe import event_log
from ddpmon.probe.clock import CpuClock
from ddpmon.probe.event_log import EventLog
from ddpmon.probe.loss import LossReader

OWN_US, WAIT_US, BUCKET_US = 2.0, 500.0, 20.0
STEPS = 600


def fail(error: Exception) -> None:
    raise error


class Host:
    """The host's clock, which goes on by what each mark takes, in nanoseconds.

    Args:
        waits: whether the mark of this number waits for its device.
    """

    def __init__(self, waits: Callable[[int], bool]) -> None:
        self.now = 0
        self._waits, self._numbers = waits, count(1)

    def read(self) -> int:
        return self.now

    def mark(self) -> int:
        self.take(OWN_US + (WAIT_US if self._waits(next(self._numbers)) else 0.0))
        return self.now

    def take(self, us: float) -> None:
        self.now += int(us * 1e3)


def log_of(host: Host, monkeypatch: pytest.MonkeyPatch, *, on_device: bool) -> EventLog:
    """An event log whose marks are those of `host`."""
    clock: Any = CpuClock()
    monkeypatch.setattr(clock, "mark", host.mark)
    monkeypatch.setattr(clock, "name", "cuda events" if on_device else clock.name)
    monkeypatch.setattr(event_log, "perf_counter_ns", host.read)
    return EventLog(clock, LossReader(), fail)


def account_us(log: EventLog, step: Callable[[int], None]) -> float:
    """The account of a step, over the second half of many."""
    for number in range(STEPS):
        step(number)
        log.synced()
        if number == STEPS // 2:
            since = log.cost_ns
    return (log.cost_ns - since) / (log.last_step - STEPS // 2) / 1e3


@pytest.mark.parametrize(
    ("on_device", "waits", "cost_us"),
    [
        (True, lambda mark: mark % 3 == mark // 3 % 3, 2 * 3 * OWN_US),
        (True, lambda mark: mark > 30, 2 * 3 * OWN_US),
        (False, lambda mark: mark % 3 == mark // 3 % 3, 2 * (3 * OWN_US + WAIT_US)),
    ],
    ids=["another mark each time", "every mark once the queue is full", "on the host, where nothing is waited for"],
)
def test_what_a_hook_waits_for_a_full_launch_queue_is_not_what_it_costs(
    monkeypatch: pytest.MonkeyPatch, on_device: bool, waits: Callable[[int], bool], cost_us: float
) -> None:
    log = log_of(Host(waits), monkeypatch, on_device=on_device)

    def step(_number: int) -> None:
        log.forward_begins(True)
        log.time_hook("bucket", log.mark_as, "arrived")

    assert account_us(log, step) == pytest.approx(cost_us, rel=0.02)


def test_hooks_that_run_in_another_order_each_time_cost_what_each_of_them_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = Host(lambda _mark: False)
    log = log_of(host, monkeypatch, on_device=True)

    def step(number: int) -> None:
        hooks = [("bucket", BUCKET_US), ("reduced", OWN_US), ("bucket", BUCKET_US), ("reduced", OWN_US)]
        for kind, us in hooks if number % 2 else sorted(hooks):
            log.time_hook(kind, host.take, us)

    assert account_us(log, step) == pytest.approx(2 * (2 * BUCKET_US + 2 * OWN_US + OWN_US), rel=0.02)


def test_a_hook_that_seldom_runs_is_counted_only_in_the_steps_that_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(lambda _mark: False)
    log = log_of(host, monkeypatch, on_device=True)

    def step(number: int) -> None:
        if number == 0:
            log.time_hook("bucket", host.take, BUCKET_US)

    assert account_us(log, step) == pytest.approx(2 * OWN_US, rel=0.02)


def test_a_sampled_step_without_an_end_keeps_little() -> None:
    log = EventLog(CpuClock(), LossReader(), fail)
    for _ in range(100_000):
        log.spend("barrier", perf_counter_ns())
    assert len(log._parts) == 1
