"""The rank table: the worst first, bars that prove it, filters, hostile text."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from ddpmon.diagnose.alert import Severity
from ddpmon.snapshot import Finding, Snapshot
from ddpmon.tui.draw.against import against_lines
from ddpmon.tui.draw.bars import bar, common_scale, legend
from ddpmon.tui.draw.columns import cell, decimals_for, difference, sheet
from ddpmon.tui.draw.order import ordered
from ddpmon.tui.draw.peer_table import peer_lines
from ddpmon.tui.draw.table import HEAD, TableView, table_lines
from ddpmon.tui.view_state import ViewState
from tests.tui.made_runs import Made, snapshot
from tests.tui.test_drawing import LOOKS, text_of

LOOK = LOOKS["ascii"]
SOLID = set("#+=~:%")


def rows_of(made: Snapshot, width: int = 120, height: int = 20, **view: object) -> list[str]:
    order = ordered(made, "worst", False, "")
    shown = TableView(order, **view)  # type: ignore[arg-type]
    return [line for line in text_of(table_lines(ViewState(made, LOOK), shown, width, height))[HEAD:] if line.strip()]


def bar_length(row: str) -> int:
    return sum(char in SOLID for char in row[30:])


@pytest.mark.parametrize(("severity", "signs"), [("critical", " x  "), ("warning", " !x ")])  # its state is lost
def test_a_lost_rank_has_the_sign_of_its_findings_severity(severity: Severity, signs: str) -> None:
    made = snapshot(Made(ranks=8, lost=(2,)))
    found = Finding("rank_lost", severity, "rank 2 is lost.", (2,))
    assert rows_of(replace(made, findings=(found,)), focused=False)[0].startswith(signs)


@pytest.mark.parametrize(("ranks", "straggler"), [(2, 1), (8, 5), (64, 17), (1024, 517), (4096, 4095)])
@pytest.mark.parametrize("phase", ["input", "backward", "other"])
@pytest.mark.parametrize("named", [True, False])
def test_the_straggler_comes_first_with_the_longest_bar(ranks: int, straggler: int, phase: str, named: bool) -> None:
    made = snapshot(Made(ranks=ranks, straggler=straggler, phase=phase, per_node=8))
    rows = rows_of(made if named else replace(made, findings=()))
    assert f"{straggler} node" in rows[0]
    assert len(rows) == min(ranks, 18)
    assert all(bar_length(rows[0]) > bar_length(row) + 4 for row in rows[1:])
    assert all(rows[0].count(".") < row.count(".") for row in rows[1:])
    assert rows[0].startswith(">!") is named


def test_lost_ranks_come_before_slow_ones_and_have_no_bar() -> None:
    rows = rows_of(snapshot(Made(ranks=8, straggler=5, lost=(3,))))
    assert "lost, silent for 14 s" in rows[0]
    assert sum(char in "#+=" for char in rows[0][30:]) == 0
    assert " 5 node1" in rows[1]


def test_the_rank_of_the_headline_comes_before_ranks_that_stand_still_meanwhile() -> None:
    made = snapshot(Made(ranks=64, straggler=17))
    assert made.ranks is not None
    stalled = replace(made.ranks, state=tuple("stalled" if 32 <= rank < 48 else "running" for rank in range(64)))
    assert rows_of(replace(made, ranks=stalled))[0].split()[1] == "17"


def test_a_rank_that_restarted_alone_has_a_sign_of_its_own() -> None:
    note = Finding("monitor_degraded", "info", "rank 3 has restarted", (3,), evidence={"restarted_alone": 1})
    rows = rows_of(replace(snapshot(Made(ranks=8)), findings=(note,)), focused=False)
    signs = {row.split(" node")[0][4:].strip(): row[:4].strip() for row in rows}
    assert signs == {f"{rank}": "r" if rank == 3 else "" for rank in range(8)}


def test_ranks_that_restarted_alone_come_before_those_that_no_finding_names() -> None:
    """No lateness is known of them, so they came last although a finding named them (seen in a picture)."""
    note = Finding("monitor_degraded", "info", "", (5, 6), evidence={"restarted_alone": 2})
    loud = Finding("gpu_memory_uneven", "warning", "", (7,))
    made = snapshot(Made(ranks=8, straggler=3))
    assert made.ranks is not None
    late = np.where(np.isin(np.arange(8), (5, 6)), np.nan, made.ranks.lateness_ms)
    shown = replace(made, ranks=replace(made.ranks, lateness_ms=late), findings=(loud, note))
    assert ordered(shown, "worst", False, "").tolist() == [7, 5, 6, 3, 0, 1, 2, 4]


def test_an_information_does_not_outrank_lateness() -> None:
    made = snapshot(Made(ranks=2, straggler=0))
    note = Finding("gpu_memory_uneven", "info", "rank 1 needs more device memory than the others.", (1,))
    assert ordered(replace(made, findings=(note,)), "worst", False, "").tolist() == [0, 1]
    loud = replace(note, severity="warning")
    assert ordered(replace(made, findings=(loud,)), "worst", False, "").tolist() == [1, 0]


def test_calm_rows_stand_in_rank_order_and_do_not_jump() -> None:
    orders = [ordered(snapshot(Made(ranks=64, step=step)), "worst", False, "").tolist() for step in (900, 950, 1000)]
    assert orders == [list(range(64))] * 3


def test_a_legend_in_ascii_can_be_read() -> None:
    text = "".join(segment.text for segment in legend(LOOK, 60, "180"))
    assert "~op" in text
    assert "oop" not in text


def test_all_bars_have_one_scale() -> None:
    scale = common_scale(np.array([100.0, 158.0]), np.array([72.0, 14.0]))
    assert scale == 180.0
    full = text_of([bar((0, 90, 90, 0, 0), 0.0, scale, 40, LOOK)])[0]
    half = text_of([bar((0, 45, 45, 0, 0), 90.0, scale, 40, LOOK)])[0]
    assert full == "+" * 20 + "=" * 20
    assert half == "+" * 10 + "=" * 10 + "." * 20


def test_a_narrow_table_says_where_the_scale_ends_and_drops_words_for_it() -> None:
    said = {width: "".join(part.text for part in legend(LOOKS["colour"], width, "680")) for width in (40, 32, 30, 12)}
    assert all(len(text) == width for width, text in said.items())
    assert [word in said[30] for word in ("in", "fw", "bw", "op", "ot", "wt", "680 ms")] == [True] * 7
    assert "■in ■fw ■bw ■op ■ot" in said[30]
    assert said[40].endswith("  680 ms")
    assert said[32].endswith("wait 680 ms"), "the unit stands wherever it has room"
    assert said[12].strip() == "680 ms"


def test_the_accent_of_a_bar_is_as_long_as_the_lateness_in_its_column() -> None:
    """A rank that took 158 ms longer in input and 84 ms less in backward showed `+74` beside an accent of 158 ms."""
    made = snapshot(Made(straggler=5, extra_ms=158.0))
    assert made.ranks is not None
    late, backward = made.ranks.lateness_ms.copy(), made.ranks.backward_ms.copy()
    late[5], backward[5] = 74.0, 0.0
    ranks = replace(made.ranks, lateness_ms=late, backward_ms=backward)
    lines = text_of(table_lines(ViewState(replace(made, ranks=ranks), LOOK), TableView(np.array([5])), 160, 12))
    scale = float(re.findall(r"(\d+) ms", lines[1])[0])
    cells = sheet(160, ranks, len("node0")).bar
    assert "+74" in lines[HEAD]
    assert lines[HEAD].count(LOOK.glyphs.hot) == pytest.approx(74.0 / scale * cells, abs=1.0)


def test_a_phase_of_half_a_cell_has_a_cell_whatever_comes_before_it() -> None:
    bars = {text_of([bar((first, 40, 0, 0, 2.6), 20.0, 100.0, 20, LOOK)])[0] for first in (20, 21, 22.6)}
    assert {drawn.count(":") for drawn in bars} == {1}
    assert {len(drawn) for drawn in bars} == {20}


def test_a_rank_that_is_late_now_and_then_shows_how_late_and_how_often() -> None:
    """Its medians over the steps do not show it: ±0 stood beside a verdict of 361 ms."""
    made = snapshot(Made(ranks=8))
    evidence = {"excess_ms": 361.2, "one_step_in": 5.0}
    late = Finding("intermittent_straggler", "warning", "late", (3,), ("node0",), "input", evidence=evidence)
    shown = ViewState(replace(made, findings=(late,)), LOOKS["colour"])
    for width in (80, 120):
        rows = text_of(table_lines(shown, TableView(np.arange(8)), width, 12))
        assert "+361 1/5" in rows[HEAD + 3], width
        assert "1/5" not in rows[HEAD + 2]
    for lines in (against_lines(shown, 3, 100, 20), peer_lines(shown.snapshot, 3, 54, 20, shown.look, (late,))):
        rows = [line for line in text_of(lines) if " input" in line or " work ms" in line]
        assert ["+361 1/5" in row for row in rows] == [True, True], "of all of the work, too"
    often = replace(late, evidence={"excess_ms": 0.42, "one_step_in": 1.2})
    rows = text_of(
        table_lines(ViewState(replace(made, findings=(often,)), shown.look), TableView(np.arange(8)), 120, 12)
    )
    assert "+0.42 " in rows[HEAD + 3]
    assert "1/1" not in rows[HEAD + 3], "in most steps"
    quiet = replace(late, kind="straggler", evidence={"excess_ms": 0.1})
    lines = peer_lines(shown.snapshot, 2, 54, 20, shown.look, (replace(quiet, ranks=(2,)),))
    assert not any("▲" in line for line in text_of(lines)), "noise is not marked"


def test_a_difference_is_that_of_the_figures_beside_it() -> None:
    made = snapshot(Made(ranks=8))
    assert made.ranks is not None
    made.ranks.forward_ms[:] = 254.4
    made.ranks.forward_ms[3] = 257.6
    made.ranks.backward_ms[:] = 254.4
    made.ranks.backward_ms[3] = 253.6
    lines = text_of(peer_lines(made, 3, 54, 20, LOOKS["colour"]))
    rows = {line.split()[0]: line.split()[2:5] for line in lines[1:]}
    assert rows["forward"] == ["258", "254", "+4"]
    assert rows["backward"] == ["254", "254", "±0"]
    drawn = text_of(against_lines(ViewState(made, LOOKS["colour"]), 3, 100, 12))
    assert drawn[1].split()[-1] == "diff"
    assert next(line for line in drawn if "forward" in line).split()[-3:] == ["258", "254", "+4"]


@pytest.mark.parametrize(
    ("newest", "steps"), [(1204, "last 20 steps"), (19, "last 20 steps"), (6, "last 7 steps"), (0, "last step")]
)
def test_a_rank_beside_the_others_says_how_many_steps_its_times_are_of(newest: int, steps: str) -> None:
    made = snapshot(Made(ranks=8, step=newest))
    assert text_of(peer_lines(made, 3, 54, 20, LOOKS["colour"]))[0].startswith(f"─ ms: {steps} ")
    assert f" ms: medians of the {steps} " in text_of(against_lines(ViewState(made, LOOKS["colour"]), 3, 100, 12))[0]


@pytest.mark.parametrize(
    ("width", "words"),
    [(45, " ms: last 20 steps "), (44, " ms: 20 steps "), (40, " ms: 20 steps "), (39, " ms 20 steps ")],
)
def test_a_narrow_table_says_it_in_fewer_words(width: int, words: str) -> None:
    assert words in text_of(peer_lines(snapshot(Made(ranks=8)), 3, width, 20, LOOKS["colour"]))[0]


def test_before_the_first_step_the_times_are_of_no_steps() -> None:
    made = snapshot(Made(ranks=8))
    assert made.ranks is not None
    made.ranks.step[:] = -1
    assert "step" not in text_of(peer_lines(made, 3, 54, 20, LOOKS["colour"]))[0]
    assert "step" not in text_of(against_lines(ViewState(made, LOOKS["colour"]), 3, 100, 12))[0]


def test_only_the_excess_is_in_the_accent() -> None:
    look = LOOKS["colour"]
    segments = bar((40, 40, 0, 0, 0), 0.0, 80.0, 10, look, (24.0, 0, 0, 0, 0))
    drawn = [(segment.text, segment.style == look.accent) for segment in segments]
    assert drawn == [("▆▆", False), ("▆▆▆", True), ("▆▆▆▆▆", False)]


def test_lateness_in_several_phases_is_shared_out_over_them() -> None:
    """All of it was drawn in the phase with the largest part, also what arises in another one."""
    made = snapshot(Made(ranks=8, straggler=5, extra_ms=60.0))
    assert made.ranks is not None
    made.ranks.input_ms[:], made.ranks.forward_ms[:], made.ranks.backward_ms[:] = 20.0, 40.0, 50.0
    made.ranks.input_ms[5], made.ranks.backward_ms[5], made.ranks.lateness_ms[5] = 40.0, 90.0, 60.0
    finding = replace(made.findings[0], phase="work")
    shown, look = ViewState(replace(made, findings=(finding,)), LOOKS["colour"]), LOOKS["colour"]
    row = table_lines(shown, TableView(np.array([5]), focused=False), 160, 12)[HEAD]
    hot = [len(segment.text) for segment in row if segment.style == look.accent and segment.text[0] == look.glyphs.hot]
    assert len(hot) == 2
    assert hot[1] / hot[0] == pytest.approx(2.0, rel=0.25), "40 ms in backward, 20 ms in input"
    beside = against_lines(shown, 5, 100, 12)
    loud = {text_of([line])[0].split()[1] for line in beside if any(part.style == look.accent for part in line)}
    assert loud == {"input", "backward"}


def test_a_rank_that_a_finding_names_without_being_slow_has_no_accent() -> None:
    """A rank that is stuck in its input took as long as the others for it before (review of the screen, B6)."""
    stuck = Finding("hang", "critical", "rank 2 is stuck", (2,), ("node0",), "input")
    made = replace(snapshot(Made(ranks=8)), findings=(stuck,))
    assert made.ranks is not None
    made.ranks.input_ms[2] = 7.0
    look = LOOKS["colour"]
    lines = table_lines(ViewState(made, look), TableView(np.arange(8)), 120, 12)
    row = next(line for line in lines[HEAD:] if " 2 node0" in "".join(segment.text for segment in line))
    assert not [segment for segment in row if segment.style == look.accent and look.glyphs.hot in segment.text]


def test_waiting_is_readable() -> None:
    look = LOOKS["colour"]
    (work, wait) = bar((40, 0, 0, 0, 0), 40.0, 80.0, 10, look)
    assert (wait.text, wait.style) == ("╌" * 5, look.dim)
    assert work.text == "▆" * 5, "a gap stands between rows"


def test_a_difference_has_its_sign_and_nothing_is_plus_minus_0() -> None:
    shown = [difference(value, 0, 6, "-") for value in (41.4, -3.6, 0.3, -0.2, float("nan"), 123_456.0)]
    assert shown == ["   +41", "    -4", "    ±0", "    ±0", "     -", " +123k"]


def test_lateness_is_the_column_of_every_table() -> None:
    for width in (40, 80, 160):
        lines = text_of(
            table_lines(
                ViewState(snapshot(Made(ranks=8, straggler=5)), LOOKS["colour"]), TableView(np.arange(8)), width, 12
            )
        )
        assert "late" in lines[1], width
        late = [line.split() for line in lines[HEAD : HEAD + 8]]
        assert any("+41" in row for row in late)
        assert sum(any(cell in ("±0", "+1", "-1", "+2", "-2") for cell in row) for row in late) == 7


def test_only_rows_in_sight_are_formatted() -> None:
    rows = rows_of(snapshot(Made(ranks=4096, per_node=8)), top=4000, cursor=4001)
    assert [int(row.lstrip(">").split()[0]) for row in rows] == list(range(4000, 4018))
    assert [row.startswith(">") for row in rows[:3]] == [False, True, False]


def test_wider_tables_have_more_columns_and_never_a_shorter_bar() -> None:
    ranks = snapshot(Made(ranks=8, gpu=True)).ranks
    assert ranks is not None
    sheets = [sheet(width, ranks, 5) for width in (40, 60, 80, 120, 200, 300)]
    numbers = [len(s.before) + len(s.after) for s in sheets]
    assert numbers == sorted(numbers)
    assert [s.bar for s in sheets] == sorted(s.bar for s in sheets)
    assert {column.key for column in (*sheets[-1].before, *sheets[-1].after)} >= {"gpu", "clock", "power", "rss", "age"}


def test_hostile_text_is_plain_text() -> None:
    evil = "\x1b[31m[bold]\u202enode\x07\n\x9b1m"
    made = snapshot(Made(ranks=4, hosts=(evil,), name=evil))
    for look in LOOKS.values():
        lines = text_of(table_lines(ViewState(made, look), TableView(ordered(made, "worst", False, "")), 120, 10))
        assert any("[31m[bold]" in line for line in lines)
        assert all(char.isprintable() for line in lines for char in line)


@pytest.mark.parametrize(
    ("value", "decimals", "width", "expected"),
    [
        (158.2, 0, 5, "  158"),
        (14.26, 1, 5, " 14.3"),
        (123456.0, 0, 7, "123,456"),
        (123456.0, 0, 6, "123456"),
        (123456.0, 0, 5, " 123k"),
        (1.5e9, 0, 5, "1500M"),
        (float("nan"), 0, 5, "    -"),
        (float("inf"), 0, 5, "    -"),
    ],
)
def test_cells_are_right_aligned_and_exactly_wide(value: float, decimals: int, width: int, expected: str) -> None:
    assert cell(value, decimals, width, "-") == expected


def test_a_column_has_one_number_of_decimals() -> None:
    assert decimals_for(np.array([0.4, 158.0, np.nan])) == 0
    assert decimals_for(np.array([0.4, 15.8])) == 1
    assert decimals_for(np.array([0.4, 1.58])) == 2
    assert decimals_for(np.array([np.nan])) == 0


def test_in_ascii_too_a_figure_without_difference_ends_below_its_heading() -> None:
    made = snapshot(Made(straggler=5))
    lines = text_of(table_lines(ViewState(made, LOOK), TableView(ordered(made, "worst", False, "")), 120, 20))
    end = lines[HEAD - 1].index("late") + len("late")
    late = [line[:end].split()[-1] for line in lines[HEAD : HEAD + 8]]
    assert "0" in late
    assert {line[end] for line in lines[HEAD : HEAD + 8]} == {" "}
    assert all(line[end - 1] != " " for line in lines[HEAD : HEAD + 8])


@pytest.mark.parametrize(
    ("width", "said"),
    [
        (72, "■in ■fw ■bw ■op ■ot ■late"), (76, "■in ■fw ■bw ■op ■ot ■late"), (80, "■in ■fw ■bw ■op ■ot ■late ╌wait"),
        (88, "■in ■fw ■bw ■op ■ot ■late ╌wait"),
        (160, "■input ■forward ■backward ■optimizer ■other ■late ╌wait"),
    ],
)  # fmt: skip
def test_the_heading_of_the_bars_names_all_shades_and_the_accent_at_every_width(width: int, said: str) -> None:
    picture = ViewState(snapshot(Made(straggler=5)), LOOKS["colour"])
    heads, calm = (text_of(table_lines(picture, TableView(np.arange(ranks)), width, 12))[1] for ranks in (8, 5))
    assert said in heads
    assert "■late" not in calm, "no rank in sight has it"


def test_the_heading_of_the_bars_has_one_short_form_of_each_phase() -> None:
    """It said `bw` in 80 columns, `bwd` in 88, and `backward` in wider terminals."""
    picture = ViewState(snapshot(Made(straggler=5)), LOOKS["colour"])
    heads = [text_of(table_lines(picture, TableView(np.arange(8)), width, 12))[1] for width in range(70, 200)]
    assert {word for head in heads for word in re.findall(r"■(b\w+)", head)} == {"bw", "backward"}


@pytest.mark.parametrize(
    ("room", "cursor", "said"),
    [(1, 6, "row 7 of 8"), (2, 6, "rows 1 and 7 of 8"), (3, 6, "rows 1 to 2 and 7 of 8"), (3, 2, "rows 1 to 3 of 8")],
)
def test_a_table_says_which_rows_are_in_sight_also_where_only_that_of_the_cursor_is(
    room: int, cursor: int, said: str
) -> None:
    """With room for one row, and the cursor on another one than the first, it ended the dashboard."""
    view = TableView(np.arange(8), cursor=cursor)
    lines = text_of(table_lines(ViewState(snapshot(Made(ranks=8)), LOOKS["colour"]), view, 80, HEAD + room))
    assert f" {said}; " in lines[0]
