"""The overview as a whole: what fills the screen, the heat-map's cursor and metrics, and a run that stands still."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from ddpmon.parts import Flight, Stack, StackFrame, Stall
from ddpmon.snapshot import Snapshot
from ddpmon.tui.draw.bands import GUTTER
from tests.tui.made_runs import HANG, NOTES, STALL, Made, snapshot
from tests.tui.watched import Fixed, Watched, watch

BLANK = re.compile(r" {20,}")


def empty_share(text: str) -> float:
    """The share of the screen that says nothing: runs of 20 blank cells or more, those inside of plots too."""
    return sum(len(run) for run in BLANK.findall(text)) / len(text)


@pytest.mark.parametrize(
    "made", [Made(ranks=4, straggler=1, gpu=True), Made(ranks=4, gpu=True), Made(ranks=8, straggler=5)]
)
@pytest.mark.parametrize(("size", "most"), [((160, 50), 0.15), ((240, 70), 0.3)])
def test_small_runs_fill_the_screen(made: Made, size: tuple[int, int], most: float) -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("against the others")
        await watched.until_shown("lateness of rank")
        assert empty_share(watched.text()) < most

    watch(Fixed(snapshot(made)), act, size)


def test_a_large_run_keeps_its_rows_and_fills_the_screen() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("lateness of rank 42")
        assert "against the others" not in watched.text()
        assert empty_share(watched.text()) < 0.15

    watch(Fixed(snapshot(Made(ranks=64, straggler=42, per_node=8))), act, (160, 50))


def test_the_panels_are_about_the_rank_under_the_cursor() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("rank 5 against the others")
        await watched.press("j")
        await watched.until_shown("rank 0 against the others")
        await watched.until_shown("lateness of rank 0")

    watch(Fixed(snapshot(Made(ranks=8, straggler=5))), act, (160, 50))


def test_the_heat_maps_cursor_names_a_cell_and_opens_a_rank() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("rank x step")
        await watched.press("tab")
        await watched.until_shown("rank 5 · step 1,2")
        await watched.press(*["up"] * 5)
        await watched.until_shown("rank 0 · step 1,2")
        await watched.press(*["down"] * 5)
        await watched.until_shown("rank 5 · step 1,2")
        await watched.until(lambda: bool(re.search(r"lateness \+4\d ms, 3\d % of base step", watched.text())))
        await watched.press("shift+left", "left")
        await watched.until(lambda: bool(re.search(r"rank 5 · step 1,1\d\d", watched.text())))
        await watched.press("enter")
        await watched.until_shown("rank 5 of 8")

    watch(Fixed(snapshot(Made(ranks=8, straggler=5))), act, (160, 50))


def test_a_click_puts_the_cursor_on_a_cell() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("rank x step")
        heat = watched.app.screen.query_one("#heat")
        lines = watched.text().split("\n")[heat.region.y :]
        row = next(place for place, line in enumerate(lines) if line.strip().startswith("5▲"))
        await watched.pilot.click("#heat", offset=(GUTTER + 100, row))
        await watched.until(lambda: bool(re.search(r"rank 5 · step 1,0\d\d", watched.text())))

    watch(Fixed(snapshot(Made(ranks=8, straggler=5))), act, (160, 50))


class Metrics(Fixed):
    """A source that carries the metric it is asked for."""

    def rebuild(self) -> Snapshot:
        made = super().rebuild()
        if self.metric == "lateness" or made.heat is None:
            return made
        return replace(made, chosen_heat=replace(made.heat, metric=self.metric))


def test_v_goes_through_the_metrics_that_the_run_has() -> None:
    names = ("work", "wait", "input", "all-reduce", "resident memory", "loss", "lateness")

    async def act(watched: Watched) -> None:
        await watched.until_shown("lateness, rank x step")
        for name in names:
            await watched.press("v")
            await watched.until_shown(f"─ {name}, rank x step")

    watch(Metrics(snapshot(Made(ranks=8))), act, (120, 34))

    async def on_gpus(watched: Watched) -> None:
        await watched.until_shown("lateness, rank x step")
        await watched.press("v", "v", "v", "v")
        for name in ("GPU utilisation", "GPU power", "GPU clock"):
            await watched.press("v")
            await watched.until_shown(f"─ {name}, rank x step")

    watch(Metrics(snapshot(Made(ranks=8, gpu=True))), on_gpus, (120, 34))


def hanging(ranks: int = 64) -> Snapshot:
    """Rank 2 is stuck in its input, and all others wait for it."""
    made = snapshot(Made(ranks=ranks, per_node=8, stuck=2, findings=(HANG,)))
    assert made.ranks is not None
    assert made.run is not None
    waiting = Stall(
        13.0, [Stack("MainThread", [StackFrame("train.py", 61, "step", "loss.backward()")])],
        [Flight("default_pg", 561, 560, "nccl:all_reduce")],
    )  # fmt: skip
    rows = replace(
        made.ranks,
        state=("stalled",) * ranks,
        phase=tuple("input" if rank == 2 else "exposed" for rank in range(ranks)),
        stall=tuple(STALL if rank == 2 else waiting for rank in range(ranks)),
        step=np.full(ranks, 1204),
    )
    return replace(made, ranks=rows, run=replace(made.run, state="stalled"))


@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
def test_who_is_where_while_the_run_stands_still(size: tuple[int, int]) -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("where the ranks are")
        await watched.until_shown("2 groups of 64 ranks")
        assert watched.rows() == [2, 0], "the first rank of each group, the culprit first"
        text = watched.text()
        assert " HANG " in text
        assert re.search(r"0-1, 3-63 +63 +all-reduce", text), "the word of the sentences, not that of the frames"
        if size[0] >= 100:
            assert re.search(r"all_reduce +561 +train.py:61", text)
            assert text.index("stack of rank 2") < text.index("stack of rank 0"), "one of each group"
            assert "shards.py:19" in text
        await watched.press("s")
        await watched.until_shown("by rank")
        assert len(watched.rows()) == 64, "sorted by the reader it is the table of ranks again"

    watch(Fixed(hanging()), act, size)


def test_the_stuck_rank_of_a_small_run_is_also_compared_with_the_others() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("stack of rank 2")
        await watched.until_shown("rank 2 against the others")

    watch(Fixed(hanging(4)), act, (160, 50))


def test_all_sizes_with_findings_and_without() -> None:
    async def act(watched: Watched) -> None:
        await watched.until_shown("RUNNING")
        for size in ((40, 12), (80, 24), (120, 40), (160, 50), (240, 70), (300, 80)):
            await watched.pilot.resize_terminal(*size)
            await watched.pilot.pause()
            assert all(len(line) == size[0] for line in watched.text().split("\n"))

    for made in (Made(ranks=1), Made(ranks=8, straggler=5, findings=NOTES), Made(ranks=16, per_node=8)):
        watch(Fixed(snapshot(made)), act, (160, 50))
