"""Pace: a run of many ranks is read whole in every second tick, or every third where that would cost too much."""

from __future__ import annotations

from typing import Protocol

import pytest

from ddpmon.watcher.pace import Pace


class Ticks(Protocol):
    """Lets ticks pass, so many seconds apart, that cost so many seconds of CPU each; says which of them were turns."""

    def __call__(self, pace: Pace, count: int, apart_s: float, cpu_s: float, *, counts: bool = True) -> list[bool]: ...


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> Ticks:
    now = {"wall": 100.0, "cpu": 0.0}
    monkeypatch.setattr("ddpmon.watcher.pace.monotonic", lambda: now["wall"])
    monkeypatch.setattr("ddpmon.watcher.pace.process_time", lambda: now["cpu"])

    def passed(pace: Pace, count: int, apart_s: float, cpu_s: float, *, counts: bool = True) -> list[bool]:
        found = []
        for _ in range(count):
            now["wall"] += apart_s
            now["cpu"] += cpu_s
            found.append(pace.is_turn(counts=counts))
        return found

    return passed


def test_cheap_turns_come_every_second_tick(ticks: Ticks) -> None:
    assert ticks(Pace(), 12, 1.0, 0.04) == [False, True] * 6


def test_dear_turns_come_every_third_tick_until_they_are_cheap_again(ticks: Ticks) -> None:
    pace = Pace()
    ticks(pace, 12, 1.0, 0.07)
    dear = ticks(pace, 6, 1.0, 0.05)  # 150 ms each: 7.5 % of a core in every second tick
    assert dear[:3] == dear[3:]
    assert sum(dear) == 2
    ticks(pace, 30, 1.0, 0.02)
    assert ticks(pace, 4, 1.0, 0.03) in ([False, True] * 2, [True, False] * 2)


def test_what_turns_cost_on_average_counts(ticks: Ticks) -> None:
    pace = Pace()
    ticks(pace, 16, 1.0, 0.03)
    ticks(pace, 2, 1.0, 0.1)
    assert ticks(pace, 2, 1.0, 0.03) == [False, True], "one of 200 ms among seven of 60: 3.9 % of a core"
    ticks(pace, 2, 1.0, 0.2)
    assert ticks(pace, 3, 1.0, 0.03) == [False, False, True], "and another one of 400 ms: 6.0 %"


def test_ticks_far_apart_are_turns_each(ticks: Ticks) -> None:
    assert ticks(Pace(), 6, 5.0, 0.1) == [True] * 6, "a rank that is asked every ten seconds would look silent"


def test_what_is_read_only_once_makes_no_turn_dear(ticks: Ticks) -> None:
    pace = Pace()
    assert ticks(pace, 11, 1.0, 0.5, counts=False)[-4:] == [True, False] * 2
    assert ticks(pace, 1, 1.0, 0.04) == [True]
    assert ticks(pace, 12, 1.0, 0.04) == [False, True] * 6
