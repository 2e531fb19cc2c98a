"""The heat-map: fixed stops that mean the same whatever else is on the screen, full width, and a cursor."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from ddpmon.run.medians import peers
from ddpmon.snapshot import Finding, Heat, Metric
from ddpmon.tui.draw.bands import FRAME, GUTTER, bands_of, named_ranks, share_out
from ddpmon.tui.draw.grid import LEVELS, METRICS, MISSING, STOPS, quantise
from ddpmon.tui.draw.heat import heat_lines
from ddpmon.tui.draw.heat_layout import Cursor, shown_heat
from ddpmon.tui.theme import make_look
from ddpmon.tui.view_state import ViewState
from tests.tui.made_runs import HANG, Made, snapshot
from tests.tui.test_drawing import LOOKS, text_of

COLOUR, ASCII = LOOKS["colour"], LOOKS["ascii"]


def heat_of(work: np.ndarray, transfer_ms: float = 0.0) -> Heat:
    """The heat of a table of work [ranks, steps]."""
    work = work.astype(np.float32)
    base = np.nanmedian(work, axis=0) + np.float32(transfer_ms)
    return Heat(np.arange(work.shape[1]), peers(work).lateness(work), base.astype(np.float32))


def alone(ranks: int) -> np.ndarray:
    return np.arange(ranks)


def test_a_stragglers_cell_has_the_same_colour_whatever_else_happens() -> None:
    """The scale of the map before this one followed the 98th percentile (review of the screen, B2)."""
    rng = np.random.default_rng(0)
    calm = (470 * rng.normal(1, 0.005, (64, 200))).astype(np.float32)
    calm[42, 100:] += 141
    troubled = calm.copy()
    troubled[21] += 4_000
    troubled[12, ::5] += 470
    troubled[40:42] += 94
    bands = share_out(alone(64), (), 64, halves=False)
    rows = [quantise(heat_of(work), 200, bands).levels[42] for work in (calm, troubled)]
    assert set(rows[0][100:].tolist()) == {3}, "30 % of a step lies between the stops 20 and 50"
    assert rows[0].tolist() == rows[1].tolist()


def test_each_stop_begins_a_level() -> None:
    work = np.full((8, 6), 100.0)
    work[3] += (0.0, *(stop + 0.5 for stop in STOPS))
    grid = quantise(heat_of(work), 6, share_out(alone(8), (), 8, halves=False))
    assert grid.levels[3].tolist() == list(range(LEVELS))
    assert not np.delete(grid.levels, 3, axis=0).any()


def test_percent_is_of_the_step_and_not_of_its_work() -> None:
    work = np.full((4, 10), 20.0)
    work[1] += 10
    grid = quantise(heat_of(work, transfer_ms=180.0), 10, share_out(alone(4), (), 4, halves=False))
    assert set(grid.levels[1].tolist()) == {1}, "10 ms are 5 % of a step of 200 ms, of which 180 ms are transfer"


@pytest.mark.parametrize("steps", [1, 2, 7, 75, 111, 112, 113, 150, 153, 290, 512])
def test_the_map_fills_its_width_at_every_number_of_steps(steps: int) -> None:
    made = replace(snapshot(Made()), heat=heat_of(np.full((8, steps), 100.0)))
    for look in (COLOUR, ASCII):
        lines = text_of(heat_lines(ViewState(made, look), 120, 10))
        assert all(len(line[GUTTER:].rstrip()) == 120 - GUTTER - 1 for line in lines[1:9])


@pytest.mark.parametrize("steps", [153, 200, 290, 512, 600])
def test_all_steps_are_in_sight_whatever_the_first_one_is(steps: int) -> None:
    for first in (0, 7):
        heat = heat_of(np.full((2, steps), 1.0))
        heat = replace(heat, step=heat.step + first)
        grid = quantise(heat, 152, share_out(alone(2), (), 2, halves=False))
        assert int(grid.at[0]) == 0
        assert int(grid.at[-1]) + grid.stride >= steps


def test_the_axis_ends_with_the_newest_step() -> None:
    made = replace(snapshot(Made(step=1204)), heat=heat_of(np.full((8, 400), 100.0)))
    lines = text_of(heat_lines(ViewState(made, ASCII), 80, 10))
    assert "worst of 6 steps" in lines[0]
    assert lines[9].split() == ["step", "0", "399"]


def test_of_several_ranks_a_cell_is_not_calm_where_the_late_one_is_not_known() -> None:
    made = snapshot(Made(ranks=32, per_node=4, straggler=5))
    heat = heat_of(np.full((32, 40), 100.0))
    heat.values[5] = 30.0
    heat.values[5, 20:] = np.nan
    heat.values[6, 30:] = 20.0
    for findings, levels in ((made.findings, [3, MISSING, 3]), ((), [3, 0, 3])):
        shown = ViewState(replace(made, heat=heat, findings=findings), COLOUR)
        bands = bands_of(shown, 6)
        assert bands is not None
        assert bands.unit == "host"
        grid = quantise(heat, 40, bands, named_ranks(bands, shown))
        row = next(band for band in range(len(bands.starts)) if 5 in bands.ranks(band))
        assert grid.levels[row][[10, 25, 35]].tolist() == levels
        assert not np.delete(grid.levels, row, axis=0).any()
        told = text_of(heat_lines(shown, 120, 6, cursor=Cursor(5, 25)))[0]
        assert ("not known" in told) is bool(findings)


def test_a_straggler_glows_from_its_onset_on_and_the_rest_is_calm() -> None:
    lines = text_of(heat_lines(ViewState(snapshot(Made(straggler=5, onset=812, step=1004)), ASCII), 120, 10))
    rows = [line[GUTTER:] for line in lines[1:9]]
    assert lines[6].startswith("    5!")
    onset = lines[9].index("! 812") - GUTTER
    assert set(rows[5][:onset]) == {"."}
    assert set(rows[5][onset + 1 :].rstrip()) == {"+"}
    assert {char for row in rows[:5] + rows[6:] for char in row.rstrip()} == {"."}


def test_the_legend_has_numbers_and_survives_80_columns() -> None:
    for width in (80, 120, 300):
        for ranks in (8, 64, 1024):
            title = text_of(heat_lines(ViewState(snapshot(Made(ranks=ranks, per_node=8)), COLOUR), width, 12))[0]
            assert re.search(r"<5 .5 .10 .20 .50 .100 % of base( step)? ", title), (width, ranks)
            assert title.startswith("─ lateness")


def test_greys_tell_the_levels_by_shape_too() -> None:
    mono = make_look(theme="ddpmon-mono")
    title, *rows = text_of(heat_lines(ViewState(snapshot(Made(ranks=8, straggler=5)), mono), 120, 12))
    assert "·<5 :5 ░10 ▒20 ▓50 █100 " in title
    assert "▒" in "".join(rows)
    assert not set("".join(rows)) & set("▀▄▆")


def test_an_onset_that_is_a_bound_is_not_drawn_as_an_onset() -> None:
    made = snapshot(Made(straggler=5, onset=812))
    bound = replace(made, findings=(replace(made.findings[0], since_is_bound=True),))
    assert "812" in text_of(heat_lines(ViewState(made, ASCII), 120, 10))[9]
    assert "812" not in text_of(heat_lines(ViewState(bound, ASCII), 120, 10))[9]


def test_an_onset_older_than_the_map_is_told_at_its_edge() -> None:
    lines = text_of(heat_lines(ViewState(snapshot(Made(straggler=5, onset=100, step=1204)), ASCII), 120, 10))
    assert re.match(r"step \d+ . ! since 100 ", lines[9].strip())


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("onset", [2, 40, 100, 160, 203])
def test_the_sign_of_an_onset_stands_below_the_first_late_step(onset: int, width: int) -> None:
    lines = text_of(heat_lines(ViewState(snapshot(Made(straggler=5, onset=onset, step=204)), ASCII), width, 10))
    late = next(line for line in lines if line.lstrip().startswith("5!"))
    begins = re.search(r"[^ .]", late[GUTTER:])
    assert begins is not None, late
    assert abs(lines[9].index("!") - GUTTER - begins.start()) <= 1, lines
    assert lines[9].rstrip().endswith("204" if onset < 200 else "!")


@pytest.mark.parametrize("width", [80, 120, 240])
@pytest.mark.parametrize(("onset", "ends"), [(204, "! 204"), (205, "204"), (260, "204")])
def test_the_axis_ends_with_its_last_column_and_has_no_mark_of_a_later_step(onset: int, ends: str, width: int) -> None:
    """A hang at step 60 was marked behind the last column, whose step was 59."""
    made = snapshot(Made(straggler=5, onset=100, step=204))
    hang = replace(made.findings[0], since_step=onset)
    _title, row, *_, axis = text_of(heat_lines(ViewState(replace(made, findings=(hang,)), ASCII), width, 10))
    assert axis.rstrip().endswith((ends, ends.replace("! 204", "204 !")))
    assert len(axis.rstrip()) == len(row.rstrip())
    assert ("!" in axis) == (onset == 204)


@pytest.mark.parametrize(("ranks", "late", "label"), [(1024, 341, "n42"), (64, 42, "n5"), (24, 19, "19")])
def test_a_row_that_is_marked_is_called_as_the_finding_says(ranks: int, late: int, label: str) -> None:
    made = Made(ranks=ranks, straggler=late, per_node=8 if ranks > 24 else 24)
    lines = text_of(heat_lines(ViewState(snapshot(made), ASCII), 120, 12))
    marked = [line for line in lines if line.strip() and line.split()[0].endswith("!")]
    assert [line.split("!")[0].strip() for line in marked[:1]] == [label], lines


@pytest.mark.parametrize(("finding", "sign"), [(HANG, "x"), (replace(HANG, severity="warning"), "!")])
def test_a_row_has_the_sign_of_what_a_finding_says_of_it(finding: Finding, sign: str) -> None:
    lines = text_of(heat_lines(ViewState(replace(snapshot(Made()), findings=(finding,)), ASCII), 120, 12))
    (row,) = [line for line in lines if line[: GUTTER - 1].rstrip()[-2:-1] == "2"]
    assert row.split()[0] == f"2{sign}"


def test_what_was_not_measured_is_a_gap() -> None:
    work = np.full((3, 10), 50.0)
    work[1, 4:] = np.nan
    grid = quantise(heat_of(work), 10, share_out(alone(3), (), 4, halves=False))
    assert grid.levels[1].tolist() == [0] * 4 + [MISSING] * 6
    assert grid.levels[0].tolist() == [0] * 10


def test_a_group_of_ranks_shows_its_worst_and_noise_stays_calm() -> None:
    rng = np.random.default_rng(1)
    work = 100 * rng.normal(1, 0.01, (4096, 50))
    work[1234, 20:] = 250
    grid = quantise(heat_of(work), 50, share_out(alone(4096), (), 20, halves=True))
    row = 1234 // grid_size(4096)
    assert grid.levels[row, 20:].tolist() == [LEVELS - 1] * 30
    assert (np.delete(grid.levels, row, axis=0) <= 1).all()


def test_a_table_that_lies_in_memory_by_step_is_folded_as_one_that_lies_by_rank() -> None:
    work = 100 * np.random.default_rng(2).normal(1, 0.3, (64, 50))
    heat = heat_of(work)
    scattered = tuple(f"node{rank % 16}" for rank in range(64))
    for hosts in ((), scattered):
        bands = share_out(alone(64), hosts, 4, halves=False)
        by_rank, by_step = (
            quantise(replace(heat, values=np.array(heat.values, order=order)), 50, bands).levels for order in ("C", "F")
        )
        assert len(by_rank) < 16
        worst = quantise(heat, 50, share_out(alone(64), (), 64, halves=False)).levels
        assert by_rank[0].tolist() == worst[bands.ranks(0)].max(axis=0).tolist()
        assert np.array_equal(by_rank, by_step)


def grid_size(ranks: int) -> int:
    size = share_out(alone(ranks), (), 20, halves=True).size
    assert size % 8 == 0
    return size


def test_where_ranks_do_not_fit_each_row_is_a_host_and_shows_its_worst() -> None:
    made = ViewState(snapshot(Made(ranks=64, per_node=8, straggler=43, onset=100)), ASCII)
    lines = text_of(heat_lines(made, 120, 12))
    assert "lateness, host x step, the worst rank of each" in lines[0]
    assert [line[:GUTTER].split() for line in lines[1:9]] == [["n5!"] if n == 5 else [f"n{n}"] for n in range(8)]
    many = text_of(heat_lines(ViewState(snapshot(Made(ranks=1024, per_node=8)), ASCII), 120, 12))
    assert "lateness, host x step, the worst of 13 hosts and 6 steps a cell" in many[0]
    zoomed = text_of(heat_lines(made, 120, 12, wanted="40-47"))
    assert "lateness, rank x step, the worst of 6 steps a cell, 8 of 64 ranks" in zoomed[0]
    assert [line[:5].strip() for line in zoomed[1:9]] == [str(rank) for rank in range(40, 48)]


def test_hosts_whose_ranks_lie_apart_are_kept_together() -> None:
    hosts = [f"n{rank % 4}" for rank in range(64)]
    bands = share_out(np.arange(64), hosts, 10, halves=False)
    assert (bands.unit, bands.labels) == ("host", ("n0", "n1", "n2", "n3"))
    assert bands.ranks(2).tolist() == list(range(2, 64, 4))


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("node011{}", ["n110", "n111", "n112"]),
        ("10.0.0.1{}", [".10", ".11", ".12"]),
        ("gpu0{}-a", ["g0", "g1", "g2"]),
        ("worker1234{}", ["~2340", "~2341", "~2342"]),
    ],
)
def test_a_host_is_named_by_its_whole_number_or_by_the_end_of_its_name(name: str, labels: list[str]) -> None:
    hosts = tuple(name.format(number) for number in range(8))
    made = ViewState(snapshot(Made(ranks=64, per_node=8, hosts=hosts)), ASCII)
    shown = [line[:GUTTER].split()[0] for line in text_of(heat_lines(made, 120, 12))[1:4]]
    assert shown == labels


@pytest.mark.parametrize(
    ("hosts", "labels"),
    [
        (("gpu1.rack1.x", "gpu1.rack2.x"), ["r1", "r2"]),
        (("gpu1.rack1.x", "gpu2.rack1.x", "gpu1.rack2.x", "gpu2.rack2.x"), ["g1r1", "g2r1", "g1r2", "g2r2"]),
        (("node5", "node05"), ["node5", "~de05"]),
        (("job-7f-ab.cluster", "job-8-c1.cluster"), ["7f-ab", "8-c1"]),
        (("w1-7777", "w2-7777", "w12-7777"), ["w1", "w2", "w12"]),
        (("ip-10-12-134", "ip-10-112-134", "ip-10-12-34"), ["12-134", "~2-134", "12-34"]),
    ],
)
def test_hosts_that_are_called_alike_up_to_a_point_have_labels_of_their_own(
    hosts: tuple[str, ...], labels: list[str]
) -> None:
    made = ViewState(snapshot(Made(ranks=4 * len(hosts), per_node=4, hosts=hosts)), ASCII)
    lines = text_of(heat_lines(made, 120, len(hosts) + FRAME))
    rows = lines[1 : 1 + len(hosts)]
    assert [row.split()[0] for row in rows] == labels
    assert {len(row.rstrip()) for row in rows} == {119}, "the map ends where the others do"
    edge = max(GUTTER - 2, *map(len, labels))
    assert all(row[:edge].strip() in labels and row[edge : edge + 2].isspace() for row in rows)


@pytest.mark.parametrize("metric", list(METRICS))
def test_every_metric_is_drawn_with_its_name_and_legend(metric: Metric) -> None:
    made = snapshot(Made(ranks=8))
    assert made.heat is not None
    values = np.full_like(made.heat.values, 100.0)
    values[3] = 20.0 if metric in ("gpu", "power", "clock") else 400.0
    shown = ViewState(replace(made, chosen_heat=replace(made.heat, values=values, metric=metric)), ASCII)
    lines = text_of(heat_lines(shown, 120, 10))
    assert lines[0].startswith(f"- {METRICS[metric].name}, rank x step")
    assert METRICS[metric].of[0] in lines[0]
    rows = [set(line[GUTTER:].rstrip()) for line in lines[1:9]]
    assert rows[3] != rows[2], "the rank that differs is seen"


def test_one_rank_has_nobody_to_be_late_against() -> None:
    lines = text_of(heat_lines(ViewState(snapshot(Made(ranks=1)), ASCII), 80, 6))
    assert len(lines) == 6


def test_hosts_fill_the_lines_that_there_are() -> None:
    """Bands of two hosts or of eight, but never of five, left half of the lines empty."""
    hosts = [f"node{number:04}" for number in range(128) for _ in range(8)]
    bands = share_out(np.arange(1024), hosts, 13, halves=True)
    assert (bands.size, len(bands.starts), bands.halves) == (5, 26, True)
    assert bands.labels[:3] == ("n0-n4", "n5-n9", "n10-n14")


def test_what_is_not_known_is_parted_from_what_is() -> None:
    made = snapshot(Made(straggler=5))
    assert made.heat is not None
    for known in (slice(0, 200), slice(400, 600)):
        values = np.full_like(made.heat.values, np.nan)
        values[:, known] = made.heat.values[:, known]
        heat = replace(made.heat, values=values)
        (row, *_) = [
            line
            for line in text_of(heat_lines(ViewState(replace(made, heat=heat), make_look()), 160, 12))
            if "not known" in line
        ]
        said = row[7:].rstrip()
        assert (
            "▆ not known in these steps ╌" in said
            if known.start == 0
            else said.startswith("not known in these steps ╌")
        )
        assert "╌▆" not in said
        assert known.start == 0 or "╌ ▆" in said


@pytest.mark.parametrize(("known", "words"), [(40, "not known in these steps"), (58, "▆ not known ╌"), (72, "")])
def test_what_is_not_known_is_said_in_as_many_words_as_have_room(known: int, words: str) -> None:
    made = snapshot(Made())
    heat = heat_of(np.full((8, 75), 100.0))
    heat.values[3, known:] = np.nan
    row = text_of(heat_lines(ViewState(replace(made, heat=heat), COLOUR), 82, 10))[4]
    assert (words or " ") in row[known:]
    assert ("not known" in row) is bool(words)


def test_of_two_rows_in_a_line_of_which_nothing_is_known_that_is_said() -> None:
    made = snapshot(Made(ranks=16))
    heat = heat_of(np.full((16, 75), 100.0))
    heat.values[4:6] = np.nan
    heat.values[9] = np.nan
    lines = text_of(heat_lines(ViewState(replace(made, heat=heat), COLOUR), 82, 10))
    assert ["not known in these steps ╌" in line for line in lines].count(True) == 1
    assert any("▀" in line for line in lines), "one of two"


def test_the_cursor_has_the_time_of_day_also_where_nothing_is_known() -> None:
    made = snapshot(Made())
    assert made.heat is not None
    assert made.run is not None
    values = made.heat.values.copy()
    values[3] = np.nan
    run = replace(made.run, step_age_s=0.2)
    shown = ViewState(replace(made, run=run, heat=replace(made.heat, values=values)), COLOUR)
    titles = [text_of(heat_lines(shown, 120, 12, cursor=Cursor(rank)))[0] for rank in (2, 3)]
    assert all(re.search(r" · \d\d:\d\d:\d\d · ", each) for each in titles)
    assert "· not known ─" in titles[1]


def test_the_colour_of_a_cell_is_the_same_at_every_zoom() -> None:
    work = np.full((4, 300), 100.0, np.float32)
    work[:, 200:] = 150.0
    made = snapshot(Made(ranks=4))
    shown = replace(made, chosen_heat=replace(heat_of(work), values=work, metric="work"))
    bands = share_out(alone(4), (), 4, halves=False)
    levels = []
    for zoom in (0, 100):
        heat = shown_heat(ViewState(shown, COLOUR, zoom=zoom))
        assert heat is not None
        levels.append(quantise(heat, 100, bands).levels[0, -1])
    assert levels == [4, 4], "50 % above the median of all steps on record"
