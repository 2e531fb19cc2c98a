"""Every drawing function at every size: lines exactly as wide as asked, and nothing raises."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace as replace_struct
from rich.cells import cell_len

from ddpmon.report.rank_places import places
from ddpmon.snapshot import JobView, Link, Ranks, Snapshot
from ddpmon.tui.draw.against import against_lines
from ddpmon.tui.draw.columns import SORTS
from ddpmon.tui.draw.detail import detail_lines
from ddpmon.tui.draw.finding_view import evidence_lines, list_lines
from ddpmon.tui.draw.findings import all_findings, finding_lines
from ddpmon.tui.draw.header import header_line, notice_line, waiting_lines
from ddpmon.tui.draw.heat import heat_lines
from ddpmon.tui.draw.help import help_lines
from ddpmon.tui.draw.host_detail import host_page
from ddpmon.tui.draw.host_table import host_table_lines
from ddpmon.tui.draw.key_figures import figures_line
from ddpmon.tui.draw.order import ordered, ordered_hosts
from ddpmon.tui.draw.panel import footer_line
from ddpmon.tui.draw.peer_table import marked_lines
from ddpmon.tui.draw.place_table import place_lines
from ddpmon.tui.draw.run_plots import lateness_plot, plots_beside, plots_stacked
from ddpmon.tui.draw.run_view import run_lines
from ddpmon.tui.draw.table import TableView, table_lines
from ddpmon.tui.draw.timeline_view import bucket_lines, timeline_lines
from ddpmon.tui.draw.too_small import too_small_lines
from ddpmon.tui.draw.verdict_lines import verdict_lines
from ddpmon.tui.lines import Line, fit_all, wrap
from ddpmon.tui.theme import make_look
from ddpmon.tui.view_state import NOTHING_YET, ViewState
from tests.tui.made_runs import HANG, NOTES, STALL, Made, snapshot
from tests.tui.test_views import made_timeline

LOOKS = {
    "colour": make_look(),
    "light": make_look(dark=False),
    "plain": make_look(colour=False),
    "ascii": make_look(ascii_only=True),
}
SIZES = ((40, 12), (57, 17), (80, 24), (120, 34), (160, 50), (300, 80))
RUNS = {
    "one": Made(ranks=1),
    "two": Made(ranks=2, straggler=1),
    "eight": Made(ranks=8, straggler=5, findings=NOTES, gpu=True, focus=5),
    "shared": Made(ranks=16, per_node=8, gpu=True, troubled=(1,), hidden=(0,)),
    "young": Made(ranks=8, step=3, focus=0),
    "64 with a loss": Made(ranks=64, straggler=17, lost=(3, 9), per_node=8, focus=3),
    "1,024": Made(ranks=1024, straggler=517, per_node=8, focus=517),
    "4,096": Made(ranks=4096, straggler=4095, per_node=8, focus=0),
}
SNAPSHOTS: dict[str, Snapshot] = {name: snapshot(made) for name, made in RUNS.items()}


def text_of(lines: list[Line]) -> list[str]:
    return ["".join(segment.text for segment in line) for line in lines]


def table(picture: ViewState, width: int, height: int) -> list[Line]:
    return table_lines(picture, TableView(ordered(picture.snapshot, "worst", False, "")), width, height)


def detail(picture: ViewState, width: int, height: int) -> list[Line]:
    found = picture.snapshot.detail
    return detail_lines(picture, found.rank if found else 0, width, height)


def hosts(picture: ViewState, width: int, height: int) -> list[Line]:
    view = TableView(ordered_hosts(picture.snapshot, "worst", False))
    return host_table_lines(picture, view, width, height, "late" if height > 40 else "power")


def host(picture: ViewState, width: int, height: int) -> list[Line]:
    number = picture.snapshot.nodes[-1].node if picture.snapshot.nodes else 0
    lines = host_page(picture, number, width, named_first=True).lines
    assert {cell_len(line) for line in text_of(lines)} == {width}
    return fit_all(lines, width, height)


def found(picture: ViewState, width: int, height: int) -> list[Line]:
    lasting = sorted(picture.snapshot.findings, key=lambda finding: finding.cleared_at_step is not None)
    return list_lines(picture, lasting, TableView(np.arange(len(lasting))), width, height)


def evidence(picture: ViewState, width: int, height: int) -> list[Line]:
    return fit_all(evidence_lines(picture, next(iter(picture.snapshot.findings), None), width, height), width, height)


def timed(picture: ViewState, width: int, height: int) -> list[Line]:
    return timeline_lines(replace(picture, snapshot=replace(picture.snapshot, timeline=TIMELINE)), width, height)


def compared(picture: ViewState, width: int, height: int) -> list[Line]:
    ranks = picture.snapshot.ranks
    who = [0] if ranks is None else [0, len(ranks) - 1]
    return marked_lines(picture.snapshot, who, width, height, picture.look)


TIMELINE = made_timeline(buckets=True)


def buckets(picture: ViewState, width: int, height: int) -> list[Line]:
    assert TIMELINE.buckets is not None
    return bucket_lines(TIMELINE.buckets, width, height, picture.look)


BLOCKS: dict[str, Callable[[ViewState, int, int], list[Line]]] = {
    "table": table,
    "heat": heat_lines,
    "stacked": lambda picture, width, height: plots_stacked(picture, 1, width, height, lateness=True),
    "beside": lambda picture, width, height: plots_beside(picture, 0, width, height),
    "lateness": lambda picture, width, height: lateness_plot(picture, 5, width, height),
    "against": lambda picture, width, height: against_lines(picture, 1, width, height),
    "found": finding_lines,
    "detail": detail,
    "hosts": hosts,
    "host": host,
    "waiting": waiting_lines,
    "too small": too_small_lines,
    "list": found,
    "evidence": evidence,
    "timeline": timed,
    "buckets": buckets,
    "compared": compared,
}
ROWS: dict[str, Callable[[ViewState, int], list[Line]]] = {
    "header": lambda picture, width: [header_line(picture, width)],
    "notice": lambda picture, width: [notice_line(picture, width)],
    "verdict": verdict_lines,
    "figures": lambda picture, width: [figures_line(picture, width)],
    "footer": lambda picture, width: [footer_line((("enter", "detail"), ("q", "quit")), width, picture.look)],
    "help": lambda picture, width: help_lines(picture.look, width),
    "findings": all_findings,
    "run": run_lines,
}


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_has_exactly_the_size_asked_for(block: str, run: str) -> None:
    for look in LOOKS.values():
        picture = ViewState(SNAPSHOTS[run], look)
        for width, height in SIZES:
            lines = BLOCKS[block](picture, width, height)
            assert len(lines) == height
            assert {cell_len(line) for line in text_of(lines)} == {width}


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("row", ROWS)
def test_a_row_is_exactly_as_wide_as_asked_for(row: str, run: str) -> None:
    for look in LOOKS.values():
        for picture in (
            ViewState(SNAPSHOTS[run], look),
            ViewState(NOTHING_YET, look, stuck_s=3, paused_s=4, interval=5),
        ):
            for width, _ in SIZES:
                assert {cell_len(line) for line in text_of(ROWS[row](picture, width))} == {width}


@pytest.mark.parametrize("height", range(1, 9))
def test_blocks_survive_having_hardly_any_room(height: int) -> None:
    picture = ViewState(SNAPSHOTS["eight"], LOOKS["colour"])
    for width in (1, 5, 9, 23):
        for draw in BLOCKS.values():
            assert len(draw(picture, width, height)) == height


@pytest.mark.parametrize("run", RUNS)
def test_ascii_means_ascii(run: str) -> None:
    named = replace(SNAPSHOTS[run], link=Link("gone", "the store is göne · 3 s ago…"))
    picture = ViewState(named, LOOKS["ascii"])
    blocks = [draw(picture, 160, 50) for draw in BLOCKS.values()]
    rows = [draw(picture, 160) for draw in ROWS.values()]
    assert all(line.isascii() for lines in blocks + rows for line in text_of(lines))


@pytest.mark.parametrize("width", range(6, 40))
def test_a_unit_stays_with_its_number(width: int) -> None:
    said = "it is late by 41 ms a step for 14 s and costs 24 % of the job; some more words"
    rows = wrap(said, width)
    assert not [row for row in rows if row.split()[0] in ("%", "ms", "s")]
    assert " ".join(rows) == said
    assert all(len(row) <= width for row in rows)


def test_without_colour_no_style_has_one() -> None:
    picture = ViewState(SNAPSHOTS["eight"], LOOKS["plain"])
    lines = [line for draw in BLOCKS.values() for line in draw(picture, 120, 34)]
    styles = [segment.style for line in lines for segment in line if segment.style]
    assert styles
    assert not [style for style in styles if style.color or style.bgcolor]


@pytest.mark.parametrize(
    ("view", "words"),
    [
        ("overview", ["8/8 ranks", "costs", "ms/step", "waiting", "late", "% of base", "above typical"]),
        ("hosts", ["late", "util  power", "foreign"]),
        ("rank", ["costs", "others", "work", "wait"]),
    ],
)
def test_the_help_explains_the_words_of_the_view_below_its_keys_in_their_order(view: str, words: list[str]) -> None:
    """`above typical` was explained nowhere, and the other words far below the keys of all views."""
    lines = [line.rstrip() for line in text_of(help_lines(LOOKS["plain"], 120, view))]
    first, last = lines.index(f" Words: {view}"), lines.index(" Keys everywhere")
    places = [next(at for at, line in enumerate(lines) if line.startswith(f" {word} ")) for word in words]
    assert places == sorted(places)
    assert first < places[0] < places[-1] < last
    assert all(sum(line.startswith(f" {word}  ") for line in lines) <= 1 for word in words), "each word once"


def test_the_help_says_which_of_the_two_figures_of_pace_is_a_median() -> None:
    """A reader divided the samples of a step by `ms/step`, and got another number than `samples/s`."""
    said = " ".join(" ".join(text_of(help_lines(LOOKS["plain"], 120))).split())
    assert "ms/step the median duration of the last 20 steps" in said
    assert "samples/s the samples of these steps over their mean duration" in said


@pytest.mark.parametrize("sort", SORTS)
def test_every_sort_shows_every_rank_once(sort: str) -> None:
    for made in (SNAPSHOTS["eight"], SNAPSHOTS["64 with a loss"]):
        assert made.ranks is not None
        for reverse in (False, True):
            assert sorted(ordered(made, sort, reverse, "")) == list(range(len(made.ranks)))


def test_what_is_unknown_is_a_dash_and_never_zero() -> None:
    base = SNAPSHOTS["eight"]
    assert base.ranks is not None
    measured = ("_ms", "_pct", "_s", "_bytes", "loss")
    fields = [name for name in Ranks.__dataclass_fields__ if name.endswith(measured)]
    unknown: dict[str, Any] = dict.fromkeys(fields, np.full(8, np.nan))
    unknown["figures"] = dict.fromkeys(base.ranks.figures, np.full(8, np.nan))
    ranks = replace(base.ranks, step=np.full(8, -1), gpu=(None,) * 8, **unknown)
    picture = ViewState(replace(base, ranks=ranks, findings=(), job=NOTHING_YET.job), LOOKS["colour"])
    rows = text_of(table(picture, 160, 10))[2:]
    for rank, row in enumerate(rows):
        assert row.split()[:2] == (["▸", str(rank)] if rank == 0 else [str(rank), "node0" if rank < 4 else "node1"])
        assert "0" not in row.replace("node0", "").replace(f" {rank} ", " ")
        assert row.count("–") >= 10
    figures = text_of([figures_line(picture, 160)])[0]
    assert "– ms/step" in figures
    assert "waiting –" in figures


@pytest.mark.parametrize("width", [80, 120, 200])
def test_figures_of_the_job_that_are_not_known_are_dim_dashes_beside_those_that_are(width: int) -> None:
    made, look = snapshot(Made(ranks=8)), LOOKS["colour"]
    assert made.run is not None
    attached = replace(made, job=NOTHING_YET.job, series=None, run=replace(made.run, step=None))
    line = figures_line(ViewState(attached, look), width)
    assert re.search(r"^ step +– +– ms/step +loss – +– steps/s +waiting – *$", text_of([line])[0])
    dashes = [part for part in line if "–" in part.text]
    assert len(dashes) == 5
    assert all(part.style == look.dim for part in dashes)
    stepped = figures_line(ViewState(replace(attached, run=made.run), look), width)
    assert re.search(r"^ step +1,204 +– ms/step ", text_of([stepped])[0])
    assert next(part for part in stepped if "1,204" in part.text).style == look.strong


def test_while_no_step_finishes_the_figures_of_a_step_are_unknown() -> None:
    job = JobView(step_ms=131.0, throughput=4016.0, sync_efficiency=0.89, lost_to_waiting_pct=3.4, allreduce_ms=31.0)
    hang = replace(snapshot(Made(ranks=8, stuck=2, findings=(HANG,))), job=replace(job, throughput_unit="samples/s"))
    line, before = (
        text_of([figures_line(ViewState(each, LOOKS["plain"]), 200)])[0] for each in (hang, replace(hang, findings=()))
    )
    assert "4,016 samples/s" in before
    assert "waiting 3.4 %" in before
    assert "busy 89 %" in before
    assert re.search("– ms/step.* – samples/s .*waiting –", line), line
    assert not re.search("busy|all-reduce|131", line)
    about = "\n".join(text_of(run_lines(ViewState(hang, LOOKS["plain"]), 120)))
    assert re.search("lost to waiting +unknown while no step finishes", about)


@pytest.mark.parametrize("run", ["eight", "shared", "4,096"])
def test_memory_has_one_unit_everywhere(run: str) -> None:
    """Decimal GB stood beside GiB on one screen (review of the screen, section 4)."""
    picture = ViewState(SNAPSHOTS[run], LOOKS["colour"])
    lines = [line for draw in BLOCKS.values() for line in draw(picture, 240, 60)]
    lines += [line for draw in ROWS.values() for line in draw(picture, 240)]
    assert not [line for line in text_of(lines) if re.search(r"\b[kMGT]B\b", line)]
    assert any("GiB" in line for line in text_of(lines))


@pytest.mark.parametrize("width", [64, 80, 100, 200])
def test_the_samples_of_some_ranks_are_not_shown_as_those_of_all(width: int) -> None:
    made = snapshot(Made(ranks=64, per_node=8))
    part = replace(made, job=replace(made.job, throughput=3516.0, throughput_ranks=56))
    line, whole = (text_of([figures_line(ViewState(each, LOOKS["plain"]), width)])[0] for each in (part, made))
    assert "samples/s" not in line or "3,516 samples/s of 56 ranks" in line
    assert ("samples/s" in line) == (width >= 80)
    assert "samples/s of" not in whole
    unknown = replace(part, job=replace(part.job, throughput=None))
    assert "ranks" not in text_of([figures_line(ViewState(unknown, LOOKS["plain"]), width)])[0]


def test_the_title_of_the_samples_has_the_number_of_ranks_beside_the_newest_value_alone() -> None:
    """The line goes from those of 64 ranks to those of 56: none of both is what the whole plot is of."""
    made = snapshot(Made(ranks=64, per_node=8))
    job = replace(made.job, throughput=3516.0, throughput_ranks=56)
    for shown, said in ((job, r"samples/s \S+ 3,516 of 56 ranks "), (replace(job, throughput=None), r"samples/s ─+$")):
        picture = ViewState(replace(made, job=shown), LOOKS["plain"])
        (title,) = (
            line.strip() for line in text_of(plots_stacked(picture, 0, 160, 40, lateness=False)) if "samples" in line
        )
        bare = re.sub(r", median per \d+ steps, range from step [\d,]+|, median and range per \d+ steps", "", title)
        assert re.search(said, bare), title


def test_the_jobs_own_step_and_its_eta_stand_beside_ours() -> None:
    made = snapshot(Made(ranks=8))
    job = replace(made.job, job_step=300, job_total=1200, eta_s=725.0, tokens_per_s=48211.4)
    shown = [
        text_of([figures_line(ViewState(replace(made, job=each), LOOKS["plain"]), width)])[0]
        for each, width in ((job, 200), (job, 120), (made.job, 200))
    ]
    assert "job step 300 of 1,200 (25 %), 12 min left" in shown[0]
    assert "tokens/s" in shown[0]
    assert "job 300/1,200, 12 min left" in shown[1]
    assert "job " not in shown[2]


def test_the_plot_of_the_loss_says_where_it_is_read() -> None:
    made = snapshot(Made(ranks=8))
    assert made.run is not None
    read = replace(made, run=replace(made.run, loss_from="what backward was called on"))
    titles = [
        "\n".join(text_of(plots_stacked(ViewState(each, LOOKS["plain"]), 0, width, 24, lateness=False)))
        for each, width in ((made, 80), (read, 80), (read, 42))
    ]
    assert "backward" not in titles[0]
    assert "loss: what backward was called on ─" in titles[1]
    assert re.search(r"─ loss ─.* 2\.\d\d\d? ─", titles[2]), "the newest value has room before these words"


def test_a_missing_picture_of_everything_is_drawn_too() -> None:
    base = SNAPSHOTS["eight"]
    bare = replace(base, ranks=None, heat=None, series=None, coverage=None, detail=None, findings=(), nodes=())
    for draw in BLOCKS.values():
        assert len(draw(ViewState(bare, LOOKS["colour"]), 80, 24)) == 24


@pytest.mark.parametrize(
    ("waited_for", "said"),
    [
        ((5,), "rank 5"),
        ((4, 5, 6, 7), "node1"),
        ((2, 7, 6, 5, 4), "rank 2 and node1"),
        ((4, 5, 6, 7, 1), "node1 and rank 1"),
        ((6, 1, 2, 5, 0), "ranks 6, 1, 2 and 2 more"),
    ],
)
def test_whom_the_others_wait_for_is_told_by_host_and_without_a_silent_cut(
    waited_for: tuple[int, ...], said: str
) -> None:
    made = snapshot(Made(ranks=8))
    job = replace(made.job, lost_to_waiting_pct=22.0, waiting_for=waited_for)
    line = text_of([figures_line(ViewState(replace(made, job=job), LOOKS["ascii"]), 200)])[0]
    assert f"waiting 22 % on {said}   " in line


def test_all_groups_of_a_hang_stand_still_for_the_time_that_the_finding_tells() -> None:
    made = snapshot(Made(ranks=4, stuck=2))
    assert made.ranks is not None
    frames = {0: 13.4, 1: 14.1, 2: 14.6, 3: 5.0}  # the first three were published within a second
    stalls = tuple(replace_struct(STALL, seconds=frames[rank], stacks=[]) for rank in range(4))
    phases = ("exposed", "exposed", "input", "barrier")
    found = places(replace(made.ranks, stall=stalls, phase=phases))
    assert [(place.ranks, place.seconds) for place in found] == [((2,), 14.6), ((3,), 5.0), ((0, 1), 14.6)]


def test_a_marked_rank_marks_its_group_while_the_run_stands_still() -> None:
    made = snapshot(Made(ranks=8, stuck=2))
    assert made.ranks is not None
    first = [place.ranks[0] for place in places(made.ranks)]
    picture = ViewState(made, LOOKS["ascii"], marked=(5,))
    rows = text_of(place_lines(picture, first, None, 120, 6))[2:4]
    assert [row[3] for row in rows] == [" ", "+"], "rank 5 is in the second group"
