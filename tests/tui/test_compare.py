"""Ranks that are compared: with each other side by side, and one with all others."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from ddpmon.machine import ProcessFigures
from ddpmon.report.comparison import excesses
from ddpmon.report.peers import compare
from ddpmon.run.model import Run
from ddpmon.schema import PHASES
from ddpmon.snapshot import Finding, Link, Snapshot
from ddpmon.tui.draw.against import against_lines
from ddpmon.tui.draw.courses import METRICS, rank_plots
from ddpmon.tui.draw.peer_table import marked_lines, peer_lines, table_size
from ddpmon.tui.view_state import ViewState
from ddpmon.tui.view_tables import compare_csv, rank_csv
from ddpmon.watcher.picture import Moment, take_picture
from tests.made_frames import MadeJob, healthy_phases, rank_frame, run_info
from tests.tui.made_runs import NOTES, Made, snapshot
from tests.tui.test_drawing import LOOKS, text_of
from tests.tui.watched import Fixed, Watched, watch

ASCII = LOOKS["ascii"]


def test_marked_ranks_stand_side_by_side_with_their_differences() -> None:
    made = snapshot(Made(straggler=5, gpu=True, extra_ms=50.0))
    lines = text_of(marked_lines(made, [2, 5], 100, 24, ASCII))
    assert lines[0].split()[-6:] == ["rank", "2", "rank", "5", "diff", "others"]
    row = next(line for line in lines if line.startswith(" work ms "))
    assert lines[0].index("diff") + len("diff") == row.index("+") + len(row.split()[5]), "over the differences"
    assert lines[1].startswith(" rank 5 - rank 2 ")
    work = next(line for line in lines if line.startswith(" work ms ")).split()
    two, five, more = float(work[2]), float(work[3]), float(work[5])
    assert work[4] == "!", "the sign stands behind the value"
    assert five - two == pytest.approx(more, abs=1.1)
    assert more == pytest.approx(50, abs=3)


def test_three_ranks_have_their_differences_in_80_columns() -> None:
    lines = text_of(marked_lines(snapshot(Made(straggler=5, gpu=True, extra_ms=50.0)), [2, 3, 5], 80, 24, ASCII))
    assert lines[1].startswith(" each - rank 2 ")
    assert float(next(line for line in lines if line.startswith(" work ms ")).split()[-2]) == pytest.approx(50, abs=3)


@pytest.mark.parametrize("ranks", [[2, 5], [2, 3, 5, 6]])
@pytest.mark.parametrize("rhythm", [False, True])
def test_compared_ranks_have_columns_as_wide_as_their_figures(ranks: list[int], rhythm: bool) -> None:
    """Two ranks were 24 columns apart, with room for `+362 1/5`, which was by how much one exceeds all others."""
    made = snapshot(Made(straggler=5, gpu=True, extra_ms=50.0))
    evidence = {"excess_ms": 361.0, **({"one_step_in": 5.0} if rhythm else {})}
    found = [replace(made.findings[0], evidence=evidence)]
    wide, high = table_size(made, ranks, found)
    lines = text_of(marked_lines(made, ranks, wide, high, ASCII, found))
    apart = np.diff([name.end() for name in re.finditer(r"rank \d", lines[0])])
    assert set(apart.tolist()) == {19 if rhythm else 17}
    (work,) = (line for line in lines if line.startswith(" work ms "))
    assert ("+361" in work, " 1/5" in work) == (False, rhythm), "the difference is that of the two ranks"
    assert any("since step 812" in line and "input" in line for line in lines)
    assert not any("more figure" in line for line in lines)


def test_the_plots_beside_compared_ranks_begin_and_end_with_their_heat_map() -> None:
    """They began one column to the right of it."""
    made = snapshot(Made(ranks=16, per_node=8, gpu=True, step=300))

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("m", "j", "m", "c")
        await watched.until_shown(" - rank ")
        upper = watched.text().split("─ lateness of rank")[0].split("\n")
        axes = [line for line in upper if "step 0" in line]
        assert len(axes) >= 2, "of the map and of a plot"
        assert {(line.index("step 0"), len(line.rstrip())) for line in axes} == {
            (axes[0].index("step 0"), len(axes[0].rstrip()))
        }

    for size in ((120, 40), (160, 50)):
        watch(Fixed(made), act, size)


def test_the_others_are_those_that_are_compared_with() -> None:
    """Lost ranks were counted among the others, and all ranks where 256 stand for them."""
    few, many = snapshot(Made(ranks=64, per_node=8, lost=(3, 9))), snapshot(Made(ranks=4096, per_node=8))
    for made, others, said in ((few, 60, " 60 ranks"), (many, 256, " 256 of 4,094")):
        lines = text_of(marked_lines(made, [2, 5], 100, 24, ASCII))
        assert lines[1].rstrip().endswith(said)
        assert compare(made, [2, 5]).others == others
    narrow = text_of(marked_lines(many, [2, 5], 40, 24, ASCII))
    assert narrow[1].rstrip().endswith(" 256/4,094")
    assert len({len(line.rstrip()) for line in (*narrow[:2], *narrow[2:6])}) == 1, "the figures end below their heading"


def test_a_rank_that_has_fallen_silent_is_none_of_the_others() -> None:
    """Beside a GPU at 94 % the others had 47.5 %: the median of one that works and of one whose rank was gone."""
    made = snapshot(Made(ranks=4, gpu=True))
    assert made.ranks is not None
    assert made.ranks.gpu[2] is not None
    gpu = (*made.ranks.gpu[:2], structs.replace(made.ranks.gpu[2], utilization_pct=0.0), made.ranks.gpu[3])
    silent = np.where(np.arange(4) == 2, 9.4, 0.4)
    for state, age_s, others in (("running", silent, 2), ("finished", silent, 3), ("running", np.full(4, 60.0), 3)):
        ranks = replace(made.ranks, gpu=gpu, age_s=age_s, state=("running", "running", state, "running"))
        found = compare(replace(made, ranks=ranks), [0])
        assert found.others == others, (state, age_s)
        busy = next(row for row in found.rows if (row.quantity.name, row.quantity.unit) == ("GPU", "%"))
        known = [each.utilization_pct for rank, each in enumerate(gpu) if each and rank and (rank != 2 or others == 3)]
        assert busy.others == np.median(np.array(known, np.float64))


@pytest.mark.parametrize("width", [60, 80, 160])
def test_a_compared_rank_that_restarted_alone_has_its_sign_and_a_line(width: int) -> None:
    note = Finding("monitor_degraded", "info", "rank 5 has restarted", (5,), evidence={"restarted_alone": 1})
    lines = text_of(marked_lines(snapshot(Made()), [0, 5], width, 24, ASCII, [note]))
    assert "rank 5 r" in lines[0]
    assert "rank 0 r" not in lines[0]
    assert [line.split() for line in lines if "alone" in line] == [["r", "rank", "5:", "restarted", "alone"]]


def test_what_of_a_comparison_has_no_room_is_said() -> None:
    made = snapshot(Made(ranks=16, per_node=8, gpu=True))
    whole = text_of(marked_lines(made, [1, 2, 3, 4], 160, 40, ASCII))
    assert not any("more " in line for line in whole)
    small = text_of(marked_lines(made, [1, 2, 3, 4], 40, 10, ASCII))
    assert [len(line) for line in small] == [40] * 10
    said = " ".join(line.strip() for line in small[-2:])
    assert "2 more ranks: 16 more columns" in said
    figures = sum(bool(line.strip()) for line in whole) - 2
    assert f"{figures - 6} more figures" in said, "six are shown"
    assert small[0].split()[-5:] == ["rank", "1", "rank", "2", "others"]
    grown = text_of(marked_lines(made, [1, 2, 3, 4], 56, figures + 2, ASCII))
    assert not any("more " in line for line in grown), "so many are enough"


def test_a_comparison_without_room_scrolls_and_says_from_which_width_on_it_has_differences() -> None:
    made = snapshot(Made(ranks=16, per_node=8, gpu=True))
    names = {row.quantity.name for row in compare(made, [1, 2, 3, 4]).rows}

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("m", "j", "m", "j", "m", "j", "m", "c")
        await watched.until_shown("more lines below: j and k scroll")
        least = int(watched.text().split(" diff: ")[1].split(" columns")[0])
        assert "more figure" not in watched.text()
        seen = watched.text()
        for _ in range(20):
            await watched.press("j")
            seen += watched.text()
        assert [name for name in names if name not in seen] == []
        await watched.pilot.resize_terminal(least - 1, 50)
        await watched.until(lambda: {len(line) for line in watched.text().split("\n")} == {least - 1})
        await watched.until_shown(f"diff: {least} columns")
        await watched.pilot.resize_terminal(least, 50)
        await watched.until_shown(" - rank ")

    watch(Fixed(made), act, (80, 18))


def test_findings_leave_figures_in_a_small_comparison() -> None:
    found = [replace(each, ranks=(1, 2)) for each in (*NOTES, *NOTES) if each.severity != "info"]
    made = snapshot(Made(ranks=16, per_node=8, gpu=True))
    for height in (6, 8, 12):
        lines = text_of(marked_lines(made, [1, 2, 3, 4], 60, height, ASCII, found))
        assert len(lines) == height
        figures = [
            line for line in lines[2:] if line.lstrip()[:1].isalpha() and "more" not in line and "rank" not in line
        ]
        assert len(figures) >= 2, lines
        assert any("more figure" in line for line in lines), lines


def test_4096_ranks_are_compared_with_some_of_them() -> None:
    made = snapshot(Made(ranks=4096, per_node=8, straggler=7, gpu=True))
    found = compare(made, [7])
    assert found.others == 256
    rows = {row.quantity.name: row for row in found.rows}
    assert rows["input"].is_worse()
    assert rows["input"].difference() == pytest.approx(41, abs=2)


def test_what_is_shown_as_no_difference_is_not_marked() -> None:
    """A run-queue wait of 0.00 % had a mark against one of 0.00 %, `diff` ±0; 2 % of the time do not matter either."""
    made = snapshot(Made())
    assert made.ranks is not None
    little, much = "2.31     0.00    +2.31", "5.31     0.00    +5.31 ▲"
    for own, said in ((0.003, "0.00     0.00       ±0"), (2.31, little), (5.31, much)):
        waits = np.where(np.arange(8) == 5, own, 0.001)
        ranks = replace(made.ranks, figures={**made.ranks.figures, "runqueue_pct": waits})
        lines = text_of(peer_lines(replace(made, ranks=ranks), 5, 60, 30, LOOKS["colour"]))
        assert [line.split("%")[1].strip() for line in lines if "run-queue wait" in line] == [said]


def test_a_phase_that_takes_a_little_longer_on_a_rank_that_is_not_late_is_not_marked() -> None:
    """An optimizer of 13.0 ms beside one of 10.7 ms was marked, 0.8 % of the base step."""
    made = snapshot(Made())
    assert made.ranks is not None
    for more, is_marked in ((1.4, False), (7.5, True)):  # of a base step of about 130 ms
        optimizer = made.ranks.optimizer_ms.copy()
        optimizer[5] += more
        shown = replace(made, ranks=replace(made.ranks, optimizer_ms=optimizer))
        (row,) = (line for line in text_of(peer_lines(shown, 5, 60, 30, LOOKS["colour"])) if " optimizer" in line)
        assert ("▲" in row) is is_marked, row


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_a_comparison_says_what_was_found_in_80_columns(ranks: int) -> None:
    evidence = {"excess_ms": 361.6, "one_step_in": 5.0}
    found = Finding(
        "intermittent_straggler", "warning", "rank 5 (node1) is late by 362 ms in one step of 5, mostly in input "
        "(since step 812). Costs 22 % of the run's time.", (5,), ("node1",), "input", None, 812, cost_pct=22.0,
        evidence=evidence,
    )  # fmt: skip
    other = replace(found, ranks=(7,))
    lines = text_of(marked_lines(snapshot(Made()), [5, 0, 1, 2][:ranks], 80, 12, ASCII, [other, found]))
    assert [line for line in lines if "in one step of 5" in line] == [lines[-2]], "and none of a rank that is not there"
    for fact in ("rank 5: late +362 ms", "input", "since step 812", "22 %"):
        assert fact in lines[-2]
    assert " more figure" in lines[-1]


def test_the_others_of_many_ranks_are_of_all_places_in_their_hosts() -> None:
    made = snapshot(Made(ranks=1024, per_node=8, gpu=True))
    assert made.ranks is not None
    watts = np.array([600.0 + 10 * (rank % 8) for rank in range(1024)])
    gpus = enumerate(made.ranks.gpu)
    gpu = tuple(None if each is None else structs.replace(each, power_w=watts[rank]) for rank, each in gpus)
    made = replace(made, ranks=replace(made.ranks, gpu=gpu))
    (power,) = (row for row in compare(made, [341, 0]).rows if row.quantity.name == "GPU power")
    assert power.others == pytest.approx(np.median(watts), abs=3.0)


def test_ranks_that_cannot_be_compared_are_not_among_the_others() -> None:
    """Two of four ranks had restarted, and a rank late by 136 ms was said to work 47 ms longer than the others."""
    made = snapshot(Made(ranks=8))
    assert made.ranks is not None
    late, work = made.ranks.lateness_ms.copy(), made.ranks.work_ms.copy()
    late[3:], work[3:] = np.nan, work[3:] + 90.0
    some = replace(made, ranks=replace(made.ranks, lateness_ms=late, work_ms=work))
    (row,) = (row for row in compare(some, [0]).rows if row.quantity.name == "work")
    assert row.others == pytest.approx(np.median(work[1:3]))
    none = replace(made, ranks=replace(made.ranks, lateness_ms=np.full(8, np.nan)))
    assert compare(none, [0]).others == 7


def half_away() -> Snapshot:
    """Four ranks, of which ranks 2 and 3 have restarted alone: their steps are longer, and their lateness not known."""
    made = snapshot(Made(ranks=4, gpu=True))
    assert made.ranks is not None
    away = np.array([0.0, 0.0, 1.0, 1.0])
    longer: dict[str, Any] = {f"{phase}_ms": made.ranks.column(f"{phase}_ms") + 90.0 * away for phase in PHASES}
    late = np.where(away > 0, np.nan, made.ranks.lateness_ms)
    work = made.ranks.work_ms + 90.0 * len(PHASES) * away
    return replace(made, ranks=replace(made.ranks, **longer, lateness_ms=late, work_ms=work))


def test_the_others_are_the_same_ranks_in_all_figures_of_a_screen() -> None:
    """The phases of the others were those of ranks that had restarted too, and added up to more than their work."""
    made = half_away()
    assert made.ranks is not None
    overview = text_of(against_lines(ViewState(made, ASCII), 1, 160, 20))
    view = text_of(peer_lines(made, 1, 60, 30, ASCII))
    for phase in PHASES:
        (line,) = (line for line in overview if line.split()[1:2] == [phase])
        assert float(line.split()[-2]) == pytest.approx(made.ranks.column(f"{phase}_ms")[0], abs=0.6)
        (row,) = (line for line in view if line.startswith(f" {phase} ms "))
        assert float(row.split()[3]) == pytest.approx(float(line.split()[-2]), abs=0.6)
    excess = excesses(made, made.ranks, "forward_ms")
    assert excess[1] == pytest.approx(made.ranks.forward_ms[1] - made.ranks.forward_ms[0])
    assert np.isnan(excess[2:]).all()


def test_where_no_other_rank_can_be_compared_there_are_no_others() -> None:
    """With the two ranks that can be compared the others were just the two that cannot."""
    made = half_away()
    assert compare(made, [0, 1]).others == 0
    assert all(np.isnan(row.others) for row in compare(made, [0, 1]).rows)
    lines = text_of(marked_lines(made, [0, 1], 100, 24, ASCII))
    assert lines[1].split()[-1] == "none"
    (work,) = (line.split() for line in lines if line.startswith(" work ms "))
    assert work[-1] == "-"
    assert work[-2] not in ("-", ""), "they are compared with each other"


def test_the_machine_of_a_rank_is_compared_with_the_same_ranks_in_table_bars_and_plot() -> None:
    """Under "0.2, others 24.0" no band was drawn: it was that of the only rank that no finding named, at 0.2 too."""
    run, job = Run(run_info(4)), MadeJob(healthy_phases(4, 40))
    for rank, wait in enumerate((24.0, 25.0, 0.25, 0.5)):
        for seq in (1, 2):
            process = ProcessFigures(cpu_pct=100.0 + wait, runqueue_pct=wait)
            run.add_rank(rank_frame(rank, seq, job.columns(rank, 0, 20 * seq), process=process), float(seq))
    run.settle(2.0)
    noted = Finding("cpu_contention", "info", "ranks 0, 1 wait for a CPU", (0, 1), ("node0",))
    moment = Moment(2.0, 2.0, 1e9, Link("live"), None, "")
    for findings, others, band in (((noted,), "0.50", (0.5, 0.5)), ((), "24.0", (2.85, 24.9))):
        made = take_picture(run, moment, findings, (), 2)
        assert made.detail is not None
        picture = ViewState(made, ASCII)
        (row,) = (line for line in text_of(peer_lines(made, 2, 60, 30, ASCII)) if line.startswith(" run-queue"))
        assert row.split()[4] == others
        (metric,) = (each for each in METRICS if each.key == "runqueue_pct")
        assert f", others {others}" in text_of(rank_plots(picture, made.detail).plot(metric, 80, 8))[0]
        low, middle, high = made.detail.courses["runqueue_pct"].others[:, -1]
        assert (low, high) == pytest.approx(band)
        assert middle == float(others)
        (cpu,) = (line for line in text_of(against_lines(picture, 2, 160, 20)) if line.startswith("  CPU % "))
        assert cpu.split()[-2] == f"{100 + float(others):.0f}"


@pytest.mark.parametrize("rank", [1, 2])
def test_a_rank_that_cannot_be_compared_has_no_differences(rank: int) -> None:
    made = half_away()
    known = rank == 1
    overview = text_of(against_lines(ViewState(made, ASCII), rank, 160, 20))[2:]
    view = text_of(peer_lines(made, rank, 60, 30, ASCII))[1:]
    for lines in (overview, view):
        shown = [line.rstrip(" !") for line in lines if line.strip()]
        assert len(shown) > len(PHASES)
        assert [line.endswith(" -") for line in shown] == [not known] * len(shown), lines
    table = [line.split(",") for line in rank_csv(made, rank).splitlines()[1:]]
    assert [bool(row[5]) for row in table] == [known] * len(table)
    beside = text_of(marked_lines(made, [0, rank], 100, 24, ASCII))
    (work,) = (line for line in beside if line.startswith(" work ms "))
    assert (work.replace("!", "").split()[4] != "-") is known, "own two, the difference or a dash, and the others"
    heads, *rows = (line.split(",") for line in compare_csv(made, [0, rank]).splitlines())
    assert {bool(row[heads.index(f"rank_{rank}_diff")]) for row in rows} == {known}


def test_a_plot_of_the_run_stands_once_beside_and_below_ranks_whose_lateness_is_not_known() -> None:
    """Of ranks that had restarted alone step time and loss were drawn at the right and once more below."""
    made = snapshot(Made(ranks=16, per_node=8, gpu=True))
    assert made.heat is not None
    values = made.heat.values.copy()
    values[:2] = np.nan
    away = replace(made, heat=replace(made.heat, values=values))

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("g", "m", "j", "m", "c")
        await watched.until_shown(" - rank ")
        for name in ("step time, ms", "loss", "samples/s"):
            assert watched.text().count(f"─ {name}") == 1, name

    watch(Fixed(away), act, (200, 60))


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_the_late_one_of_the_compared_ranks_has_its_sign_also_where_no_other_rank_is_left(ranks: int) -> None:
    """Of four ranks that were all compared none had a mark: there were no others that it was late against."""
    made = snapshot(Made(ranks=ranks, straggler=1))
    who = [0, 1, 2, 3][:ranks]
    lines = text_of(marked_lines(made, who, 120, 24, ASCII, made.findings))
    assert re.findall(r"rank (\d) !", lines[0]) == ["1"]
    rows = {line.split()[0]: line for line in lines[2:] if line.strip()}
    assert rows["input"].index("!") == lines[0].index("!"), "on what the finding blames"
    assert all("!" not in rows[name] for name in ("forward", "backward", "optimizer", "other"))
