"""Hosts: what stands beside their table, the last values of a run that has ended, causes that are said once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from rich.color import Color
from rich.style import Style

from ddpmon.diagnose.kinds import KindName
from ddpmon.snapshot import Finding, Link, LinkState, RunState, Snapshot
from ddpmon.tui.draw.host_detail import host_page
from ddpmon.tui.draw.host_ranks import rank_rows
from ddpmon.tui.draw.host_table import host_table_lines
from ddpmon.tui.draw.order import ordered_hosts
from ddpmon.tui.draw.table import TableView
from ddpmon.tui.view_state import ViewState
from tests.tui.made_runs import Made, snapshot
from tests.tui.test_drawing import text_of
from tests.tui.test_hosts import CALM, COLOUR, said
from tests.tui.test_hosts_table import rows_of


def test_hosts_of_a_run_that_has_ended_show_their_last_values() -> None:
    assert CALM.run is not None
    old = replace(CALM, nodes=tuple(replace(node, age_s=24.0) for node in CALM.nodes))
    assert any("silent for 24 s" in row for row in rows_of(old))
    rows = rows_of(replace(old, run=replace(CALM.run, state="finished")))
    assert not any("silent" in row for row in rows)
    assert "last values, 24 s old" in rows[0]
    assert rows[1:] == rows_of(replace(CALM, run=replace(CALM.run, state="finished")))[1:]


def test_the_title_of_many_hosts_says_that_their_values_are_the_last_ones() -> None:
    """In 80 columns the title of 128 hosts did not."""
    made = snapshot(Made(ranks=64, per_node=2, gpu=True))
    assert made.run is not None
    old = tuple(replace(node, age_s=24.0) for node in made.nodes)
    picture = ViewState(replace(made, nodes=old, run=replace(made.run, state="finished")), COLOUR)
    for width in (80, 100, 120):
        (title, *_) = text_of(host_table_lines(picture, TableView(np.arange(32)), width, 14))
        assert "1 to 12 of 32; last values, 24 s old; " in title, title
        assert "cells: GPU utilisation, % [v]" in title
        assert len(title) == width


def test_hosts_of_a_run_whose_store_is_gone_show_their_last_values_too() -> None:
    old = replace(CALM, nodes=tuple(replace(node, age_s=47.0) for node in CALM.nodes), link=Link("gone", "no store"))
    rows = rows_of(old)
    assert "last values, 47 s old" in rows[0]
    assert sum("47 s" in row for row in rows) == 1, "the age is told once"
    assert rows[2] == rows_of(CALM)[2]


@pytest.mark.parametrize(
    ("kind", "evidence", "fate"), [("rank_lost", {}, "lost"), ("monitor_degraded", {"not_reporting": 5}, "silent")]
)
def test_a_host_counts_its_own_ranks_of_a_finding_on_several(
    kind: KindName, evidence: dict[str, float | int | str], fate: str
) -> None:
    """`39 ranks: lost` stood beside each of the hosts."""
    made = snapshot(Made(ranks=8, per_node=4))
    found = Finding(kind, "critical", "5 ranks are missing.", (1, 3, 4, 5, 6), evidence=evidence)
    alone = replace(found, ranks=(1, 3), evidence=dict.fromkeys(evidence, 2))
    rows = rows_of(replace(made, findings=(found,)))
    assert f"ranks 1, 3: {fate}" in rows[2]
    assert f"ranks 4-6: {fate}" in rows[3]
    assert said(replace(made, findings=(found,)), number=1)[1][3:] == "ranks 4-6 here: 5 ranks are missing."
    assert said(replace(made, findings=(alone,)))[1][3:] == "5 ranks are missing.", "all of them are here"


@pytest.mark.parametrize(
    ("link", "state", "is_dim"),
    [("live", "running", False), ("live", "finished", True), ("gone", "finished", True), ("gone", "killed", True)],
)
def test_the_values_of_a_host_are_dim_once_its_run_is_over(link: LinkState, state: RunState, is_dim: bool) -> None:
    """Also where the whole picture is faded: bars and bold names stood out there."""
    assert CALM.run is not None
    shown = replace(CALM, link=Link(link), run=replace(CALM.run, state=state))
    lines = host_page(ViewState(shown, COLOUR), 0, 160, named_first=True).lines[2:]
    colours = {part.style.color for line in lines for part in line if part.style and part.text.strip()}
    kill = {COLOUR.broken.color}  # the sign of the finding
    assert (colours - kill == {COLOUR.dim.color, COLOUR.faint.color}) is is_dim


@pytest.mark.parametrize(
    ("link", "state", "when"),
    [("live", "running", "now"), ("gone", "running", "when last seen"), ("gone", "failed", "at the end")],
)
def test_the_ranks_of_a_host_say_when_they_were_so(link: LinkState, state: RunState, when: str) -> None:
    shown = snapshot(Made(ranks=4, per_node=4))
    assert shown.run is not None
    shown = replace(shown, link=Link(link), run=replace(shown.run, state=state))
    heading = text_of(rank_rows(shown, range(4), {}, 100, COLOUR))[1]
    assert heading.endswith(f"  {when}")


def test_the_last_values_of_a_run_that_has_ended_are_dim() -> None:
    def colours(state: RunState) -> set[Color | None]:
        assert CALM.run is not None
        picture = ViewState(replace(CALM, run=replace(CALM.run, state=state)), COLOUR)
        row = host_table_lines(picture, TableView(ordered_hosts(picture.snapshot, "worst", False)), 160, 8)[2]
        return {each.style.color for each in row if each.style and any(letter.isdigit() for letter in each.text)}

    assert colours("finished") == {COLOUR.dim.color}
    assert COLOUR.text.color in colours("running")


def test_a_run_too_young_for_a_verdict_does_not_say_that_there_is_nothing() -> None:
    assert CALM.run is not None
    assert said(replace(CALM, run=replace(CALM.run, step=10)))[1] == " * not enough evidence yet"


def test_a_wide_terminal_has_a_heat_map_beside_the_hosts_and_processes_beside_each_other() -> None:
    made = snapshot(Made(ranks=64, per_node=8, straggler=21, gpu=True))
    for width, beside in ((120, False), (240, True)):
        rows = rows_of(made, width, 10)
        assert [len(row) for row in rows] == [width] * 10
        assert ("lateness, host x" in rows[0]) is beside
        assert rows[2].split()[1] == "node2"
        host = said(made, width, 2)
        together = [line for line in host if "- on the GPUs -" in line and "- on the CPUs -" in line]
        assert bool(together) is beside


@pytest.mark.parametrize("width", [120, 160, 240, 300])
def test_the_bars_of_the_gpus_fill_the_width_but_for_the_remarks(width: int) -> None:
    """In 240 columns their rows ended at 131."""
    rows = [line for line in said(CALM, width) if "/700 " in line]
    assert rows
    assert all(width - 34 <= len(row.rstrip()) <= width - 17 for row in rows), [len(row.rstrip()) for row in rows]


def test_a_cause_that_the_sentence_of_a_lateness_has_is_not_said_again() -> None:
    because = "rank 1 is late because pid 77 uses its GPU."
    late = Finding("straggler", "warning", because, (1,), evidence={"excess_ms": 41.0, "cause_pid": 77})
    cause = Finding("gpu_shared", "warning", "pid 77 uses the GPU of rank 1.", (1,), evidence={"pid": 77})
    assert [line for line in said(replace(CALM, findings=(late, cause))) if "pid 77" in line] == [f" ! {because}"]
    other = replace(cause, summary="pid 78 uses the GPU of rank 1.", evidence={"pid": 78})
    assert any("pid 78" in line for line in said(replace(CALM, findings=(late, other))))


@pytest.mark.parametrize(("kind", "is_bold"), [("straggler", True), ("gpu_errors", False)])
def test_the_lateness_of_a_host_is_bold_only_where_a_finding_calls_it_late(kind: KindName, is_bold: bool) -> None:
    """That of a host whose rank had been killed was bold, as ±0."""
    found = Finding(kind, "critical", "", (0,), ("node0",), evidence={"excess_ms": 30.0})
    made = snapshot(Made(ranks=8, per_node=4, gpu=True, findings=(found,)))
    assert late_style(made) == (COLOUR.strong if is_bold else COLOUR.text)
    assert made.run is not None
    killed = replace(made, link=Link("gone"), run=replace(made.run, state="killed"))
    assert late_style(killed) == COLOUR.dim, "the last values are dim, also where the whole picture is faded"


def late_style(made: Snapshot) -> Style | None:
    """How the lateness of the first host in the list is drawn: the first number behind its ranks."""
    view = TableView(ordered_hosts(made, "worst", False), focused=False)
    row = host_table_lines(ViewState(made, COLOUR), view, 160, 20)[2]
    return row[4].style
