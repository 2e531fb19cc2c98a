"""A rank that is late in some of its steps: its bar and its cells show that it is not late in all of them."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from ddpmon.snapshot import Finding
from ddpmon.tui.draw.against import against_lines
from ddpmon.tui.draw.bands import GUTTER
from ddpmon.tui.draw.columns import sheet
from ddpmon.tui.draw.heat import heat_lines
from ddpmon.tui.draw.table import TableView, table_lines
from ddpmon.tui.view_state import ViewState
from tests.tui.made_runs import Made, snapshot
from tests.tui.test_drawing import LOOKS, text_of
from tests.tui.test_heat import heat_of

COLOUR, ASCII = LOOKS["colour"], LOOKS["ascii"]
LATE = Finding(
    "intermittent_straggler", "warning", "late", (3,), ("node0",), "input",
    evidence={"excess_ms": 160.0, "one_step_in": 5.0},
)  # fmt: skip


@pytest.mark.parametrize(("width", "word"), [(80, "1/5"), (160, "late 1/5")])
def test_the_bar_shows_what_the_late_steps_add_on_average(width: int, word: str) -> None:
    """It had no accent: the medians that it is of do not show the lateness."""
    made = snapshot(Made(ranks=8))
    assert made.ranks is not None
    shown = ViewState(replace(made, findings=(LATE,)), ASCII)
    title, head, *rows = text_of(table_lines(shown, TableView(np.arange(8)), width, 12))
    assert "1/5: in one step of 5; " in title
    assert f"{ASCII.glyphs.rare}{word} " in head
    cells, scale = sheet(width, made.ranks, len("node0"), rhythm=True).bar, float(re.findall(r"(\d+) ms", head)[0])
    assert rows[3].count(ASCII.glyphs.rare) == pytest.approx(160.0 / 5 / scale * cells, abs=1.0)
    assert not any(ASCII.glyphs.rare in row for row in (*rows[:3], *rows[4:])), "healthy ranks have none"
    waits = [row.rindex("..") for row in rows[:8]]
    assert waits[3] == max(waits), "behind a longer bar stands its wait, for which the scale has room"


def test_the_phase_beside_those_of_the_others_shows_it_too() -> None:
    shown = ViewState(replace(snapshot(Made(ranks=8)), findings=(LATE,)), COLOUR)
    rows = [line.split()[1] for line in text_of(against_lines(shown, 3, 100, 20)) if COLOUR.glyphs.rare in line]
    assert rows == ["input"]


def test_without_such_a_rank_nothing_is_explained() -> None:
    late = replace(LATE, kind="straggler", evidence={"excess_ms": 41.0})
    for findings in ((), (late,), (replace(LATE, evidence={"excess_ms": 0.42, "one_step_in": 1.2}),)):
        shown = ViewState(replace(snapshot(Made(ranks=8, straggler=3)), findings=findings), COLOUR)
        lines = text_of(table_lines(shown, TableView(np.arange(8)), 160, 12))
        assert not any("1/" in line or COLOUR.glyphs.rare in line for line in lines)


@pytest.mark.parametrize(("steps", "every", "is_rare"), [(500, 5, True), (500, 1, False), (300, 5, False)])
def test_a_cell_of_which_most_steps_are_calm_is_drawn_thinner(steps: int, every: int, is_rare: bool) -> None:
    """A rank that is late in one step of five looked as if it were late in all, where a cell shows five steps."""
    work = np.full((4, steps), 100.0)
    work[0, ::every] = 180.0
    work[1, 300:] = 180.0  # late for good from a step on
    made = replace(snapshot(Made(ranks=4)), heat=heat_of(work))
    title, *rows = text_of(heat_lines(ViewState(made, COLOUR), 120 + GUTTER + 1, 6))
    drawn = [{*row[GUTTER + 1 : GUTTER + 119]} for row in rows[:4]]  # the cells at the ends hold fewer steps
    assert drawn[0] == {COLOUR.glyphs.rare if is_rare else COLOUR.glyphs.block}
    assert drawn[1:] == [{COLOUR.glyphs.block}] * 3
    assert ("in fewer than half" in title) is is_rare


@pytest.mark.parametrize(
    ("width", "only", "name"),
    [
        (140, (), "lateness, rank x step, the worst of 9 steps a cell, ▃ in fewer than half"),
        (100, (), "lateness, rank x step, worst of 9 steps, ▃ in few"),
        (80, (), "lateness, worst of 10 steps, ▃ in few"),
        (130, (0, 1), "lateness, rank x step, the worst of 9 steps a cell, ▃ in fewer than half, 2 of 4 ranks"),
        (100, (0, 1), "lateness, rank x step, 2 of 4 ranks, worst of 9 steps, ▃ in few"),
    ],
)
def test_what_such_a_cell_means_is_said_in_less_room_too(width: int, only: tuple[int, ...], name: str) -> None:
    """In half the width of a terminal the thinner cells had no words."""
    work = np.full((4, 8 * width), 100.0)
    calm = replace(snapshot(Made(ranks=4)), heat=heat_of(work))
    work[0, ::8] = 180.0
    made = replace(calm, heat=heat_of(work))
    title, *rows = text_of(heat_lines(ViewState(made, COLOUR), width, 6, only=only))
    assert any(COLOUR.glyphs.rare in row for row in rows)
    assert re.split(r" ─| +■", title)[0] == f"─ {name}"
    assert "■100 %" in title
    assert COLOUR.glyphs.rare not in text_of(heat_lines(ViewState(calm, COLOUR), width, 6, only=only))[0]
