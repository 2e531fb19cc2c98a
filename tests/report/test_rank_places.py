"""Ranks of a hang, grouped by where they are."""

from __future__ import annotations

from dataclasses import replace

from ddpmon.parts import Flight, Stack, StackFrame, Stall
from ddpmon.report.rank_places import is_hanging, places, rank_ranges
from tests.tui.made_runs import STALL, Made, snapshot


def test_ranks_of_a_hang_are_grouped_by_place() -> None:
    shown = snapshot(Made(ranks=8, stuck=2))
    assert shown.ranks is not None
    assert shown.run is not None
    waiting = Stall(
        13.0, [Stack("MainThread", [StackFrame("train.py", 61, "step", "loss.backward()")])],
        [Flight("default_pg", 41, 40, "gloo:all_reduce")],
    )  # fmt: skip
    ranks = replace(
        shown.ranks,
        phase=tuple("input" if rank == 2 else "exposed" for rank in range(8)),
        stall=tuple(STALL if rank == 2 else waiting for rank in range(8)),
    )
    assert is_hanging(replace(shown, ranks=ranks, run=replace(shown.run, state="stalled")))
    assert not is_hanging(replace(shown, ranks=ranks))
    stuck, others = places(ranks)
    assert (stuck.ranks, stuck.phase, stuck.is_waiting) == ((2,), "input", False)
    assert (others.ranks, others.is_waiting) == ((0, 1, 3, 4, 5, 6, 7), True)
    assert (others.operation, others.sequence) == ("gloo:all_reduce", 41)
    assert rank_ranges(others.ranks) == "0-1, 3-7"
    assert others.frame is not None
    assert others.frame.line == 61


def test_each_of_many_places_is_a_group_of_its_own() -> None:
    made = snapshot(Made(ranks=60))
    assert made.ranks is not None
    lines = [rank % 20 for rank in range(60)]  # more than are remembered at a time
    stalls = [Stall(12.0, [Stack("MainThread", [StackFrame("a.py", line, "f")])]) for line in lines]
    groups = places(replace(made.ranks, stall=tuple(stalls), phase=("input",) * 60))
    assert sorted(group.ranks for group in groups) == [(line, line + 20, line + 40) for line in range(20)]
    assert {group.frame.line for group in groups if group.frame} == {*range(20)}
