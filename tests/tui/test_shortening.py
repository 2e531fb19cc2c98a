"""How sentences are shortened where a terminal has no room for them: by clauses, and never in silence."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from ddpmon.tui.draw.header import header_line
from ddpmon.tui.draw.host_table import host_table_lines
from ddpmon.tui.draw.place_table import place_lines
from ddpmon.tui.draw.table import TableView
from ddpmon.tui.draw.verdict_lines import verdict_lines
from ddpmon.tui.view_state import ViewState
from tests.tui.made_runs import Made, snapshot
from tests.tui.test_drawing import text_of
from tests.tui.test_overview import hanging
from tests.tui.test_pictures import COLOUR

ADVICE = (
    "check the data loading of this rank: storage, shard size, workers and their transforms. Run `ssh n1 py-spy dump`"
)


def test_advice_without_room_keeps_its_command_and_whole_clauses() -> None:
    made = snapshot(Made(straggler=5))
    worst = replace(made.findings[0], advice=ADVICE, cause="")
    for width, said in (
        (160, ADVICE),
        (120, "check the data loading of this rank: storage, shard size. Run `ssh n1 py-spy dump`"),
    ):
        lines = text_of(verdict_lines(ViewState(replace(made, findings=(worst,)), COLOUR), width))
        assert lines[-1].strip() == f"→ {said}"


def test_a_long_name_of_a_run_is_cut_with_a_sign() -> None:
    line = "".join(text_of([header_line(ViewState(snapshot(Made(name="a-name-that-is-rather-long")), COLOUR), 60)]))
    assert re.match(r" ddpmon  a-name-[a-z-]*… RUNNING", line)


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
    assert re.search(r"rank 1: input \+41 ms; .*\b\d more *$", rows[110])
    assert not any("…" in row for row in rows.values())
