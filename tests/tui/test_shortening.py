"""How sentences are shortened where a terminal has no room for them: by clauses, and never in silence."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from ddpmon.report.finding_rows import what_within
from ddpmon.report.headline import brief_sentence
from ddpmon.snapshot import Finding, Link, RunState
from ddpmon.tui.draw.finding_view import evidence_lines, list_lines
from ddpmon.tui.draw.findings import finding_lines
from ddpmon.tui.draw.header import header_line, notice_line, notice_lines
from ddpmon.tui.draw.host_table import host_table_lines
from ddpmon.tui.draw.place_table import place_lines
from ddpmon.tui.draw.table import TableView, table_lines
from ddpmon.tui.draw.timeline_view import timeline_lines
from ddpmon.tui.draw.verdict_lines import headline_line, verdict_lines
from ddpmon.tui.lines import clip_clauses, wrap
from ddpmon.tui.view_state import ViewState
from tests.report.test_cost import timed
from tests.tui.made_runs import HANG, Made, snapshot
from tests.tui.test_drawing import text_of
from tests.tui.test_overview import hanging
from tests.tui.test_pictures import COLOUR
from tests.tui.test_views import made_timeline

ADVICE = (
    "check the data loading of this rank: storage, shard size, workers and their transforms. Run `ssh n1 py-spy dump`"
)


def test_advice_without_room_keeps_its_command_and_whole_clauses() -> None:
    made = snapshot(Made(straggler=5))
    worst = replace(made.findings[0], advice=ADVICE, cause="")
    for width, said in (
        (160, ADVICE),
        (120, "check the data loading of this rank. Run `ssh n1 py-spy dump`"),
    ):
        lines = text_of(verdict_lines(ViewState(replace(made, findings=(worst,)), COLOUR), width))
        assert lines[-1].strip() == f"→ {said}"


def test_advice_whose_end_has_no_room_keeps_the_command_before_it() -> None:
    """`see whether rank 16 still runs` stood alone in 120 columns, since what follows the command had no room."""
    advice = (
        "see whether rank 16 still runs: `ssh node0002 ps -p 20016`; then whether that host reaches the store, and "
        "what ddpmon has printed into the log"
    )
    made = snapshot(Made(straggler=5))
    worst = replace(made.findings[0], advice=advice, cause="")
    for width, said in ((200, advice), (120, advice.partition(";")[0])):
        lines = text_of(verdict_lines(ViewState(replace(made, findings=(worst,)), COLOUR), width))
        assert lines[-1].strip() == f"→ {said}"


@pytest.mark.parametrize(
    ("ranks", "width", "said"),
    [
        (1, 80, "gpt-stdlib             RUNNING · 00:12:31 · 1/1 rank · heard 0.4 s ago"),
        (8, 80, "gpt-stdlib            RUNNING · 00:12:31 · 8/8 ranks · heard 0.4 s ago"),
        (1024, 80, "gpt-stdlib    RUNNING · 00:12:31 · 1,024/1,024 ranks · heard 0.4 s ago"),
        (1024, 76, "gpt-std…  RUNNING · 00:12:31 · 1,024/1,024 ranks · heard 0.4 s ago"),
        (1024, 70, "gpt-std…  RUNNING · 00:12:31 · 1,024/1,024 · heard 0.4 s ago"),
        (1024, 64, "gpt-stdlib    RUNNING · 00:12:31 · 1,024/1,024 · 0.4 s"),
    ],
)  # fmt: skip
def test_the_words_on_the_state_stay_as_far_as_they_fit_and_the_name_is_cut_first(
    ranks: int, width: int, said: str
) -> None:
    """`1,024/1,024 · 0.1 s` did not say what was counted nor what the time was, with 12 columns free."""
    made = snapshot(Made(ranks=ranks))
    assert made.coverage is not None
    made = replace(made, coverage=replace(made.coverage, oldest_age_s=0.4))
    (line,) = text_of([header_line(ViewState(made, COLOUR), width)])
    assert line.split(maxsplit=1)[1].rstrip() == said
    assert len(line) == width


def test_a_long_name_of_a_run_is_cut_with_a_sign() -> None:
    line = "".join(text_of([header_line(ViewState(snapshot(Made(name="a-name-that-is-rather-long")), COLOUR), 60)]))
    assert re.match(r" ddpmon  a-name-[a-z-]*…  RUNNING", line)


def test_advice_for_the_next_run_is_not_cut_inside_a_phrase() -> None:
    """`→ before the next run, check the GPU of this rank: clocks, other …` in 80 columns."""
    made = snapshot(Made(straggler=5))
    assert made.run is not None
    check, run = "before the next run, check the GPU of this rank", ". Run `ssh node0042 nvidia-smi -i 5`"
    advice = f"{check}: clocks, other processes{run}"
    shown = replace(made, run=replace(made.run, state="finished"), findings=(replace(made.findings[0], advice=advice),))
    for width, said in ((125, advice), (100, f"{check}{run}"), (80, check)):
        assert text_of(verdict_lines(ViewState(shown, COLOUR), width))[1].strip() == f"→ {said}"


def test_the_headline_has_as_many_facts_as_fit() -> None:
    """In 160 columns the time of day and the cost a day were left out at once, with 15 columns free."""
    made = timed(Made(ranks=16, per_node=4, gpu=True, findings=(replace(NOW_AND_THEN, since_step=812),)))
    heads = (text_of(verdict_lines(ViewState(made, COLOUR), width))[0] for width in range(110, 200))
    parts = {"lost": " lost", "a day": " a day", "time": r"\d\d:\d\d:\d\d"}
    kept = [tuple(name for name, words in parts.items() if re.search(words, head)) for head in heads]
    assert {*kept} == {(), ("lost",), ("lost", "time"), ("lost", "a day"), ("lost", "a day", "time")}
    assert sorted(kept, key=len) == kept


def test_the_place_of_a_rank_has_a_source_line_only_where_there_is_room() -> None:
    made = hanging(8)
    for width, shown in ((160, "while not path.exists(): time.sleep(0.1)"), (100, "shards.py:19 read")):
        line = next(
            line for line in text_of(place_lines(ViewState(made, COLOUR), [2, 0], 2, width, 5)) if "input" in line
        )
        assert line.rstrip().endswith(shown)


def test_remarks_on_a_host_lose_their_brackets_first_and_then_the_last_ones() -> None:
    made = ViewState(snapshot(Made(ranks=8, gpu=True, straggler=1, troubled=(0,))), COLOUR)
    rows = {
        width: text_of(host_table_lines(made, TableView(np.array([0, 1])), width, 4))[2] for width in (400, 110, 90)
    }
    assert "(" in rows[400]
    assert re.search(r"rank 1: late \+41 ms, input; .*\b\d more *$", rows[110])
    assert not any("…" in row for row in rows.values())


def test_the_onset_of_what_is_late_in_some_steps_fits_80_columns() -> None:
    shown = snapshot(Made(straggler=5, gpu=True))
    (finding, *_) = shown.findings
    rare = replace(finding, kind="intermittent_straggler", evidence={**finding.evidence, "one_step_in": 5.0})
    (line, *_) = text_of(verdict_lines(ViewState(replace(shown, findings=(rare,)), COLOUR), 80))
    assert " ".join(line.split("step")[0].split()[1:]) == "rank 5 late +41 ms in one"
    assert line.rstrip().endswith("since 812"), "`step 812` alone looked like the step that the run is at"


def test_a_narrow_screen_says_what_the_foreign_process_does() -> None:
    cause = "a shared GPU: pid 4242 (bob, python a_long_name_of_a_notebook.py) uses 38 % of its GPU (likely)"
    shown = snapshot(Made(straggler=5))
    for said in (cause, cause.replace("python", "python f.py --x (a)")):
        finding = replace(shown.findings[0], cause=said, advice="ask its owner to move to another GPU")
        lines = text_of(verdict_lines(ViewState(replace(shown, findings=(finding,)), COLOUR), 80))
        assert "likely cause: pid 4242 (bob) uses 38 % of its GPU" in lines[1]
    finding = replace(finding, cause=cause)
    wide = text_of(verdict_lines(ViewState(replace(shown, findings=(finding,)), COLOUR), 160))
    assert "likely cause: a shared GPU; pid 4242 (bob, python a_long_name_of_a_notebook.py) uses" in wide[1]


def test_a_hang_keeps_who_waits_in_80_columns() -> None:
    made = snapshot(Made(ranks=64))
    here = "rank 21 has been stuck in input for 67 s, at train.py:88"
    waiting = "; 63 ranks wait in the gradient reduction"
    hang = Finding(
        "hang", "critical", f"{here} in __getitem__: sample = read(index){waiting}", (21,), phase="input",
        brief=f"{here}{waiting}",
    )  # fmt: skip
    lines = text_of(verdict_lines(ViewState(replace(made, findings=(hang,)), COLOUR), 80))
    assert " ".join(" ".join(lines).split()) == f"HANG {here}{waiting}"
    costly = replace(hang, cost_pct=100.0, evidence={"seconds": 3600.0, "waiting": 63})
    assert brief_sentence(costly, made) == f"{here}{waiting}. 64 rank-h lost so far."
    long = replace(hang, summary=" ".join(["a-long-word"] * 30), brief="")
    assert re.search(
        r" a-long-word …$", text_of(verdict_lines(ViewState(replace(made, findings=(long,)), COLOUR), 80))[1].rstrip()
    )


def test_a_headline_without_room_for_all_of_its_sentence_has_whole_statements_of_it() -> None:
    """`63 ranks …` stood there, and `either they take part and only the …`."""
    here = "rank 21 has been stuck in input for 67 s, at train.py:88"
    waiting = "; 63 ranks wait for it in the gradient reduction"
    hang = Finding("hang", "critical", f"{here} in __getitem__{waiting}", (21,), brief=f"{here}{waiting}")
    since = "ranks 56-63 (node0007) have been silent for 12 s, and the other ranks have finished steps since"
    lost = Finding("rank_lost", "warning", f"{since}; either they take part, or the run goes on without them", (56,))
    shared = Finding(
        "gpu_shared", "info", "pid 4242 (bob, python a_long_name.py) uses 38 % of the GPU of rank 42 (node0005)", (42,)
    )
    shown = ViewState(snapshot(Made(ranks=64, findings=(hang, lost, shared))), COLOUR)
    assert text_of([headline_line(shown, hang, 80)])[0].strip() == f"HANG   {here}"
    said = text_of([headline_line(shown, shared, 80)])[0].strip()
    assert said == "INFO   pid 4242 (bob) uses 38 % of the GPU of rank 42 (node0005)"
    lost_alone = replace(shown, snapshot=replace(shown.snapshot, findings=(lost,)))
    assert " ".join(" ".join(text_of(verdict_lines(lost_alone, 80))).split()) == f"WARN {since}"


@pytest.mark.parametrize(
    "said",
    [
        "rank 3 (node0) failed after step 120: RuntimeError: cuDNN error; see. CUDNN_STATUS_INTERNAL_ERROR, others",
        "the GPU of rank 3 hangs, type `ssh n5 sudo nvidia-smi -r; sudo systemctl restart nvidia-persistenced`",
        "rank 3 is silent and 3 others wait (host n1.example.com. a second host with a longer name is silent, too)",
    ],
)
def test_the_words_of_an_error_a_command_or_a_bracket_are_no_statements_of_ours(said: str) -> None:
    finding = Finding("rank_failed", "critical", said, (3,))
    shown = ViewState(snapshot(Made(findings=(finding,))), COLOUR)
    (line,) = text_of([headline_line(shown, finding, 80)])
    assert line.rstrip().endswith("…")


def test_the_order_of_the_ranks_is_said_shorter_where_the_title_has_no_room() -> None:
    """`worst first, the rest by r…` stood there behind a long filter."""
    made = snapshot(Made(ranks=64))
    rows = "rows 1 to 10 of 64"
    for width, order in ((120, f"{rows}; worst first, the rest by rank"), (80, f"{rows}; worst first"), (70, rows)):
        view = TableView(np.arange(64), wanted="late>10 or node1")
        title = text_of(table_lines(ViewState(made, COLOUR), view, width, 12))[0]
        assert title.rstrip("─ ").endswith(f": 64 of 64; {order}")


def test_units_stay_with_their_numbers_and_commands_in_one_line() -> None:
    assert wrap("so its GPU is full in 9 h", 24) == ["so its GPU is full in", "9 h"]
    assert wrap("it has 267 MiB of them", 11) == ["it has", "267 MiB of", "them"]
    assert wrap("see: `ssh node0002 nvidia-smi -i 5`, then", 32) == ["see:", "`ssh node0002 nvidia-smi -i 5`,", "then"]
    assert wrap("see: `ssh node0002 nvidia-smi -i 5`", 20) == ["see: `ssh node0002", "nvidia-smi -i 5`"]
    assert wrap("in 12 steps", 9) == ["in 12", "steps"]


@pytest.mark.parametrize("width", range(40, 130, 3))
@pytest.mark.parametrize("state", ["killed", "lost"])
def test_what_stands_between_the_reader_and_a_live_run_is_cut_behind_a_whole_clause(
    state: RunState, width: int
) -> None:
    """In 80 columns they read `without a message (pid 24256 …` and `no store at …`."""
    killed = (
        "the run was killed or crashed: rank 0 ended without a message (pid 7 on node0); the launcher's output says"
    )
    said = {
        "killed": killed,
        "lost": "no store at tcp://127.0.0.1:29480: Connection refused; the run may go on; ddpmon",
    }
    made = snapshot(Made(straggler=5))
    assert made.run is not None
    ended = replace(made, run=replace(made.run, state=state), link=Link("gone", f"{said[state]} keeps trying"))
    for line in text_of(notice_lines(ViewState(ended, COLOUR), width)):
        assert line.count("(") == line.count(")"), line
        assert not re.search(r" (at|of|the|which) …", line), line
    (line, *_) = text_of(notice_lines(ViewState(ended, COLOUR), 80))
    assert {"killed": "ended without a message …", "lost": "the run may go on …"}[state] in line


def test_a_word_without_room_is_cut_behind_what_leads_to_it() -> None:
    path = f"the report is in /tmp/{'a-folder' * 20}/report.html"
    assert clip_clauses(path, 60) == f"{path[:59]}…"
    assert clip_clauses("no store at all (as far as is known here)", 22) == "no store at all …"
    assert clip_clauses("it has no store at 127.0.0.1:29480", 22) == "it has no store …"


NOW_AND_THEN = Finding(
    "intermittent_straggler", "warning",
    "rank 12 (node1) is late by 360 ms in one step of 5, in input (since step 60). Costs 10 % of the run's time.",
    (12,), ("node1",), "input", None, 60, cost_pct=10.0, evidence={"excess_ms": 360.0, "one_step_in": 5.0},
)  # fmt: skip


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (60, "late +360 ms in one step of 5, input"), (30, "late +360 ms 1/5, input"),
        (25, "late +360 ms 1/5, input"), (20, "late +360 ms 1/5"), (15, "late +360 1/5"), (9, "+360 1/5"),
    ],
)  # fmt: skip
def test_what_is_late_now_and_then_is_never_said_without_how_often(cells: int, said: str) -> None:
    assert what_within(NOW_AND_THEN, cells) == said


def test_narrow_lists_say_how_often() -> None:
    made = snapshot(Made(ranks=16, per_node=4, findings=(HANG, NOW_AND_THEN)))
    picture = ViewState(made, COLOUR)
    for width in (44, 50, 60, 80, 100):
        beside = text_of(finding_lines(picture, width, 2))
        alone = text_of(list_lines(picture, (NOW_AND_THEN,), TableView(np.arange(1)), width, 6))
        for lines in (beside, alone):
            (row,) = (line for line in lines if "rank 12" in line)
            assert any(words in row for words in ("+360 1/5", "+360 ms 1/5", "in one step of 5")), width


def test_the_timeline_says_how_often_a_rank_is_late_before_it_leaves_out_how_late() -> None:
    """In 80 columns it said `rank 12 late` with 35 cells free."""
    found = replace(NOW_AND_THEN, since_step=900)
    made = replace(timed(Made(ranks=16, findings=(found,))), timeline=replace(made_timeline(), marks=()))
    said = ("rank 12 late +360 ms in one step of 5, input", "rank 12 late +360 ms in one step of 5",
            "rank 12 late +360 ms 1/5, input", "rank 12 late +360 ms 1/5", "rank 12 late")  # fmt: skip
    drawn = (text_of(timeline_lines(ViewState(made, COLOUR), width, 12)) for width in range(160, 50, -1))
    events = [line for lines in drawn for line in lines if "▲" in line and "step 705" not in line]
    assert [*dict.fromkeys(line.strip(" ▲") for line in events)] == [*said]


def test_a_list_uses_its_room_for_ms_and_phase() -> None:
    """Beside the evidence in 120 columns it said `late +360 1/5` with ten columns free."""
    for width, said in ((58, "late +360 ms 1/5, input "), (80, "late +360 ms in one step of 5, input ")):
        assert said in listed((NOW_AND_THEN,), width)[1]


def test_a_list_says_ago_where_all_that_was_found_has_room_beside_it() -> None:
    """`began 48 s` was taken for how long something took."""
    made = timed(Made(ranks=16, findings=(NOW_AND_THEN,)))  # whose step 60 ended 4 min ago
    clock = r"10 %  +\d\d:\d\d, \d+ min ago "
    for width, said in ((80, clock), (76, r"10 %  +\d+ min ago "), (58, r"10 %  +\d+ min  ")):
        picture = ViewState(made, COLOUR)
        row = text_of(list_lines(picture, (NOW_AND_THEN,), TableView(np.arange(1)), width, 4))[1]
        assert re.search(said, row), row


def test_the_kind_of_a_finding_is_left_out_as_a_whole_where_it_has_no_room() -> None:
    picture = ViewState(snapshot(Made(ranks=16, findings=(NOW_AND_THEN,))), COLOUR)
    titles = {width: text_of(evidence_lines(picture, NOW_AND_THEN, width, 20))[0] for width in (61, 90)}
    assert titles[61].rstrip(" ─").endswith("late +360 ms in one step of 5, input")
    assert "intermittent straggler ─" in titles[90]


def test_the_headline_loses_one_part_at_a_time() -> None:
    """In 120 columns it lost `since`, `ago` and `(+73 %)` at once, with 14 columns free."""
    made = timed(Made(ranks=16, per_node=4, gpu=True, findings=(replace(NOW_AND_THEN, since_step=812),)))
    parts = ("since step 812", "s ago", " late +", "node1", "input", "costs 10 %", "(+275 %)", "GPU 0")
    for width, lost in ((120, []), (112, ["GPU 0"]), (104, ["(+275 %)", "GPU 0"])):
        head = text_of(verdict_lines(ViewState(made, COLOUR), width))[0]
        assert [part for part in parts if part not in head] == lost, head


def test_with_little_room_the_headline_names_the_host_rather_than_the_age_of_a_bound() -> None:
    late = replace(NOW_AND_THEN, since_step=1_200, since_is_bound=True)
    made = timed(Made(ranks=16, per_node=4, gpu=True, findings=(late,)))
    head = text_of(verdict_lines(ViewState(made, COLOUR), 88))[0]
    assert "rank 12 node1 " in head
    assert "before 1,200 " in head


def listed(findings: tuple[Finding, ...], width: int) -> list[str]:
    """The list of these findings, of which none is under the cursor."""
    picture = ViewState(snapshot(Made(ranks=16, per_node=4, findings=findings)), COLOUR)
    return text_of(list_lines(picture, findings, TableView(np.arange(len(findings))), width, 8))


def test_a_list_of_findings_names_its_columns_and_has_none_that_is_empty() -> None:
    over = replace(NOW_AND_THEN, cost_pct=None, since_step=None, cleared_at_step=145)
    title, row, _, past, *_ = listed((NOW_AND_THEN, HANG, over), 80)
    assert title.split()[-3:-1] == ["costs", "began"]
    assert row.index("10 %") + len("10 %") == title.index("costs") + len("costs"), "under its heading"
    assert past.rstrip(" ─").endswith("1 finding   when")
    for findings in ((HANG,), (replace(NOW_AND_THEN, cost_pct=None),)):
        assert not any("costs" in line for line in listed(findings, 80))


def test_the_times_of_what_is_over_take_no_room_from_what_lasts() -> None:
    over = replace(NOW_AND_THEN, since_step=1_100_000, cleared_at_step=1_200_000)
    row, *_ = (line for line in listed((NOW_AND_THEN, over), 72) if "WARN" in line)
    assert "late +360 ms in one step of 5, input" in row


def test_advice_and_notices_are_cut_behind_a_word() -> None:
    advice = "restart the processes that are stuck there " + "and then again " * 9
    found = Finding("rank_lost", "critical", "rank 3 is silent", (3,), advice=advice)
    made = replace(snapshot(Made()), findings=(found,), link=Link("gone", advice))
    shown = ViewState(made, COLOUR)
    for width in range(72, 80):
        for line in (text_of(verdict_lines(shown, width))[1], text_of([notice_line(shown, width)])[0]):
            said = line.rstrip().removesuffix(" …").split("→ ")[-1].strip(" ‖✕×")
            assert line.rstrip().endswith(" …")
            assert advice.removeprefix("before the next run, ").startswith(f"{said} ")


def test_the_headline_and_the_list_name_the_phase_alike() -> None:
    """The headline said `mostly input` where the list beside it said `input`."""
    shown = snapshot(Made(straggler=5))
    (finding, *_) = shown.findings
    for width in (80, 120, 200):
        headline = text_of(verdict_lines(ViewState(shown, COLOUR), width))[0]
        assert f", {finding.phase} " in headline
        assert "mostly" not in headline


def test_the_column_of_steps_is_named_by_what_stands_in_it() -> None:
    """Over `until 230` stood `since step`, and over `before 60`."""
    over = replace(NOW_AND_THEN, cleared_at_step=145)
    old = replace(NOW_AND_THEN, since_is_bound=True)
    for others, head, said in (
        ((NOW_AND_THEN, NOW_AND_THEN), " since step  costs ─", ("  60  ", "  60  ")),
        ((NOW_AND_THEN, old), " step  costs ─", ("  since 60  ", "before 60  ")),
        ((NOW_AND_THEN, over), " step  costs ─", ("  since 60  ", "until 145  ")),
    ):
        made = snapshot(Made(ranks=16, per_node=4, findings=(HANG, *others)))
        title, *rows = text_of(finding_lines(ViewState(made, COLOUR), 100, 3))
        assert head in title
        assert all(words in row for words, row in zip(said, rows, strict=True)), rows


def test_what_was_found_is_not_measured_once_more_in_its_row() -> None:
    """It said `ranks 8-9: restarted alone, 2 ranks restarted alone`."""
    alone = Finding("monitor_degraded", "info", "", (8, 9), evidence={"restarted_alone": 2})
    row = text_of(finding_lines(ViewState(snapshot(Made(ranks=16, findings=(HANG, alone))), COLOUR), 100, 2))[1]
    assert row.split("ranks 8-9: ")[1].strip() == "restarted alone"
