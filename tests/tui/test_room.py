"""What the views do with a large terminal: few ranks fill it with maps and plots, thousands of ranks are not slowed."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from ddpmon.snapshot import Snapshot
from ddpmon.tui.draw.bands import GUTTER
from ddpmon.tui.screens.compare_screen import CompareScreen
from tests.tui.made_runs import NOTES, Made, snapshot
from tests.tui.test_overview import empty_share
from tests.tui.test_views import FULL, timed
from tests.tui.watched import Fixed, Watched, watch

LATE = timed(snapshot(Made(ranks=4, per_node=2, straggler=1, gpu=True, findings=NOTES)))
CALM = timed(snapshot(Made(ranks=4, per_node=2, gpu=True)))
THOUSAND = timed(snapshot(Made(ranks=1024, per_node=8, straggler=341, gpu=True)))
LARGE = (160, 50)


def ended(shown: Snapshot) -> Snapshot:
    """The same run once it has finished."""
    assert shown.run is not None
    return replace(shown, run=replace(shown.run, state="finished", step_age_s=0.3))


def without_common_steps(shown: Snapshot, *ranks: int) -> Snapshot:
    """The same run, but nothing is known of how late these ranks are."""
    assert shown.heat is not None
    values = shown.heat.values.copy()
    values[list(ranks)] = np.nan
    return replace(shown, heat=replace(shown.heat, values=values))


@pytest.mark.parametrize(
    ("shown", "keys", "said", "most"),
    [
        (LATE, ("3",), "rank 1 and its machine", 0.4),
        (LATE, ("3", "enter"), "rank 1 and its machine", 0.4),
        (LATE, ("5",), "rank 1: input, ms", 0.45),
        (CALM, ("5",), "most late rank of each step", 0.4),
        (LATE, ("4",), "samples/s", 0.6),
        (LATE, ("m", "j", "m", "c"), "lateness of rank 0", 0.55),
    ],
    ids=["hosts", "host", "findings", "no finding", "run", "compare"],
)
def test_few_ranks_fill_every_view(shown: Snapshot, keys: tuple[str, ...], said: str, most: float) -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("against the others")
        await watched.press(*keys)
        await watched.until_shown(said)
        assert empty_share(watched.text()) < most

    watch(Fixed(shown), act, LARGE)


@pytest.mark.parametrize(("unknown", "apart"), [((0, 1, 2, 3), 5), ((0, 1, 2), 13)])
def test_a_map_of_nothing_known_takes_a_line_a_rank(unknown: tuple[int, ...], apart: int) -> None:
    """It kept the lines of a map, and a sixth of the screen was empty below it."""

    async def act(watched: Watched) -> None:
        await watched.until_shown("not known in these steps")
        lines = watched.text().splitlines()
        (heat,) = (at for at, line in enumerate(lines) if "lateness, rank x step" in line)
        assert len(lines) - 2 - heat == apart, "up to the axis above the keys"
        assert lines[-2].split()[0] == "step"

    watch(Fixed(without_common_steps(CALM, *unknown)), act, LARGE)


@pytest.mark.parametrize(
    ("size", "keys", "said", "most"),
    [
        ((240, 70), ("3",), ("rank 341 and its machine", "worst of "), 0.35),
        ((160, 50), ("3",), ("on the GPUs", "rank 343 "), 0.37),
        ((240, 70), ("enter",), ("last 20 steps", "other, ms"), 0.25),
    ],
    ids=["hosts", "hosts of 160x50", "rank"],
)
def test_a_thousand_ranks_fill_large_terminals(
    size: tuple[int, int], keys: tuple[str, ...], said: tuple[str, ...], most: float
) -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press(*keys)
        for words in said:
            await watched.until_shown(words)
        assert empty_share(watched.text()) < most

    watch(Fixed(THOUSAND), act, size)


def test_the_rank_under_the_cursor_of_a_host_is_plotted() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("against the others")
        await watched.press("3", "enter")
        await watched.until_shown("rank 1 and its machine")
        await watched.press("k")
        await watched.until_shown("rank 0 and its machine")

    watch(Fixed(LATE), act, LARGE)


def test_thousands_of_ranks_cost_no_further_plots() -> None:
    source = Fixed(timed(FULL))

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("4")
        await watched.until_shown("store and watching")
        assert "step time" not in watched.text()
        await watched.press("3", "enter")
        await watched.until_shown("on the GPUs")
        assert "and its machine" not in watched.text()
        assert source.focus is None, "no rank is read in detail"

    watch(source, act, LARGE)


def test_a_rank_without_comparable_steps_takes_one_line_and_can_be_clicked() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("not known in these steps")
        assert watched.text().count("not known in these steps") == 2
        assert "all-reduce, ms" in watched.text(), "in the place of the lateness"
        assert empty_share(watched.text()) < 0.15
        heat = watched.app.screen.query_one("#heat")
        lines = watched.text().split("\n")[heat.region.y :]
        row = max(place for place, line in enumerate(lines) if "not known in these steps" in line)
        await watched.pilot.click("#heat", offset=(GUTTER + 40, row))
        await watched.until(lambda: bool(re.search(r"rank 3 · step [\d,]+ · not known", watched.text())))

    watch(Fixed(without_common_steps(replace(LATE, findings=()), 1, 3)), act, LARGE)


@pytest.mark.parametrize("keys", [("1",), ("2",), ("4",), ("5",)], ids=["overview", "timeline", "run", "findings"])
def test_a_run_that_has_ended_is_not_described_as_going_on(keys: tuple[str, ...]) -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("FINISHED")
        await watched.press(*keys)
        await watched.until_shown("q quit")
        text = watched.text()
        assert not re.search(r"\blive$|, live\b|a day|each step now|so far", text)
        assert keys != ("2",) or "step 1,204, the last one" in text
        assert keys != ("4",) or "of the time of all ranks over the last 20 steps" in text

    watch(Fixed(ended(LATE)), act, LARGE)


def test_findings_that_begin_at_one_step_have_rows_of_their_own_on_the_timeline() -> None:
    late = replace(LATE.findings[0], summary="late", evidence={"excess_ms": 41.0})
    many = tuple(replace(late, ranks=(rank,), id=rank + 1) for rank in range(30))
    assert CALM.timeline is not None

    async def act(watched: Watched) -> None:
        await watched.press("2")
        await watched.until_shown("rank 0 late +41 ms, input")
        rows = [line for line in watched.text().split("\n") if re.search(r"rank \d+ late \+41 ms, input", line)]
        assert len(rows) > 1
        assert f"{30 - len(rows)} more" in rows[-1]

    watch(Fixed(replace(CALM, findings=many, timeline=replace(CALM.timeline, marks=()))), act, LARGE)


def test_compared_ranks_have_their_plots_below_the_table_in_its_order() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("against the others")
        await watched.press("m", "j", "m", "j", "m", "c")
        await watched.until_shown("lateness of rank")
        assert isinstance(watched.app.screen, CompareScreen)
        titles = [int(rank) for rank in re.findall(r"─ lateness of rank (\d+)", watched.text())]
        assert titles == [*watched.app.screen.ranks]
        first, second = (line for line in watched.text().split("\n") if "─ lateness of rank" in line)
        assert first.index("─ lateness", 1) == len(second.rstrip()) + 1, "the third is as wide as the first"

    watch(Fixed(LATE), act, (120, 40))


def test_beside_the_table_of_two_compared_ranks_there_are_plots_in_120_columns() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("against the others")
        await watched.press("m", "j", "m", "c")
        await watched.until_shown("lateness of rank")
        right = [line[70:].strip() for line in watched.text().split("\n")[1:-1]]
        assert sum(not each for each in right) < len(right) / 3
        assert any(re.search(r"worst of \d+ steps", each) for each in right)

    watch(Fixed(LATE), act, (120, 40))


def test_a_narrow_terminal_has_the_hours_second_and_no_heading_last() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("4")
        await watched.until_shown("more lines below")
        lines = watched.text().split("\n")
        below = next(place for place, line in enumerate(lines) if "more lines below" in line)
        assert not any(line.startswith("─ ") for line in lines[3:below])  # below the headline
        assert "j k scroll" in lines[-1]
        await watched.pilot.resize_terminal(80, 16)
        await watched.until_shown("used and lost")
        await watched.pilot.resize_terminal(240, 70)
        await watched.until(lambda: "more lines below" not in watched.text())
        await watched.until(lambda: "j k scroll" not in watched.text())

    watch(Fixed(LATE), act, (80, 12))


def test_in_24_lines_a_plot_stands_below_the_evidence_of_one_finding() -> None:
    """The list had two empty lines, and five more stood below the evidence (what viewers of the pictures found)."""
    shown = timed(snapshot(Made(ranks=4, per_node=2, straggler=1, gpu=True, focus=1)))

    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        await watched.press("5")
        await watched.until_shown("rank 1: input, ms")
        assert watched.text().split("\n")[3].startswith("─ rank 1: late +41 ms"), "the evidence follows the list"

    watch(Fixed(shown), act, (80, 24))


def test_the_run_s_plots_have_room_beside_many_causes_of_lost_hours() -> None:
    """In half of 120 columns four causes took 32 lines, and the room below was too low for a plot."""
    (late,) = (finding for finding in LATE.findings if finding.kind == "straggler")
    because = "a shared GPU: pid 4242 (somebody, python notebook.py) uses 38 % of its GPU"
    several = tuple(replace(late, id=rank, ranks=(rank,), cause=because) for rank in range(4))
    assert LATE.run is not None
    running = replace(LATE, run=replace(LATE.run, step_age_s=0.3), findings=several)

    async def act(watched: Watched) -> None:
        await watched.until_shown("against the others")
        await watched.press("4")
        await watched.until_shown("lost: rank 3")
        assert "step time" in watched.text()

    watch(Fixed(running), act, (120, 40))
