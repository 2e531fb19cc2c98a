"""The table of hosts: a row a host, a number a GPU, and what comes first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ddpmon.snapshot import Finding, Snapshot
from ddpmon.tui.draw.host_cells import METRICS
from ddpmon.tui.draw.host_table import host_sheet, host_table_lines
from ddpmon.tui.draw.order import ordered_hosts
from ddpmon.tui.draw.panel_sizes import host_plan
from ddpmon.tui.draw.table import TableView
from ddpmon.tui.theme import make_look
from ddpmon.tui.view_state import ViewState
from tests.tui.made_runs import HANG, Made, snapshot
from tests.tui.test_drawing import LOOKS, text_of
from tests.tui.test_hosts import ASCII, COLOUR, MANY, with_gpu


def rows_of(
    made: Snapshot, width: int = 160, height: int = 40, metric: str = "util", order: str = "worst", **view: Any
) -> list[str]:
    shown = TableView(ordered_hosts(made, view.get("sort", order), view.get("reverse", False)), **view)
    return text_of(host_table_lines(ViewState(made, ASCII), shown, width, height, metric))


def test_every_host_has_a_row_with_a_number_for_every_gpu() -> None:
    title, heading, *rows = [line.rstrip() for line in rows_of(MANY, order="host")][:18]
    assert "findings first; cells: GPU utilisation, % [v]" in title
    assert heading.split()[:8] == ["host", "ranks", "late", "cpu%", "mem%", "load", "net/s", "0"]
    assert len(rows) == 16
    assert rows[0].split()[:3] == [">", "node0", "0-7"]
    assert rows[0].split()[-8:] == [f"{91 + rank * 7 % 8}" for rank in range(8)]
    assert rows[5].startswith(" ! node5")
    assert "foreign process pid 8123" in rows[5]
    assert (rows[5].count("!"), rows[5].count("x")) == (3, 1)


@pytest.mark.parametrize(
    ("metric", "cells"), [("power", ["74", "76"]), ("temp", ["58", "59"]), ("clock", ["1,755"] * 2)]
)
def test_the_metric_of_the_cells_can_be_chosen(metric: str, cells: list[str]) -> None:
    assert rows_of(MANY, metric=metric, order="host")[2].split()[9:11] == cells


def test_the_cells_can_be_the_lateness_of_the_ranks() -> None:
    made = snapshot(Made(ranks=16, per_node=8, straggler=11))
    title, _, first, second = rows_of(made, metric="util")[:4]
    assert "lateness of the ranks" in title, "without GPUs there is nothing else to show"
    assert first.split()[:2] == [">!", "node1"]
    assert "rank 11: late +41 ms, input" in first
    assert len([word for word in first.split() if word.startswith(("+", "-")) or word == "0"]) >= 8
    assert "!" not in second


@pytest.mark.parametrize("look", ["ascii", "colour"])
def test_80_columns_name_the_ranks_of_every_host(look: str) -> None:
    view = TableView(ordered_hosts(MANY, "host", False))
    rows = text_of(host_table_lines(ViewState(MANY, LOOKS[look]), view, 80, 24))[2:18]
    assert [next(word for word in row.split() if "-" in word) for row in rows] == [
        f"{8 * host}-{8 * host + 7}" for host in range(16)
    ]


def test_a_cell_is_bright_where_it_differs_from_the_median() -> None:
    slow = with_gpu(MANY, 2, power_w=200.0)
    shown = TableView(ordered_hosts(slow, "host", False), focused=False)
    first = host_table_lines(ViewState(slow, COLOUR), shown, 160, 24, "power")[2]
    tones = [segment.style for segment in first if segment.text.strip().isdigit() and segment.style is not None][-8:]
    hottest = {tone.bgcolor.name for tone in tones if tone.bgcolor is not None and tone is tones[2]}
    assert len(hottest) == 1
    assert not any(tone.bgcolor is not None and tone.bgcolor.name in hottest for tone in (*tones[:2], *tones[3:]))


def test_hosts_with_findings_come_first_and_the_rest_in_node_order() -> None:
    found = (Finding("disk_low", "warning", "full", nodes=("node9",)), Finding("gpu_shared", "info", "shared", (30,)))
    made = replace(MANY, findings=(*found, Finding("pause", "info", "a checkpoint", (0,))))
    order = ordered_hosts(made, "worst", False).tolist()
    assert order == [9, 3, 5, 0, 1, 2, 4, 6, 7, 8, 10, 11, 12, 13, 14, 15]
    assert ordered_hosts(made, "host", True).tolist() == list(range(15, -1, -1))
    assert ordered_hosts(replace(made, nodes=()), "worst", False).tolist() == []


def test_a_host_that_has_fallen_silent_shows_no_old_figures_as_new() -> None:
    silent = replace(MANY, nodes=(replace(MANY.nodes[0], age_s=14.0), *MANY.nodes[1:]))
    row = rows_of(silent, order="host")[2]
    assert row.rstrip().endswith("silent for 14 s")


def test_hosts_not_heard_from_are_counted() -> None:
    fewer = replace(MANY, nodes=MANY.nodes[:3])
    assert "3 of 16 heard from" in rows_of(fewer, order="host")[0]
    assert "waiting: no host has published yet" in rows_of(replace(MANY, nodes=()))[2]


def test_a_run_without_gpus_says_what_stands_out_instead() -> None:
    made = snapshot(Made(ranks=8, per_node=4, troubled=(1,)))
    rows = rows_of(made, order="host")[2:4]
    assert "memory 97 % used; swapping in" in rows[1]
    assert "used" not in rows[0]


def test_information_comes_after_what_is_worse() -> None:
    made = snapshot(Made(ranks=8, per_node=4, troubled=(1,)))
    note = Finding("gc_pauses", "info", "rank 5 collects garbage", (5,), ("node1",))
    row = next(row for row in rows_of(replace(made, findings=(note,)), 640) if "node1" in row)
    assert row.index("memory 97 % used") < row.index("garbage collection")
    loud = next(
        row for row in rows_of(replace(made, findings=(replace(note, severity="warning"),)), 640) if "node1" in row
    )
    assert loud.index("garbage collection") < loud.index("memory 97 % used")


def test_gpus_that_do_not_fit_are_counted() -> None:
    assert rows_of(MANY, 60)[2].rstrip().endswith("+4")
    for width in (40, 60, 80, 120, 160, 300):
        sheet = host_sheet(MANY, METRICS[0], width)
        assert sheet.lead + sheet.cells * sheet.cell <= width


def test_the_plan_leaves_room_for_a_host_below_the_table() -> None:
    assert host_plan(1, 22) == (0, 0)
    for hosts in (2, 4, 16, 64, 512):
        for room in range(10, 70):
            for fills in (False, True):
                table, below = host_plan(hosts, room, fills=fills)
                assert table + below == room
                assert table >= 4
                assert below >= 3
    assert host_plan(128, 66, fills=True) == (33, 33)
    assert host_plan(4, 66, fills=True) == host_plan(4, 66), "few hosts are all shown"
    assert host_plan(128, 30, fills=True) == host_plan(128, 30), "a low terminal has the table"


def test_the_table_of_hosts_says_that_no_step_finishes() -> None:
    view = TableView(ordered_hosts(MANY, "host", False))
    for made, told in ((MANY, False), (replace(MANY, findings=(HANG,)), True)):
        for width in (80, 160):
            title = text_of(host_table_lines(ViewState(made, ASCII), view, width, 24))[0]
            assert ("no step finishes" in title) == told


@pytest.mark.parametrize(
    ("look", "metric", "said"),
    [
        ("colour", "util", "shade: how far from the median"), ("mono", "late", "shade: % of base step"),
        ("plain", "util", "bold: 5 % off the median or more"), ("ascii", "late", "bold: 5 % of base step or more"),
    ],
)  # fmt: skip
def test_the_title_says_how_the_numbers_are_drawn_in_each_theme(look: str, metric: str, said: str) -> None:
    looks = {**LOOKS, "mono": make_look(theme="ddpmon-mono")}
    picture = ViewState(MANY, looks[look])
    lines = text_of(host_table_lines(picture, TableView(ordered_hosts(MANY, "host", False)), 200, 40, metric))
    assert said in lines[0]
    assert "colour" not in "".join(lines)


def test_the_sign_of_a_gpu_stands_directly_at_its_number() -> None:
    """It stood midway between two numbers: `93 x 96`."""
    row = rows_of(with_gpu(snapshot(Made(ranks=16, per_node=8, gpu=True)), 2, xids=[79]))[2]
    assert " x9" in row
    assert "x 9" not in row


@pytest.mark.parametrize("late", [(8,), tuple(range(8, 16))])
def test_where_all_gpus_of_a_host_would_have_its_sign_the_numbers_have_none(late: tuple[int, ...]) -> None:
    found = Finding("slow_node", "critical", "", late, ("node1",), evidence={"excess_ms": 30.0})
    row = rows_of(snapshot(Made(ranks=16, per_node=8, gpu=True, findings=(found,))))[2]
    assert row.split()[:2] == [">!", "node1"]
    assert row.count("!") == (2 if len(late) == 1 else 1)
