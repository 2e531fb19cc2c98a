"""A guard left alone for a night: each trouble is told once, and its end once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.guard.night import RANKS, Night, night

KINDS = ("straggler", "slow_node", "rank_lost", "straggler", "no_word") * 4


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Night]:
    yield from night(tmp_path, monkeypatch, KINDS)


def interfere(made: Night, tick: int) -> None:
    """Churn: ranks, the store and the guard are restarted, in the middle of troubles and between them."""
    for number, trouble in enumerate(made.plan):
        during, before = tick - trouble.first, trouble.first - tick
        if trouble.kind == "no_word":
            is_down, is_up = during == 0, tick == trouble.last
        else:
            is_down, is_up = before == 7 and number % 3 == 0, before == 6 and number % 3 == 0
            restart_something(made, number % 4, during)
        if is_down:
            made.stop_store()
        if is_up:
            made.start_store()
        if before == 4 and number % 3 == 1:
            made.restart_guard()


def restart_something(made: Night, which: int, during: int) -> None:
    """The guard, all ranks or one of them, in the middle of a trouble."""
    if (which, during) == (0, 9):
        made.restart_guard()
    elif (which, during) == (1, 5):
        made.restart_ranks(*range(RANKS))
    elif (which, during) == (3, 5):
        made.restart_ranks(2)


def test_twenty_troubles_are_told_once_each(made: Night) -> None:
    for tick in range(made.plan[-1].last + 12):
        interfere(made, tick)
        made.tick(tick)
    made.settle()
    expected = len(made.plan)
    told = Counter((message["event"], message["finding"]["kind"]) for message in made.said)
    assert [told["firing", kind] for kind in KINDS] == [KINDS.count(kind) for kind in KINDS]
    assert [told["resolved", kind] for kind in KINDS] == [KINDS.count(kind) for kind in KINDS]
    assert len(made.said) == 2 * expected
    assert len({message["alert"] for message in made.said}) == expected
    assert len({message["id"] for message in made.said}) == 2 * expected
