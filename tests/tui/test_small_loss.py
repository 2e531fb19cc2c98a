"""Losses of every size in tables, titles and plots: digits that tell ranks apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ddpmon.commands.status_text import status_lines
from ddpmon.format import loss_brief, loss_difference
from ddpmon.report.report_charts import curve
from ddpmon.snapshot import Snapshot
from ddpmon.tui.draw.against import against_lines
from ddpmon.tui.draw.peer_table import marked_lines, peer_lines
from ddpmon.tui.draw.table import TableView, table_lines
from ddpmon.tui.draw.timeline_view import timeline_lines
from ddpmon.tui.view_state import ViewState
from tests.tui.made_runs import Made, snapshot
from tests.tui.test_drawing import LOOKS, text_of
from tests.tui.test_views import timed

COLOUR, ASCII = LOOKS["colour"], LOOKS["ascii"]


def with_losses(*losses: float) -> Snapshot:
    """A run whose ranks have these losses."""
    made = snapshot(Made(ranks=len(losses)))
    assert made.ranks is not None
    return replace(made, ranks=replace(made.ranks, loss=np.array(losses)))


SMALL = with_losses(0.0004908, 0.0004895, 0.0004895, 0.0004895)


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (2.31, "2.310"), (0.4908, "0.4908"), (0.00999999, "0.0100"), (0.0049, "4,900µ"), (4.908e-4, "490.8µ"),
        (4.9e-8, "49.00n"), (9.99996, "10.00"), (1234.4, "1,234"), (99_999.9, "100.0k"), (1.2345e6, "1.234M"),
        (1e12, "1.000T"), (3e38, "3e+38"), (0.0, "0.000"), (-0.4908, "-0.491"), (-12_345.0, "-12.3k"),
    ],
)  # fmt: skip
def test_a_loss_has_up_to_four_digits_in_six_cells(loss: float, said: str) -> None:
    assert loss_brief(loss) == said
    assert len(said) <= 6


def test_the_difference_of_two_losses_is_that_of_what_is_shown() -> None:
    assert loss_difference(0.0004908, 0.0004895) == "+1.3µ"
    assert loss_difference(0.0004895, 0.0004908) == "-1.3µ"
    assert loss_difference(2.31, 2.3) == "+0.010"
    assert loss_difference(2.3101, 2.3102) == "±0"
    assert loss_difference(1.2e6, 2.3) == "+1.200M"


def test_small_losses_tell_ranks_apart_in_every_table() -> None:
    """`0.00` and `0.000` stood there of all ranks."""
    shown = ViewState(SMALL, COLOUR)
    rows = text_of(table_lines(shown, TableView(np.arange(4), sort="loss"), 120, 8))
    assert "490.8µ" in rows[2]
    assert "489.5µ" in rows[3]
    for lines in (against_lines(shown, 0, 100, 20), peer_lines(SMALL, 0, 54, 30, COLOUR)):
        row = next(line for line in text_of(lines) if line.split()[:1] == ["loss"])
        assert row.split()[-3:] == ["490.8µ", "489.5µ", "+1.3µ"]
    row = next(line for line in text_of(marked_lines(SMALL, [0, 1], 100, 24, COLOUR)) if " loss" in line)
    assert row.split()[1:] == ["490.8µ", "489.5µ", "-1.3µ", "489.5µ"]
    assert any("490.8µ" in line for line in status_lines(SMALL, all_ranks=True))


def test_in_ascii_the_unit_of_a_loss_is_a_letter() -> None:
    shown = ViewState(SMALL, ASCII)
    lines = [*against_lines(shown, 0, 100, 20), *peer_lines(SMALL, 0, 54, 30, ASCII)]
    lines += [*marked_lines(SMALL, [0, 1], 100, 24, ASCII), *table_lines(shown, TableView(np.arange(4)), 160, 8)]
    text = "\n".join(text_of(lines))
    assert "490.8u" in text
    assert text.isascii()


def test_a_rank_whose_loss_has_diverged_leaves_the_others_their_digits() -> None:
    rows = text_of(table_lines(ViewState(with_losses(1.2e6, 2.31), COLOUR), TableView(np.arange(2)), 160, 6))
    assert "1.200M" in rows[2]
    assert " 2.310 " in rows[3]


def test_a_small_loss_has_its_digits_beside_the_timeline_and_on_its_axis() -> None:
    made = timed(snapshot(Made(ranks=4)))
    assert made.timeline is not None
    made = replace(made, timeline=replace(made.timeline, loss=np.full(len(made.timeline.step), 0.0004908)))
    lines = text_of(timeline_lines(ViewState(made, COLOUR), 120, 34))
    at = next(place for place, line in enumerate(lines) if line.startswith(" loss"))
    assert lines[at + 1].startswith(" 0.0004908 ")
    labels = [line[15:20].strip() for line in lines[at : at + 8] if "µ┤" in line]
    assert len(labels) == len({*labels}) >= 2


def test_the_axis_of_a_report_tells_small_losses_apart() -> None:
    drawn = curve(np.arange(9.0), np.linspace(0.00049, 0.0007, 9), "loss", words=loss_brief)
    assert "0.000<" not in drawn
    assert drawn.count("µ<") == 3
