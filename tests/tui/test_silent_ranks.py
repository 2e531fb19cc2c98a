"""Ranks that have been silent for some seconds and are not yet lost: what is no longer said of them, and where."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from ddpmon.report.peers import compare
from ddpmon.snapshot import Coverage, Snapshot
from ddpmon.tui.draw.header import header_line
from ddpmon.tui.draw.host_table import host_table_lines
from ddpmon.tui.draw.order import ordered, ordered_hosts
from ddpmon.tui.draw.table import TableView, table_lines
from ddpmon.tui.view_state import ViewState
from tests.tui.made_runs import Made, snapshot
from tests.tui.test_drawing import text_of
from tests.tui.test_hosts import ASCII, CALM, COLOUR, remarks, said, section, with_gpu


def with_ages(made: Snapshot, ages: dict[int, float]) -> Snapshot:
    """The same run, in which these ranks were heard so many seconds ago."""
    assert made.ranks is not None
    age_s = made.ranks.age_s.copy()
    age_s[list(ages)] = list(ages.values())
    return replace(made, ranks=replace(made.ranks, age_s=age_s))


def test_the_process_of_a_rank_that_has_just_died_is_not_called_hidden() -> None:
    """It was for as long as the rank did not count as silent: its GPU held less than its tensors had."""
    dead = with_gpu(CALM, 3, processes=[], process_count=0, memory_used=1 << 30)
    assert remarks(dead, 3) == []
    assert not any("hidden" in line for line in section(said(dead), "on the GPUs"))
    assert remarks(with_gpu(CALM, 3, processes=[], process_count=0), 3) == ["hidden"], "its memory is still held"


@pytest.mark.parametrize(("age", "others"), [(3.8, 3), (4.2, 2)])
def test_a_silent_rank_is_none_of_the_others(age: float, others: int) -> None:
    """As soon as the first line counts it out, also where the others were heard some tenths of a second ago."""
    silent = compare(with_ages(snapshot(Made(ranks=4, per_node=4, gpu=True)), {2: age}), [0])
    assert silent.all_others == others


def test_the_gpu_of_a_rank_that_has_just_died_is_none_of_the_others() -> None:
    """`GPU % 97.0, others 47.0`: the median of one GPU at work and one that its rank had left."""
    made = snapshot(Made(ranks=3, per_node=3, gpu=True))
    assert made.ranks is not None
    first, second, third = made.ranks.gpu
    assert second is not None
    assert third is not None
    left = msgspec.structs.replace(third, utilization_pct=0.0, memory_used=1 << 30)
    figures = {**made.ranks.figures, "gpu_memory": np.full(3, 44.0 * 2**30)}
    ranks = replace(made.ranks, gpu=(first, second, left), figures=figures)
    others = {row.quantity.name: row.others for row in compare(replace(made, ranks=ranks), [0]).rows}
    assert others["GPU"] == second.utilization_pct
    assert others["GPU memory"] == pytest.approx((second.memory_used or 0) / 2**30)


def rows_of(made: Snapshot, width: int = 80) -> list[str]:
    view = TableView(ordered(made, "worst", reverse=False, wanted=""), focused=False)
    return text_of(table_lines(ViewState(made, ASCII), view, width, 20))[2:]


def test_a_silent_rank_has_a_sign_and_stands_above_the_healthy_ones() -> None:
    made = with_ages(snapshot(Made(ranks=8)), {5: 6.0})
    assert rows_of(made)[0].split()[:2] == ["!", "5"]
    assert not any("!" in row for row in rows_of(made)[1:])
    assert rows_of(with_ages(made, {5: 0.4}))[0].split()[0] == "0"


def hosts_of(made: Snapshot, width: int) -> list[str]:
    view = TableView(ordered_hosts(made, "worst", False), focused=False)
    return text_of(host_table_lines(ViewState(made, ASCII), view, width, 20))[2:]


@pytest.mark.parametrize("width", [80, 160])
def test_a_host_with_silent_ranks_has_a_sign_and_stands_above_the_healthy_ones(width: int) -> None:
    made = snapshot(Made(ranks=64, per_node=8, gpu=True))
    first, *rest = hosts_of(with_ages(made, dict.fromkeys(range(24, 32), 6.0)), width)
    assert first.split()[:2] == ["!", "node3"]
    assert ("8 ranks silent for 6.0 s" in first) is (width == 160)
    assert not any("!" in row for row in rest)


def test_a_host_that_is_silent_itself_has_them_too() -> None:
    made = snapshot(Made(ranks=32, per_node=8, gpu=True))
    nodes = tuple(replace(node, age_s=9.1 if node.node == 2 else node.age_s) for node in made.nodes)
    first, *rest = hosts_of(replace(made, nodes=nodes), 80)
    assert first.split()[:2] == ["!", "node2"]
    assert "silent for 9.1 s" in first
    assert not any("!" in row for row in rest)


@pytest.mark.parametrize(("for_s", "silent"), [(0.0, []), (5.0, []), (9.0, [f"node{number}" for number in range(4)])])
def test_while_the_store_does_not_answer_hosts_are_silent_together(for_s: float, silent: list[str]) -> None:
    """Each of many hosts is read every six seconds: after some seconds without an answer half of them were silent."""
    made = snapshot(Made(ranks=32, per_node=8, gpu=True))
    nodes = tuple(replace(node, age_s=for_s + 1.5 * node.node) for node in made.nodes)
    rows = [row for row in hosts_of(replace(made, nodes=nodes), 160) if row.strip()]
    assert sorted(row.split()[0] for row in rows if "silent for" in row) == silent
    assert [row.split()[0] for row in rows] == [f"node{number}" for number in range(4)], "none has a sign"


def test_once_the_run_has_ended_nobody_is_called_silent() -> None:
    made = with_ages(snapshot(Made(ranks=16, per_node=8, gpu=True)), dict.fromkeys(range(8, 16), 6.0))
    assert made.run is not None
    ended = replace(made, run=replace(made.run, state="finished"))
    assert not any("!" in row for row in [*rows_of(ended), *hosts_of(ended, 160)])


@pytest.mark.parametrize("reporting", [7, 8])
def test_the_count_of_the_ranks_and_the_age_of_the_oldest_word_have_one_colour(reporting: int) -> None:
    made = snapshot(Made(ranks=8))
    shown = replace(made, coverage=Coverage(8, reporting, 4.1 if reporting < 8 else 3.9))
    line = header_line(ViewState(shown, COLOUR), 160)
    count, heard = (next(part for part in line if words in part.text) for words in ("/8 ranks", "heard"))
    assert count.style == heard.style == (COLOUR.accent if reporting < 8 else COLOUR.dim)


def test_a_silent_host_says_that_it_is_silent_and_not_that_it_is_at_other_steps() -> None:
    made = with_ages(snapshot(Made(ranks=16, per_node=8, gpu=True)), dict.fromkeys(range(8, 16), 6.0))
    assert made.ranks is not None
    late = np.where(np.arange(16) < 8, 0.0, np.nan)
    lines = said(replace(made, ranks=replace(made.ranks, lateness_ms=late)), number=1)
    assert lines[1] == " * not compared: its 8 ranks have been silent for 6.0 s"


@pytest.mark.parametrize(
    ("coverage", "orange"),
    [(Coverage(8, 8, 0.4), ""), (Coverage(8, 8, 6.0), "heard 6.0 s ago"), (Coverage(8, 7, 0.4), "7/8 ranks")],
)
def test_only_what_is_not_as_it_should_be_is_orange_in_the_first_line(coverage: Coverage, orange: str) -> None:
    """`64/64 ranks` was orange, too, where only the age of one of them was not usual."""
    line = header_line(ViewState(replace(CALM, coverage=coverage), COLOUR), 160)
    assert "".join(segment.text for segment in line if segment.style == COLOUR.accent).strip() == orange
