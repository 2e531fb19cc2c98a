"""Hosts in the order of what their cells show, and the column of their latest rank."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from ddpmon.snapshot import Finding, Snapshot
from ddpmon.tui.draw.courses import METRICS, rank_plots
from ddpmon.tui.draw.host_table import host_table_lines
from ddpmon.tui.draw.order import HOST_SORTS, ordered, ordered_hosts
from ddpmon.tui.draw.peer_table import marked_lines, peer_lines
from ddpmon.tui.draw.run_plots import lateness_plot
from ddpmon.tui.draw.table import TableView
from ddpmon.tui.screens.host_screens import HostsScreen
from ddpmon.tui.view_state import ViewState
from ddpmon.tui.widgets.virtual_table import HostTable
from tests.tui.made_runs import Made, make_detail, snapshot
from tests.tui.test_drawing import LOOKS, text_of
from tests.tui.test_hosts import said
from tests.tui.watched import Fixed, Watched, watch

COURSES = {metric.key: metric for metric in METRICS}
GPUS = snapshot(Made(ranks=64, per_node=8, gpu=True))
ODD = {"utilization_pct": 12.0, "power_w": 90.0, "memory_used": 1, "temperature_c": 95.0, "sm_clock_mhz": 900.0}
NOW_AND_THEN = Finding(
    "intermittent_straggler", "warning", "late", (33,), ("node4",), evidence={"excess_ms": 361.2, "one_step_in": 5.0}
)
RARE = replace(GPUS, findings=(NOW_AND_THEN,))


def with_gpu(made: Snapshot, number: int, index: int, **changes: Any) -> Snapshot:
    """The same run with one GPU of one host changed."""
    nodes = list(made.nodes)
    gpus = [msgspec.structs.replace(gpu, **changes) if gpu.index == index else gpu for gpu in nodes[number].gpus]
    nodes[number] = replace(nodes[number], gpus=tuple(gpus))
    return replace(made, nodes=tuple(nodes))


def rows_of(made: Snapshot, sort: str, width: int, metric: str = "util") -> list[str]:
    view = TableView(ordered_hosts(made, sort, False, "", metric), sort=sort)
    return [
        line.rstrip() for line in text_of(host_table_lines(ViewState(made, LOOKS["ascii"]), view, width, 14, metric))
    ]


@pytest.mark.parametrize("metric", ["util", "power", "memory", "temp", "clock"])
def test_the_host_with_the_odd_gpu_comes_first_whether_that_has_more_or_less(metric: str) -> None:
    made = with_gpu(GPUS, 6, 7, **ODD)
    assert ordered_hosts(made, "odd", False, "", metric)[0] == 6
    assert ordered_hosts(made, "odd", True, "", metric)[-1] == 6
    assert ordered_hosts(made, "odd", False, "node1 or node6", metric).tolist() == [6, 1]


def test_hosts_on_which_something_stands_out_come_behind_those_that_findings_name() -> None:
    """Of 128 hosts twelve have room in 80x24, and one whose memory was full was not among them."""
    made = snapshot(Made(ranks=64, per_node=8, gpu=True, straggler=17, troubled=(6,)))
    assert ordered_hosts(made, "worst", False)[:4].tolist() == [2, 6, 0, 1]
    assert ordered_hosts(made, "host", False).tolist() == [*range(8)]


def test_a_host_near_a_threshold_keeps_its_place_for_a_minute() -> None:
    """Its row jumped to the front and back with each reading."""
    odd = snapshot(Made(ranks=64, per_node=8, gpu=True, straggler=17, troubled=(6,)))
    calm = replace(odd, nodes=snapshot(Made(ranks=64, per_node=8, gpu=True, straggler=17)).nodes)
    source = Fixed(odd)

    async def act(watched: Watched) -> None:
        await watched.press("3")
        table = watched.app.screen.query_one(HostTable)
        for seconds, made, ahead in ((0, odd, 6), (30, calm, 6), (80, odd, 6), (139, calm, 6), (142, calm, 0)):
            source.shown = replace(made, taken_at=odd.taken_at + seconds, nodes=(*made.nodes,))
            await watched.until(lambda: watched.app.shown.taken_at == source.shown.taken_at)
            assert table.view.order[:2].tolist() == [2, ahead], seconds
        source.shown = replace(calm, taken_at=odd.taken_at + 80)
        await watched.until(lambda: watched.app.shown.taken_at == source.shown.taken_at)
        assert table.view.order[:2].tolist() == [2, 0], "what was forgotten stays so"

    watch(source, act, (160, 40))


def test_hosts_whose_cells_are_alike_stay_in_their_order_and_unknown_ones_come_last() -> None:
    made = replace(GPUS, nodes=(replace(GPUS.nodes[0], gpus=()), *GPUS.nodes[1:]))
    made = with_gpu(made, 5, 2, sm_clock_mhz=1755.0 + 30)
    assert ordered_hosts(made, "odd", False, "", "clock").tolist() == [5, 1, 2, 3, 4, 6, 7, 0]


def test_of_lateness_the_latest_rank_counts_and_not_the_earliest() -> None:
    made = snapshot(Made(ranks=64, per_node=8, straggler=42))
    assert made.ranks is not None
    made.ranks.lateness_ms[3] = -500.0
    assert ordered_hosts(made, "odd", False, "", "late")[0] == 5
    assert ordered_hosts(made, "odd", False, "", "late").tolist() == ordered_hosts(made, "late", False).tolist()
    assert "by odd: the most late rank" in rows_of(made, "odd", 120, "late")[0]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 160])
@pytest.mark.parametrize("metric", ["util", "clock"])
@pytest.mark.parametrize("sort", [name for name in HOST_SORTS if name not in ("worst", "host")])
def test_the_column_that_sorts_is_shown_at_every_width(sort: str, metric: str, width: int) -> None:
    made = with_gpu(GPUS, 6, 7, sm_clock_mhz=900.0, utilization_pct=12.0)
    title, heading, first = rows_of(made, sort, width, metric)[:3]
    assert sort in heading.split()
    assert f"by {sort}" in title
    if sort == "odd":
        shown = heading.index("odd") + len("odd")
        assert first[:shown].split()[-1] == {"util": "12", "clock": "900"}[metric]


def test_80_columns_keep_all_cells_that_have_room_without_other_figures() -> None:
    long = snapshot(Made(ranks=64, per_node=8, gpu=True, hosts=tuple(f"compute-{number}" for number in range(8))))
    title, heading, _ = rows_of(long, "odd", 80)[:3]
    assert heading.split() == ["host", "ranks", "late", "cpu%", "odd", *map(str, range(8))]
    assert rows_of(long, "load", 80)[1].split()[2:] == ["late", "cpu%", "mem%", "load", *map(str, range(6))]
    assert "by odd: GPU farthest from the median; cells: " in title


def test_keys_and_a_click_above_the_cells_sort_by_them_and_the_order_follows_the_metric() -> None:
    made = with_gpu(with_gpu(GPUS, 6, 7, utilization_pct=12.0), 3, 0, power_w=60.0)

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("3", "comma")
        screen = watched.app.screen
        assert isinstance(screen, HostsScreen)
        table = screen.table

        def order() -> list[int]:
            return [int(number) for number in table.view.order]

        assert (table.view.sort, order()[0]) == ("odd", 6)
        await watched.press("v")
        assert order()[0] == 3
        await watched.until_shown("by odd: GPU farthest from the median; cells: GPU power")
        await watched.press("0")
        assert order() == [*range(8)]
        await watched.press("V")
        assert order()[0] == 3
        await watched.press("V")
        assert order()[-1] == 3
        await watched.press("0")
        headings = watched.text().split("\n")[table.region.y + 1]
        await watched.pilot.click(table, offset=(headings.index(" 5 ") + 1, 1))
        assert (table.view.sort, order()[0]) == ("odd", 3)
        headings = watched.text().split("\n")[table.region.y + 1]
        await watched.pilot.click(table, offset=(headings.index("remarks"), 1))
        assert not table.view.reverse, "nothing is sorted by remarks"

    watch(Fixed(made), act, (160, 40))


def test_without_gpus_the_cells_are_no_order_of_their_own() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("3", "comma")
        assert isinstance(watched.app.screen, HostsScreen)
        assert watched.app.screen.table.view.sort == "net/s"

    watch(Fixed(snapshot(Made(ranks=8))), act)


@pytest.mark.parametrize("width", [80, 160])
def test_a_host_whose_latest_rank_is_late_now_and_then_says_how_late_and_how_often(width: int) -> None:
    rows = rows_of(RARE, "host", width)
    assert "+361 1/5" in rows[2 + 4]
    assert not any("1/5" in row for row in (*rows[:6], *rows[7:]))
    assert any("  33  +361 1/5 " in line for line in said(RARE, 120, 4)), "the row of its GPU"
    bare = replace(RARE, nodes=tuple(replace(node, gpus=()) for node in RARE.nodes))
    assert any(re.search(r" 33 +\+361 1/5 ", line) for line in said(bare, width, 4)), "the row of the rank"


def test_the_cell_of_a_rank_that_is_late_now_and_then_says_how_often_where_all_cells_have_room() -> None:
    cells = {width: rows_of(RARE, "host", width, "late")[2 + 4].split("1/5", 1)[1] for width in (160, 120)}
    assert "+361 1/5" in cells[160]
    assert "+361 " in cells[120]
    assert "1/5" not in cells[120]


def test_the_plots_of_a_rank_that_is_late_now_and_then_say_how_late_and_how_often() -> None:
    picture = ViewState(RARE, LOOKS["ascii"])
    assert " +361 1/5 " in text_of(lateness_plot(picture, 33, 80, 8))[0]
    assert "1/5" not in text_of(lateness_plot(picture, 34, 80, 8))[0]
    detail = make_detail(Made(ranks=64, per_node=8), 33, np.random.default_rng(0))
    assert " +361 1/5 " in text_of(rank_plots(picture, detail).plot(COURSES["lateness"], 80, 8))[0]
    over = ViewState(replace(RARE, findings=(replace(NOW_AND_THEN, cleared_at_step=900),)), LOOKS["ascii"])
    assert "1/5" not in text_of(rank_plots(over, detail).plot(COURSES["lateness"], 80, 8))[0]


def test_a_rank_that_is_late_in_every_step_and_by_more_is_the_latest_of_its_host() -> None:
    steady = Finding("straggler", "critical", "late", (34,), ("node4",), evidence={"excess_ms": 900.0})
    made = replace(RARE, findings=(steady, NOW_AND_THEN))
    assert made.ranks is not None
    late = made.ranks.lateness_ms.copy()
    late[34] = 900.0
    row = rows_of(replace(made, ranks=replace(made.ranks, lateness_ms=late)), "host", 160)[2 + 4]
    assert "+900 " in row
    assert "1/5" not in row


def test_what_is_late_now_and_then_is_sorted_by_the_lateness_that_is_shown() -> None:
    assert ordered_hosts(RARE, "late", False)[0] == 4
    assert ordered(RARE, "late", False, "")[0] == 33
    assert ordered_hosts(replace(RARE, findings=()), "late", False)[0] != 4


@pytest.mark.parametrize("reverse", [False, True])
def test_the_heat_map_beside_the_hosts_has_their_order(reverse: bool) -> None:
    """The table began with the host of the straggler, and the map beside it with node0."""
    made = snapshot(Made(ranks=64, per_node=4, straggler=61))
    view = TableView(ordered_hosts(made, "worst", reverse), reverse=reverse)
    title, *lines = text_of(host_table_lines(ViewState(made, LOOKS["ascii"]), view, 240, 40))
    place = title.index("- lateness, host")
    labels = [line[place : place + 6].strip(" !") for line in lines[:-1]]
    assert [label for label in labels if label] == [f"n{host}" for host in view.order]


def rare_input() -> Snapshot:
    """The same, with the phase that is blamed."""
    return replace(RARE, findings=(replace(NOW_AND_THEN, phase="input"),))


def test_the_plots_of_what_is_blamed_say_how_late_and_how_often() -> None:
    """Their titles said `22.5, others 22.5` of a rank that is late by 360 ms in one step of five."""
    picture = ViewState(rare_input(), LOOKS["ascii"])
    detail = make_detail(Made(ranks=64, per_node=8), 33, np.random.default_rng(0))
    drawn = rank_plots(picture, detail, picture.snapshot.findings)
    titles = {key: text_of(drawn.plot(COURSES[key], 80, 8))[0] for key in ("input", "work", "forward")}
    assert [key for key, title in titles.items() if re.search(r", others [\d.]+, \+361 1/5 ", title)] == [
        "input",
        "work",
    ]
    assert re.search(r" [\d.]+, \+361 1/5 ", text_of(drawn.plot(COURSES["input"], 34, 8))[0])
    calm = rank_plots(picture, detail, [replace(each, cleared_at_step=900) for each in picture.snapshot.findings])
    assert "1/5" not in text_of(calm.plot(COURSES["input"], 80, 8))[0]


def test_of_what_is_late_now_and_then_the_difference_is_marked_and_the_median_is_not() -> None:
    """The median of the blamed phase was orange although it is that of the others."""
    made, look = rare_input(), LOOKS["colour"]
    alone = peer_lines(made, 33, 60, 30, look, made.findings)
    beside = marked_lines(made, (33, 34), 100, 40, look, made.findings)
    for lines, expected in ((alone, ["+361 1/5", look.glyphs.mark]), (beside, ["1/5", look.glyphs.mark])):
        (row,) = [line for line in lines if line[0].text.strip() == "input ms"]
        marked = [segment.text.strip() for segment in row if segment.style == look.accent and segment.text.strip()]
        assert sorted(marked) == expected
