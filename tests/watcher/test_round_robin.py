"""Round robin: a small run is read whole, a large one in parts, and no rank is left out."""

from __future__ import annotations

import pytest

from ddpmon.watcher.feed import RoundRobin


def test_few_are_always_asked() -> None:
    turns = RoundRobin(range(5), at_once=8, most=2)
    assert [turns.next() for _ in range(3)] == [[0, 1, 2, 3, 4]] * 3
    assert turns.is_complete


@pytest.mark.parametrize(("count", "most", "each"), [(20, 2, 10), (20, 4, 7), (100, 3, 34)])
def test_many_are_asked_in_turn_all_at_first(count: int, most: int, each: int) -> None:
    turns = RoundRobin(range(count), at_once=8, most=most)
    assert turns.next() == list(range(count))
    assert turns.is_complete
    asked: list[int] = []
    while not (asked and turns.is_complete):
        part = turns.next()
        assert len(part) <= each
        asked += part
    assert sorted({*asked}) == sorted(asked) == list(range(count))


def test_whoever_is_in_question_is_asked_every_time() -> None:
    turns = RoundRobin(range(20), at_once=10, most=2)
    turns.next()
    assert all(3 in turns.next(3) for _ in range(4))
