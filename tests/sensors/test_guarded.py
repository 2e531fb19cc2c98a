"""A sensor that hangs or fails, and everything beside it."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ddpmon.sensors.sampler import FAILURES, Guarded
from tests.sensors.others import until

QUICK_S = 0.01


@pytest.fixture
def guards() -> Iterator[list[Guarded[Any]]]:
    made: list[Guarded[Any]] = []
    yield made
    for guard in made:
        guard.stop()


def trouble(guard: Guarded[Any], words: str) -> str:
    return until(lambda: guard.trouble or "", lambda text: words in text, QUICK_S)


def test_one_that_hangs_is_said_and_holds_up_nothing(
    tmp_path: Path, guards: list[Guarded[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ddpmon.sensors.sampler.PATIENCE_S", 0.5)
    fifo, values = tmp_path / "fifo", iter(range(10**9))
    os.mkfifo(fifo)
    stuck, beside = Guarded("stuck", fifo.read_text, QUICK_S), Guarded("beside", lambda: next(values), QUICK_S)
    guards += [stuck, beside]
    stuck.start()
    beside.start()
    assert re.fullmatch(r"no answer for \d+ s", trouble(stuck, "no answer"))
    assert stuck.value is None
    before = beside.value or 0
    until(lambda: beside.value or 0, lambda value: value > before, QUICK_S)
    until(lambda: beside.trouble, lambda trouble: trouble is None, QUICK_S)
    assert [thread.name for thread in threading.enumerate()].count("ddpmon-stuck") == 1
    monkeypatch.setattr("ddpmon.sensors.sampler.PATIENCE_S", 600.0)  # it waits for the next word at once
    fifo.write_text("alive")
    assert until(lambda: stuck.value, bool, QUICK_S) == "alive"
    stuck.stop()
    with os.fdopen(os.open(fifo, os.O_RDWR), "w"):  # lets a reading that has begun again come to its end
        pass


def test_one_that_always_fails_is_switched_off(guards: list[Guarded[Any]]) -> None:
    calls: list[int] = []

    def fail() -> int:
        calls.append(1)
        raise OSError(5, "Input/output error", "/dev/\udcff")

    guard = Guarded("broken", fail, QUICK_S)
    guards.append(guard)
    guard.start()
    said = trouble(guard, "switched off")
    assert said == f"switched off after {FAILURES} errors: Input/output error: /dev/?"
    until(threading.enumerate, lambda threads: "ddpmon-broken" not in [thread.name for thread in threads])
    assert len(calls) == FAILURES
    assert guard.value is None


def test_one_that_fails_now_and_then_comes_back(guards: list[Guarded[Any]]) -> None:
    turns = iter(range(10**9))

    def now_and_then() -> int:
        if (turn := next(turns)) % FAILURES != 0:
            raise ValueError("not now")
        return turn

    guard = Guarded("moody", now_and_then, QUICK_S)
    guards.append(guard)
    guard.start()
    until(lambda: guard.value, lambda value: value is not None and value > 10 * FAILURES, QUICK_S)
    trouble(guard, "ValueError: not now")


def test_its_cost_is_its_own_threads_and_its_end_is_told() -> None:
    ended = threading.Event()
    guard = Guarded("busy", lambda: sum(range(200_000)), QUICK_S, at_end=ended.set)
    guard.start()
    until(lambda: guard.cost_ns, lambda ns: ns > 5_000_000, QUICK_S)
    assert not ended.is_set()
    guard.stop()
    assert ended.wait(60)
