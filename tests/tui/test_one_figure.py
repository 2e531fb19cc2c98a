"""What stands in several views stands there in one form, and no line runs into the last column."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ddpmon.report.run_about import about
from ddpmon.tui.draw.finding_view import evidence_lines
from ddpmon.tui.draw.host_detail import host_page
from ddpmon.tui.draw.host_table import host_table_lines
from ddpmon.tui.draw.panel import footer_line
from ddpmon.tui.draw.table import TableView, table_lines
from ddpmon.tui.view_state import ViewState
from tests.tui.made_runs import Made, snapshot
from tests.tui.test_drawing import LOOKS, text_of
from tests.tui.test_key_words import foot
from tests.tui.watched import Fixed, Watched, watch

LOOK = LOOKS["colour"]
TABLE = TableView(np.arange(2), focused=False)


@pytest.mark.parametrize(("largest", "said"), [(137.0, "-6"), (8.0, "-5.9")])
def test_one_lateness_has_the_same_digits_in_all_views(largest: float, said: str) -> None:
    """`-6` stood in the overview and `-5.9` beside the same rank in the hosts."""
    made = snapshot(Made(ranks=8, per_node=1))
    assert made.ranks is not None
    late = np.zeros(8)
    late[:2] = -5.9, largest
    picture = ViewState(replace(made, ranks=replace(made.ranks, lateness_ms=late)), LOOK)
    shown = {
        "table": table_lines(picture, TABLE, 100, 4)[2],
        "hosts": host_table_lines(picture, TABLE, 100, 4, "late")[2],
        "host": next(
            line for line in host_page(picture, 0, 100, named_first=True).lines if said in text_of([line])[0].split()
        ),
    }
    words = {view: text_of([line])[0].split() for view, line in shown.items()}
    assert [view for view, cells in words.items() if said not in cells] == []
    assert words["hosts"].count(said) == 2, "of the host, and of its rank"


def test_what_the_sensors_take_has_one_name() -> None:
    """The hosts called it sampling, and the run sensors."""
    made = snapshot(Made(ranks=8, gpu=True))
    nodes = tuple(replace(node, cost_pct=0.3) for node in made.nodes)
    made = replace(made, nodes=nodes)
    assert "sensors 0.3 % of a core" in text_of(host_page(ViewState(made, LOOK), 0, 120, named_first=True).lines)[0]
    pairs = {name: words for section in about(made) for name, words in section.pairs}
    assert pairs["sensors"] == "at most 0.3 % of a core per host"


def test_what_a_cost_is_a_share_of_is_left_out_where_that_saves_a_line() -> None:
    """`time.` stood alone in the last line of a sentence."""
    made = snapshot(Made(ranks=8, straggler=5))
    picture, (late,) = ViewState(made, LOOK), made.findings

    def sentence(width: int) -> list[str]:
        lines = text_of(evidence_lines(picture, late, width, 20))[1:]
        return [line.strip(" ▲") for line in lines[: lines.index("")]]

    assert sentence(60)[-1].endswith("Costs 24 % of the run's time.")
    assert " ".join(sentence(85)).endswith("Costs 24 %.")
    assert [len(sentence(width)) for width in (60, 85)] == [2, 1]


@pytest.mark.parametrize("width", range(20, 60))
def test_no_key_stands_in_the_last_column(width: int) -> None:
    keys = (("esc", "back"), ("v", "metric"), ("r", "reverse"), ("5", "findings"), ("q", "quit"))
    (line,) = text_of([footer_line(keys, width, LOOK)])
    assert "q quit" in line
    assert line.endswith(" ")


def test_the_cursor_of_a_single_finding_is_not_said_to_move() -> None:
    late = snapshot(Made(ranks=8, straggler=5))
    source = Fixed(late)

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("5")
        await watched.until(lambda: "y Y copy" in foot(watched))
        assert "enter rank" in foot(watched)
        assert "j k move" not in foot(watched)
        source.shown = replace(late, findings=(*late.findings, replace(late.findings[0], ranks=(3,), id=3)))
        await watched.until(lambda: "j k move" in foot(watched))

    watch(source, act, (120, 34))
